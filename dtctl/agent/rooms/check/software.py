"""The packages of the trainers' Pythons, queried without importing them."""

from __future__ import annotations

import glob
import json
import os
import shutil

from ...host import paths
from ...records.kinds import made
from ...run import containers, environment, environments
from ...vitals import machine_load
from .records import MOST_MODULES, PythonAsked, PythonFound, SoftwareFacts, SoftwareQuestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from ...conversation import Conversation
    from ...records.spec import Environment


PROBE_S = 60.0
"""The time limit of a probe: a Python with packages on a slow network disk takes long."""
IMPORT_S = 240.0

_SCRIPT = """\
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import importlib.util, json, os, time
asked = json.loads(sys.argv[1])
%s
print("\\n" + json.dumps(answer))
"""
"""The frame of each script: reads its input, and marks its answer among other output."""

_PROBE = """\
try:
    from importlib.metadata import version
except ImportError:
    version = None
found = {}
for name in asked["packages"] if version else ():
    try:
        found[name] = version(name)
    except Exception:  # it is not there, or its files are damaged, which shows as many kinds of exceptions
        pass
def lacks(name):  # a name without a dot: nothing of PYTHONPATH is imported
    try:
        return importlib.util.find_spec(name) is None
    except Exception:  # finders and packages above it are code of others
        return True
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (ValueError, OSError):
    libc = ""
def cuda():
    if not lacks("nvidia") and (not lacks("nvidia.cudnn") or not lacks("nvidia.cuda_runtime")):
        return "packages of pip"
    import glob
    places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    places += [sys.prefix + "/lib", "/usr/local/cuda*/lib64", "/usr/lib/*-linux-gnu", "/usr/lib64", "/opt/cuda/lib64"]
    for place in filter(None, places):
        found = sorted(glob.glob(place + "/libcudart.so*"))
        if found:
            return found[0]
    return ""
cuda_at = cuda() if asked["cuda"] else ""
def broken():
    import warnings
    warnings.simplefilter("ignore")
    for file in asked["files"]:
        try:
            with open(asked["code"] + "/" + file, "rb") as opened:
                compile(opened.read(), file, "exec", dont_inherit=True)
        except SyntaxError as error:
            return {"file": file, "line": error.lineno or 1, "problem": str(error.msg)}
        except Exception:  # unreadable or too deep: reported elsewhere
            pass
import sysconfig
managed = sys.prefix == sys.base_prefix and os.path.exists(sysconfig.get_path("stdlib") + "/EXTERNALLY-MANAGED")
sys.path += asked["path"]
if asked["code"]:  # files of the setup there count, too; a name without a dot is looked up without an import
    sys.path += [asked["code"]] + sorted({os.path.dirname(asked["code"] + "/" + file) for file in asked["files"]})
answer = {"version": "%d.%d.%d" % sys.version_info[:3], "libc": libc, "packages": found, "managed": managed,
        "cuda": cuda_at, "missing": [name for name in asked["modules"] if lacks(name)], "broken": broken()}
"""

_IMPORTS = """\
answer = {}
names, gpus = asked
for name in names:
    began, problem = time.time(), ""
    try:
        importlib.import_module(name)
    except BaseException as error:  # some call sys.exit
        problem = "%s: %s" % (type(error).__name__, error)
    answer[name] = {"seconds": int(time.time() - began), "problem": problem[:4096], "gpus": None}
counts = {
    "tensorflow": lambda: len(sys.modules["tensorflow"].config.list_physical_devices("GPU")),
    "torch": lambda: sys.modules["torch"].cuda.device_count(),
}
for name in counts if gpus else ():
    if name in answer and not answer[name]["problem"]:
        try:
            answer[name]["gpus"] = counts[name]()
        except Exception as error:
            answer[name]["problem"] = "%s: %s" % (type(error).__name__, error)
"""


_TRUE = ("1", "true", "True")
"""The values that count as true, as in tensorflow/__init__.py."""


class Python:
    """A Python of the question, and its facts."""

    def __init__(self, root: str, asked: PythonAsked) -> None:
        self._asked = asked
        variables, there, self._box = _within(root, asked)
        self._code = os.path.join(paths.bundle_directory(root, asked["bundle"]), "tree") if asked["bundle"] else ""
        self.marks = marks = environment.Marks(self._code or None, variables)
        self._variables = environment.without_proxies(variables)
        self._variables["PATH"] = marks.text(asked["path"] or self._variables["PATH"])
        if asked["python_path"]:
            self._variables["PYTHONPATH"] = marks.text(asked["python_path"])
        program = marks.text(asked["program"])
        path = (program if self._box else shutil.which(program, path=self._variables["PATH"]) or "") if there else ""
        legacy = self._variables.get("TF_USE_LEGACY_KERAS") in _TRUE and not asked["isolated"]
        self.found = made(PythonFound, program=asked["program"], path=path[:4096], legacy_keras=legacy)

    def read(self) -> None:
        """Reads its packages by the names of its directories."""
        if self.found["path"] and self._box is None:
            self.found["packages"] = machine_load.package_versions(self.found["path"], os.path.expanduser("~"))

    def start(self) -> None:
        """Queries the Python itself; if it gives no answer, reads the names of its directories."""
        wanted = [name.replace("_", "-") for name in machine_load.WANTED]
        asked = {
            "packages": wanted,
            "modules": self._asked["modules"],
            "cuda": self._asked["cuda"],
            "path": self._other_places() if self._asked["isolated"] else [],
            "code": self._code,
            "files": self._asked["files"] if self._code else [],
        }
        answer = self.run(_PROBE, asked, PROBE_S)
        if answer is None:
            self.read()
            return
        self.found["version"] = str(answer["version"])[:200]
        self.found["cuda"] = str(answer["cuda"])[:4096]
        self.found["libc"] = str(answer["libc"])[:200]
        self.found["packages"] = {name: str(version)[:200] for name, version in answer["packages"].items()}
        self.found["managed"] = bool(answer["managed"])
        self.found["missing"] = answer["missing"][:MOST_MODULES]
        self.found["broken"] = answer["broken"]

    def import_all(self) -> None:
        lacking = set(self.found["missing"])
        wanted = [name for name in self._asked["modules"] if name not in lacking]
        answer = self.run(_IMPORTS, [wanted, self._asked["cuda"]], IMPORT_S) if wanted else None
        if answer is not None:
            self.found["imported"] = answer

    def run(self, script: str, asked: object, limit_s: float, more: Optional[Mapping[str, str]] = None) -> Any:
        """The `answer` of a script to `asked`; None: the reason is in `problem`. `more`: variables for it."""
        import subprocess

        if not self.found["path"] or not self._asked["may_start"]:
            return None
        isolated = self._asked["isolated"]
        argv = [self.found["path"], *(["-I"] if isolated else []), "-c", _SCRIPT % script, json.dumps(asked)]
        variables = {**({} if isolated else self._variables), **(more or {})}
        name, box = "dtctl-" + os.urandom(8).hex(), self._box
        if box is not None:
            given = {**box.inherited(self._variables), **self._of_trainers(), **(more or {})}
            argv, variables = box.words(name, argv, given, environment.base(), self._code or box.home)
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd="/" if isolated else os.path.expanduser("~"),
                env=environment.encoded(variables),
                timeout=limit_s,
                check=False,
            )
            return json.loads(done.stdout.decode("utf-8", "replace").strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            self.found["problem"] = "it did not answer within %d s" % limit_s
            if box is not None:
                environment.output_of(box.removal(name))
        except OSError as error:
            self.found["problem"] = str(error.strerror or error)[:4096]
        except (ValueError, IndexError):
            text = done.stderr.decode("utf-8", "replace").strip().splitlines()
            self.found["problem"] = (text[-1] if text else "it ended with %d" % done.returncode)[:4096]
        return None

    def _of_trainers(self) -> Dict[str, str]:
        """The trainers' variables for a search path; PATH is the image's. Unless GPUs are counted, none is visible."""
        path = {"PYTHONPATH": self._variables["PYTHONPATH"]} if self._asked["python_path"] else {}
        return path if self._asked["cuda"] else {**path, "CUDA_VISIBLE_DEVICES": "-1"}

    def _other_places(self) -> List[str]:
        """The additional directories in which its trainers find modules, which -I excludes."""
        parts = self._variables.get("PYTHONPATH", "").split(":")
        pattern = os.path.expanduser("~/.local/lib/python3.*/site-packages")
        return [part for part in parts if os.path.isabs(part)] + sorted(glob.glob(pattern))


def _within(root: str, asked: PythonAsked) -> Tuple[Dict[str, str], bool, Optional[containers.Box]]:
    """The variables of its trainers; whether its environment is there, where it has one; and the container of that."""
    variables, wanted = environment.base(), asked["environment"]
    if wanted is None:
        return variables, True, None
    key = environments.key_of(wanted) if asked["may_start"] else None
    found = environments.find(root, key) if key is not None else None
    if found is None:
        return variables, False, None
    placed: Environment = {**wanted, "directory": found[0], "container": found[1]["container"]}
    box = containers.of_spec(root, placed, environment.Marks(None))
    return environments.applied(variables, found[1]), True, box


def software_facts(talk: Conversation, question: SoftwareQuestion) -> SoftwareFacts:
    found = []
    for asked in question["pythons"]:
        python = Python(talk.root, asked)
        if question["started"]:
            python.start()
        else:
            python.read()
        if question["imported"]:
            python.import_all()
        found.append(python.found)
    return {"pythons": found}

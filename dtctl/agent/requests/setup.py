"""Prepares a host for its tasks: creates the trainers' environment, and runs the user's setup command."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from ..bundles.tree import file_sha256, remove_tree
from ..host import files, locks, paths
from ..host.errors import Refused, from_os_error
from ..host.secrets import Masks, hide_text
from ..records.spec import MAKER_SETTINGS, Environment, Spec
from ..records.values import MOST_SETUP_LOG, MOST_SETUP_LOGS
from ..run import containers, environment, environments, installing

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Dict, List, Mapping, Optional, Tuple

    from ..conversation import Conversation
    from ..records.answers import SetupLog, SetupLogsResult
    from ..records.requests import Request
    from ..records.run_state import MadeEnvironment
    from ..records.starting import EnvironmentRequest, EnvironmentResult

TAIL_BYTES = 2000

_CHUNK = 65536
_READ_IT = '. "$DTCTL_SETUP"'
"""The command line of the shell, which all users of the machine can read. The text itself may contain secrets: it is in
a file that only its user can read, and sees `$0`, `$#` and its standard input as if it were here."""

LOGIN = {"/bin/sh": "-c", "bash": "-lc"}
"""The option of each shell: conda and modules are there for login shells."""

_IN_THE_WAY = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables of the login that are removed: an environment has its packages only from its own content."""

_in_use: List[int] = []
"""Locks of the environments that this process has prepared: while it lives they are not removed."""


def prepare(talk: Conversation, spec: Spec, code: Optional[str], secrets: Mapping[str, str]) -> Dict[str, str]:
    """Makes the environment and runs the setup. Returns the variables that trainers inherit."""
    _note_logs(talk, spec, code)
    variables = environment.base()
    wanted = spec["environment"]
    if wanted is not None:
        wanted["directory"], found = _environment(talk, wanted, code or environment.Marks(None).home, secrets)
        wanted["container"] = found["container"]
        variables = environments.applied(variables, found)
    _run_setup(talk, spec, code, variables, secrets)
    return variables


def _environment(
    talk: Conversation, wanted: Environment, code: str, secrets: Mapping[str, str]
) -> Tuple[str, MadeEnvironment]:
    """The existing environment, or a new one. Raises as Conversation.pause."""
    key = environments.key_of(wanted)
    if key is None:
        raise _no_python(wanted)
    store = environments.store(talk.root)
    paths.make_directory(store)
    lock_path = os.path.join(store, key + ".lock")
    while True:
        shared = locks.share(lock_path)
        found = environments.find(talk.root, key)
        if shared is not None and found is not None:
            _in_use.append(shared)
            return found
        if shared is not None:
            os.close(shared)
        with suppress(OSError):
            for path in environments.abandoned(talk.root, key):
                remove_tree(path)
        with talk.at("waiting for another setup"):
            lock = _turn(talk, lock_path)
        try:
            if environments.find(talk.root, key) is None:
                _make(talk, wanted, code, secrets, key)
        finally:
            os.close(lock)


def has_environment(talk: Conversation, request: EnvironmentRequest) -> EnvironmentResult:
    """Whether the environment exists, so that no wheels are needed."""
    key = environments.key_of(request["environment"])
    if key is None:
        raise _no_python(request["environment"])
    return {"exists": environments.find(talk.root, key) is not None}


def _no_python(wanted: Environment) -> Refused:
    return Refused(
        "setup_failed",
        "this host has no %s to create the environment" % (wanted["python"] or "python3"),
        "",
        "trainer.environment.python, or hosts.NAME.python for one host, names another",
    )


def _make(talk: Conversation, wanted: Environment, code: str, secrets: Mapping[str, str], key: str) -> None:
    """Creates an environment, under its lock. An incomplete one is never found, as its record is written last."""
    what = "the environment (%s: %s)" % (wanted["kind"], wanted["what"])
    wheels = _wheels(talk, wanted, what)
    store = environments.store(talk.root)
    directory = os.path.join(store, "%s-%s" % (key, os.urandom(4).hex()))
    prefix = os.path.join(directory, "env")
    hidden = {name: value for name, value in secrets.items() if name.startswith(MAKER_SETTINGS)}
    variables = {name: value for name, value in environment.base().items() if name not in _IN_THE_WAY}
    variables.update(wanted["env"], **hidden, **environments.variables(wanted, prefix, wheels))
    shell, text = environments.script(wanted)
    masks, log_path = Masks(hidden.values()), os.path.join(store, key + ".log")
    try:
        os.mkdir(directory, 0o700)
        cwd = _with_its_files(wanted, code, os.path.join(directory, "files"), what)
        _run(talk, what, shell, text, variables, cwd, directory, log_path, masks, hint=_hint(wanted))
        problem, found = environments.gathered(wanted, prefix)
        if found["container"] is not None:
            box = containers.Box(talk.root, directory, found["container"], wanted, [])
            os.mkdir(box.home)
            text = box.probe(wanted["python"], variables, prefix + ".python")
            _run(talk, what, shell, text, variables, code, directory, log_path, masks, fresh=False)
            problem = environments.add_python(found, prefix + ".python")
        if problem is not None:
            raise Refused("setup_failed", "%s cannot be used: %s" % (what, problem))
        paths.write_json(os.path.join(directory, "environment.json"), found)
    except BaseException as error:
        with suppress(OSError):
            remove_tree(directory)
        if isinstance(error, OSError):
            raise from_os_error(error, "make %s" % what) from error
        raise


def _wheels(talk: Conversation, wanted: Environment, what: str) -> str:
    """The directory of its wheels; empty if it has none."""
    if wanted["wheels"] is None:
        return ""
    directory = os.path.join(paths.bundle_directory(talk.root, wanted["wheels"]), "tree")
    if not os.path.isdir(directory):
        raise Refused("setup_failed", "%s: its wheels are not on this host" % what, "", "dtctl up    sends them")
    return directory


def _with_its_files(wanted: Environment, code: str, place: str, what: str) -> str:
    """The directory in which it is created: `place`, with copies of its files alone; else the code.

    Refuses code whose files differ from those that the controller has read.
    """
    import shutil

    is_from_files = environments.is_from_files(wanted)
    if is_from_files:
        os.mkdir(place, 0o700)
    for path, expected in wanted["files"].items():
        source, copy = os.path.join(code, path), os.path.join(place, path)
        try:
            if is_from_files:
                os.makedirs(os.path.dirname(copy), 0o700, exist_ok=True)
                shutil.copyfile(source, copy)
            found = file_sha256(copy if is_from_files else source)
        except OSError as error:
            raise from_os_error(error, "read %s of the code" % path) from error
        if found != expected:
            raise Refused("setup_failed", "%s: %s changed while it was sent" % (what, path), "", "dtctl up    again")
    return place if is_from_files else code


def _hint(wanted: Environment) -> str:
    """What an installer cannot know of its failure."""
    if not environments.is_from_files(wanted):
        return ""
    where = "packages come from the wheels alone, " if wanted["wheels"] else ""
    return "; %sof the code only the files named in trainer.environment are there (`files` adds more)" % where


def _run_setup(
    talk: Conversation, spec: Spec, code: Optional[str], variables: Mapping[str, str], secrets: Mapping[str, str]
) -> None:
    """Runs `setup` unless it has succeeded here before with the same bundle, text and environment.

    It has the secrets, as the trainers do: they may be needed to fetch what is private. Its output goes to setup.log
    next to the mark of success, and to the controller. Raises like Conversation.pause; then the command and all its
    child processes are ended.
    """
    setup = spec["setup"]
    if setup is None:
        return
    text, own, marks = setup["text"], setup["env"], environment.Marks(code, variables)
    place = _place(talk, spec, code)
    paths.make_directory(place)
    made_in = spec["environment"]["directory"] if spec["environment"] else None
    done = os.path.join(place, "setup-%s.done" % _digest(text, own, made_in))
    with talk.at("waiting for another setup"):
        lock = _turn(talk, os.path.join(place, "setup.lock"))
    try:
        if not os.path.exists(done):
            given = {**variables, **marks.values(own), **secrets}
            masks, log_path, text = Masks(secrets.values()), os.path.join(place, "setup.log"), marks.text(text)
            _run(talk, "the setup command", "/bin/sh", text, given, marks.code, place, log_path, masks)
            paths.write_text(done, setup["text"] + "\n")
    finally:
        os.close(lock)


def _place(talk: Conversation, spec: Spec, code: Optional[str]) -> str:
    return os.path.dirname(code) if code else paths.cluster_directory(talk.root, spec["cluster"], spec["host"])


def _digest(text: str, own: Mapping[str, str], made_in: Optional[str]) -> str:
    """The key of a setup. As it may install packages, it runs again in a new environment."""
    import hashlib
    import json

    said = [text, own, made_in] if made_in else [text, own]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _turn(talk: Conversation, path: str) -> int:
    """The lock of a setup: another cluster with the same code, or the same environment, may be at it."""
    while True:
        descriptor = locks.hold(path, exclusive=True)
        if descriptor is not None:
            return descriptor
        talk.pause(0.2)


def _run(
    talk: Conversation,
    what: str,
    shell: str,
    text: str,
    variables: Mapping[str, str],
    cwd: str,
    place: str,
    log_path: str,
    masks: Masks,
    fresh: bool = True,
    hint: str = "",
) -> None:
    """Runs a shell text. It is in a file in `place` while it runs. `fresh`: the log starts empty.

    The log and the controller receive what it prints without secrets; that itself is in a file without a name.
    """
    key = os.urandom(16).hex()
    script = os.path.join(place, "setup-%s.sh" % key)
    variables = dict(variables, DTCTL_KEY=key, DTCTL_SETUP=script)
    log = files.descriptor(log_path, os.O_RDWR | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if fresh else 0))
    try:
        with open(script, "xb", opener=files.private) as file:
            file.write(environment.encode(text) + b"\n")
        with files.opened(script + ".out", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND) as printed:
            os.unlink(script + ".out")
            child = environment.spawn([shell, LOGIN[shell], _READ_IT], variables, cwd, stdout=printed, stderr=printed)
            output = _Output(printed, log, masks)
            try:
                with talk.at("setup"):
                    _follow(talk, child, output)
            except BaseException:
                environment.end_tree(child, key)
                while output.take(ended=True):
                    pass
                raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(script)
        os.close(log)
    if child.returncode != 0:
        tail = paths.tail(log_path, TAIL_BYTES)
        known = installing.hint(tail, with_wheels=bool(variables.get("DTCTL_WHEELS")))
        raise Refused(
            "setup_failed",
            "%s ended with %s" % (what, _ending(child.returncode)),
            installing.without_retries(tail),
            known or "the whole output is in %s: dtctl logs --setup%s" % (log_path, hint),
        )


class _Output:
    """What a command prints, as its log and the controller receive it: without secrets."""

    def __init__(self, printed: int, log: int, masks: Masks) -> None:
        self._printed = printed
        self._log = log
        self._masks = masks
        self._offset = 0

    def take(self, *, ended: bool) -> bytes:
        """The next piece, which is in the log now; nothing if there is none yet. `ended`: the last line is whole."""
        chunk = os.pread(self._printed, _CHUNK, self._offset)
        # A line that has not ended waits: it may show half a secret.
        size = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if len(chunk) == _CHUNK:
            size = size or self._masks.cut(chunk)
        elif ended:
            size = len(chunk)
        self._offset += size
        shown = self._masks.hide(chunk[:size]) if size else b""
        left = shown
        while left:
            left = left[os.write(self._log, left) :]
        return shown


def _follow(talk: Conversation, child: subprocess.Popen[bytes], output: _Output) -> None:
    ended = False
    while True:
        shown = output.take(ended=ended)
        if shown:
            talk.wire.send({"type": "progress", "phase": "setup"}, shown)
        elif ended:
            return
        else:
            talk.pause(0.05)
            ended = child.poll() is not None


def _ending(returncode: int) -> str:
    from ..records.reasons import signal_name

    if returncode < 0:
        return signal_name(-returncode)
    return "exit code %d" % returncode


_LOGS = "setup-logs"
"""A file of a cluster on its host: the paths, below the root, of the logs of its last start."""

_LOG = r"environments/[A-Za-z0-9-]+\.log|(?:bundles|clusters)/[A-Za-z0-9._/-]+/setup\.log"


def _note_logs(talk: Conversation, spec: Spec, code: Optional[str]) -> None:
    """Records the paths of this start's logs, for `setup_logs`."""
    logs = []
    if spec["environment"] is not None and (key := environments.key_of(spec["environment"])) is not None:
        logs.append("environments/%s.log" % key)
    if spec["setup"] is not None:
        logs.append(os.path.relpath(os.path.join(_place(talk, spec, code), "setup.log"), talk.root))
    place = paths.cluster_directory(talk.root, spec["cluster"], spec["host"])
    if logs or os.path.exists(os.path.join(place, _LOGS)):
        paths.make_directory(place)
        paths.write_text(os.path.join(place, _LOGS), "".join(log + "\n" for log in logs))


def setup_logs(talk: Conversation, request: Request) -> SetupLogsResult:
    """The ends of the logs of the cluster's last start here, whatever its result."""
    place = paths.cluster_directory(talk.root, request["cluster"], request["host"])
    noted = paths.read_text(os.path.join(place, _LOGS)) or ""
    found: List[SetupLog] = []
    for log in (line for line in noted.splitlines()[:MOST_SETUP_LOGS] if re.fullmatch(_LOG, line)):
        path = os.path.join(talk.root, log)
        if ".." not in log.split("/") and os.path.exists(path):
            found.append({"path": path, "text": hide_text(paths.tail(path, MOST_SETUP_LOG))})
    return {"logs": found}

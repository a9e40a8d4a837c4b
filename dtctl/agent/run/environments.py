"""The trainers' Python environments on this host: how each kind is created, its directory, and its variables.

environments/KEY-NONCE/       complete once it has environment.json, which is written last; each creation has its own
environments/KEY-NONCE/files/ the files of the code from which it is created; an installer finds no other one
environments/KEY.lock         shared by the sessions that need it, exclusive while it is created or removed
environments/KEY.log          the output of the last creation
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress

from ..host import files, locks, paths
from ..records.run_state import MadeEnvironment
from . import containers, environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Container, Dict, Iterator, List, Mapping, Optional, Tuple

    from ..records.spec import Environment

_PROBE = (
    "import sys, os; print(sys.implementation.cache_tag, sys.version_info[:2], os.uname().machine, sys.base_prefix)"
)

_FIND = """\
PATH=$PATH:$DTCTL_PATH:$HOME/.local/bin:$HOME/.cargo/bin
for base in "$HOME"/miniforge3 "$HOME"/miniconda3 "$HOME"/mambaforge "$HOME"/anaconda3 /opt/conda /opt/miniforge3 \\
            /opt/miniconda3; do
    PATH=$PATH:$base/bin
done
one_of() {
    for tool; do command -v "$tool" && return; done
    echo "this host has no $*" >&2
    return 1
}
"""

_CONDA = _FIND + 'conda=$(one_of ${CONDA_EXE:+"$CONDA_EXE"} conda mamba micromamba) || exit\n'
_BEFORE, _AFTER = 'env -0 > "$DTCTL_BEFORE"\n', 'env -0 > "$DTCTL_AFTER"\n'
_VIRTUAL = _BEFORE + '. "$DTCTL_PREFIX/bin/activate"\n' + _AFTER
_ACTIVATED = (
    _BEFORE
    + """\
export CONDA_PREFIX CONDA_DEFAULT_ENV=$CONDA_PREFIX PATH=$CONDA_PREFIX/bin:$PATH
for script in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do
    [ ! -f "$script" ] || . "$script"
done
"""
    + _AFTER
)

REQUIREMENTS = (
    """\
"$DTCTL_PYTHON" -m venv "$DTCTL_PREFIX" || {
    rm -rf "$DTCTL_PREFIX"
    echo "trying virtualenv in place of venv"
    "$DTCTL_PYTHON" -m virtualenv "$DTCTL_PREFIX" || exit
}
set -- --requirement "$DTCTL_WHAT"
if [ -n "$DTCTL_WHEELS" ]; then
    set -- --no-index --find-links "$DTCTL_WHEELS" "$@"
fi
"$DTCTL_PREFIX/bin/python" -m pip --disable-pip-version-check --no-input install --progress-bar off "$@" || exit
"""
    + _VIRTUAL
)
UV = (
    _FIND
    + """\
uv=$(one_of uv) || exit
set -- --project "$DTCTL_WHAT" --no-progress ${DTCTL_PYTHON:+--python "$DTCTL_PYTHON"}
if [ -z "$DTCTL_WHEELS" ]; then
    UV_PROJECT_ENVIRONMENT=$DTCTL_PREFIX "$uv" sync "$@" --frozen --no-install-workspace || exit
else
    # `uv sync` fetches from the URLs of the lock, whatever --find-links says.
    "$uv" venv "$@" "$DTCTL_PREFIX" || exit
    "$uv" export "$@" --quiet --frozen --no-emit-workspace --output-file "$DTCTL_PREFIX.txt" || exit
    "$uv" pip install --python "$DTCTL_PREFIX/bin/python" --no-progress --no-index --find-links "$DTCTL_WHEELS" \\
        --requirement "$DTCTL_PREFIX.txt" || exit
fi
"""
    + _VIRTUAL
)
CONDA_FILE = (
    _CONDA
    + """\
case $conda in
    *micromamba) "$conda" create --yes --prefix "$DTCTL_PREFIX" --file "$DTCTL_WHAT" ;;
    *) CONDA_ALWAYS_YES=true "$conda" env create --prefix "$DTCTL_PREFIX" --file "$DTCTL_WHAT" ;;
esac || exit
CONDA_PREFIX=$DTCTL_PREFIX
"""
    + _ACTIVATED
)
CONDA_NAME = _CONDA + 'CONDA_PREFIX=$("$conda" run --name "$DTCTL_WHAT" printenv CONDA_PREFIX) || exit\n' + _ACTIVATED
MODULES = (
    """\
for init in "$MODULESHOME" /usr/share/modules /usr/share/lmod/lmod /usr/local/Modules; do
    command -v module >/dev/null || [ ! -r "$init/init/bash" ] || . "$init/init/bash"
done
command -v module >/dev/null || { echo "this host has no command module" >&2; exit 1; }
"""
    + _BEFORE
    + "set -f; module load $DTCTL_WHAT || exit\n"
    + _AFTER
)

_NOT_TAKEN = r"DTCTL_.*|BASH_FUNC_.*|_|SHLVL|PWD|OLDPWD|PS1|PATH|VIRTUAL_ENV_.*"
_KEY = r"(?:requirements|uv|conda|modules|container)-[0-9a-f]{16}"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*\Z"
_MOST_BYTES = 1 << 20
_PYTHON = "python3"


def is_from_files(wanted: Environment) -> bool:
    """Whether it is created from files of the code. Then only these are there, so that all that counts is in its key.

    A container's image is a file, too; the engine reads no other.
    """
    return wanted["kind"] in ("requirements", "uv") or (wanted["kind"] == "conda" and bool(wanted["files"]))


def script(wanted: Environment) -> Tuple[str, str]:
    """The shell that creates it, and its script. Text of the user is only in variables."""
    if wanted["kind"] == "requirements":
        return "/bin/sh", REQUIREMENTS
    if wanted["kind"] == "uv":
        return "/bin/sh", UV
    if wanted["kind"] == "container":
        return "bash", _FIND + containers.SCRIPT
    if wanted["kind"] == "conda":
        return "bash", CONDA_FILE if wanted["files"] else CONDA_NAME
    return "bash", MODULES


def variables(wanted: Environment, prefix: str, wheels: str) -> Dict[str, str]:
    """The variables of its script. `wheels`: their directory, or empty."""
    python = os.path.expanduser(wanted["python"] or (_PYTHON if wanted["kind"] == "requirements" else ""))
    return {
        "DTCTL_PREFIX": prefix,
        "DTCTL_BEFORE": prefix + ".before",
        "DTCTL_AFTER": prefix + ".after",
        "DTCTL_WHAT": os.path.expanduser(wanted["what"]) if wanted["kind"] == "container" else wanted["what"],
        "DTCTL_PYTHON": python,
        "DTCTL_WHEELS": wheels,
        "DTCTL_ENGINES": containers.programs(wanted["engine"]),
        "DTCTL_PATH": environment.base()["PATH"],  # login shells begin with another one
    }


def key_of(wanted: Environment) -> Optional[str]:
    """Its key on this host, by its content and the interpreter that creates it; None: that interpreter is missing."""
    import hashlib

    identity = _identity(wanted["python"] or _PYTHON) if wanted["kind"] == "requirements" else os.uname().machine
    if identity is None:
        return None
    said: List[object] = [*map(wanted.get, ("kind", "what", "python", "files", "env")), identity]
    said += [wanted["engine"], wanted["options"]] if wanted["kind"] == "container" else []
    said += [wanted["wheels"]] if wanted["wheels"] else []
    return "%s-%s" % (wanted["kind"], hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16])


def _identity(python: str) -> Optional[str]:
    """Identifies an interpreter; a newer patch release is compatible with the environments of an older one."""
    return printed(python, _PROBE)


def printed(python: str, program: str) -> Optional[str]:
    """The output of a Python program by an interpreter of this host; None: the interpreter is missing, or fails."""
    import shutil

    path = shutil.which(os.path.expanduser(python), path=environment.base()["PATH"])
    return environment.output_of([path, "-IS", "-c", program]) if path is not None else None


def store(root: str) -> str:
    return os.path.join(root, "environments")


def find(root: str, key: str) -> Optional[Tuple[str, MadeEnvironment]]:
    """The name of its directory, and its record."""
    for name in makings(root, key):
        made = read(root, name)
        if made is not None:
            return name, made
    return None


def makings(root: str, key: str) -> List[str]:
    """The names of its directories, complete or not."""
    return [name for name in paths.entries(store(root)) if name.rpartition("-")[0] == key]


def unneeded(root: str, used: Callable[[], Container[str]]) -> Iterator[str]:
    """Unused directories that no process creates, incomplete ones too, and then their logs and locks.

    Each is locked until the next one is requested.
    """
    for key in sorted({name[: found.end()] for name in paths.entries(store(root)) if (found := re.match(_KEY, name))}):
        base = os.path.join(store(root), key)
        with suppress(FileNotFoundError), locks.alone(base + ".lock") as alone:
            needed = used() if alone else ()  # a run that has begun since has released the lock
            names = makings(root, key) if alone else []
            yield from (os.path.join(store(root), name) for name in names if name not in needed)
            if alone and not any(name in needed for name in names):
                yield from (base + end for end in (".log", ".lock") if os.path.exists(base + end))


def abandoned(root: str, key: str) -> Iterator[str]:
    """Directories that a killed creation has left. Each is locked until the next one is requested."""
    with suppress(FileNotFoundError), locks.alone(os.path.join(store(root), key + ".lock")) as alone:
        if alone:
            yield from (os.path.join(store(root), name) for name in makings(root, key) if read(root, name) is None)


def forget_container(directory: str) -> None:
    """Removes containers that a crash has left, and its image if it was pulled for it."""
    with suppress(OSError, paths.Damaged):
        made = paths.read_record(os.path.join(directory, "environment.json"), MadeEnvironment, _MOST_BYTES)
        box = made["container"] if made is not None else None
        for argv in containers.forget(box, os.path.basename(directory)) if box is not None else ():
            environment.output_of(argv)


def read(root: str, name: str) -> Optional[MadeEnvironment]:
    """The record of an environment; None: it is incomplete, or its interpreter or image is missing."""
    try:
        made = paths.read_record(os.path.join(store(root), name, "environment.json"), MadeEnvironment, _MOST_BYTES)
    except (OSError, paths.Damaged):
        return None
    return made if made is not None and _is_there(made) else None


def _is_there(made: MadeEnvironment) -> bool:
    box = made["container"]
    if box is None or box["engine"] == "apptainer":
        return os.access(made["python"] if box is None else box["image"], os.X_OK if box is None else os.R_OK)
    return environment.output_of([box["program"], "image", "inspect", "--format", "{{.Id}}", box["image"]]) is not None


def gathered(wanted: Environment, prefix: str) -> Tuple[Optional[str], MadeEnvironment]:
    """The problem that the script has reported, if any, and the environment's record."""
    import shutil

    if wanted["kind"] == "container":
        box = containers.found(_read_variables(prefix + ".after"))
        return None, {"python": "", "path": [], "variables": {}, "container": box}
    before, after = _read_variables(prefix + ".before"), _read_variables(prefix + ".after")
    own = {
        name: value
        for name, value in after.items()
        if before.get(name) != value and re.match(_NAME, name) and not re.fullmatch(_NOT_TAKEN, name)
    }
    known = before.get("PATH", "").split(":")
    first = [one for one in after.get("PATH", "").split(":") if os.path.isabs(one) and one not in known]
    name = (wanted["python"] or _PYTHON) if wanted["kind"] == "modules" else "python"
    usual = environment.base()["PATH"].split(":")
    python = shutil.which(os.path.expanduser(name), path=":".join([*first, *usual]))
    problem = None if python else "it has no %s" % name
    return problem, {"python": python or "", "path": first[:100], "variables": own, "container": None}


def add_python(found: MadeEnvironment, path: str) -> Optional[str]:
    """Adds the interpreter that a container's probe has recorded; returns the problem, if any."""
    found["python"] = files.read(path, _MOST_BYTES).decode("utf-8", "replace").strip()
    return None if os.path.isabs(found["python"]) else "its image has no Python in PATH"


def _read_variables(path: str) -> Dict[str, str]:
    lines = files.read(path, _MOST_BYTES).decode("utf-8", "surrogateescape").split("\0")
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


def applied(inherited: Mapping[str, str], made: MadeEnvironment) -> Dict[str, str]:
    """The variables inside the environment; those of a container's image are not included."""
    first: List[str] = made["path"]
    return {
        **inherited,
        **made["variables"],
        "PATH": ":".join([*first, *(one for one in inherited["PATH"].split(":") if one not in first)]),
        "DTCTL_PYTHON": made["python"],
    }

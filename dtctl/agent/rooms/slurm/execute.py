"""login_command: one command of dtctl's on a login node, in the project of a machine that has no Slurm."""

from __future__ import annotations

import os
import shutil

from ...bundles import store
from ...bundles.tree import remove_tree
from ...host.errors import Refused, from_os_error
from ...host.files import private
from ...host.paths import make_directory
from ...host.secrets import Masks
from ...run import environment
from ..execute.serving import relay
from .records import CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Dict

    from ...conversation import Conversation
    from .records import LoginCommandRequest, LoginCommandResult

PROJECTS = os.path.join("~", ".local", "share", "dtctl", "projects")
CLUSTER = "cluster.yaml"
HERE = "DTCTL_AT_LOGIN"
"""Its presence says to dtctl that it is typed on the login node (dtctl/cli/forwarding.py)."""


def login_command(talk: Conversation, request: LoginCommandRequest) -> LoginCommandResult:
    place = os.path.join(os.path.expanduser(PROJECTS), request["project"])
    try:
        make_directory(place)
        if request["bundle"] is not None:
            _bring_code(store.ensure(talk.root, request["bundle"], talk.wire), place)
        if request["content"] is not None:
            _write(os.path.join(place, CLUSTER), request["content"])
    except OSError as error:
        raise from_os_error(error, "write the project") from error
    if not os.path.exists(os.path.join(place, CLUSTER)):
        raise Refused("no_run", "nothing was started from this cluster file", hint="dtctl up    submits it")
    key = os.urandom(16).hex()
    child = _spawn(request, place, {**environment.base(), **request["variables"], HERE: "1", "DTCTL_KEY": key})
    try:
        code = relay(talk, child, Masks(()))
    except BaseException:
        environment.end_tree(child, key)
        raise
    if code == 0 and request["removes"]:
        remove_tree(place)
    return {"exit_code": code, "signal": None} if code >= 0 else {"exit_code": None, "signal": -code}


def _bring_code(tree: str, place: str) -> None:
    """Replaces the project's code by a copy of the bundle's tree."""
    new, code, old = (os.path.join(place, name) for name in (CODE + ".new", CODE, CODE + ".old"))
    for left in (new, old):  # by a session that was killed
        if os.path.lexists(left):
            remove_tree(left)
    shutil.copytree(tree, new, symlinks=True)
    if os.path.lexists(code):
        os.rename(code, old)
    os.rename(new, code)
    if os.path.lexists(old):
        remove_tree(old)


def _write(path: str, content: str) -> None:
    with open(path + ".new", "wb", opener=private) as file:
        file.write(environment.encode(content))
    os.replace(path + ".new", path)


def _spawn(request: LoginCommandRequest, place: str, variables: Dict[str, str]) -> subprocess.Popen[bytes]:
    import subprocess

    program = os.path.expanduser(request["program"])
    try:
        argv = [program, *request["words"]]
        return environment.spawn(argv, variables, place, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise Refused(
            "command_not_found",
            "%s: command not found" % program,
            "PATH is %s" % variables["PATH"],
            "install dtctl on the login node, and name its program in slurm.dtctl: ~/venv/bin/dtctl",
        ) from None
    except OSError as error:
        raise from_os_error(error, "run %s" % program) from error

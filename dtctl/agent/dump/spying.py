"""py-spy, where it is installed beside a trainer: it reads the stacks from outside, and stops nothing."""

from __future__ import annotations

import os
import time

from ..records import json_text
from .trimming import frame, line

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any, Dict, List, Optional, Tuple

    from ..host.secrets import Masks
    from ..records.dump import Stack

LIMIT_S = 5.0
_MOST_BYTES = 8 << 20
_LOOK_S = 0.02


def find(argv: List[str], variables: Dict[str, str]) -> Optional[str]:
    """Beside the trainer's interpreter, or where the trainer would find it."""
    places = [os.path.dirname(word) for word in argv[:1] if os.path.isabs(word)]
    places += [place for place in variables.get("PATH", "").split(":") if os.path.isabs(place)]
    for place in places:
        program = os.path.join(place, "py-spy")
        if os.access(program, os.X_OK):
            return program
    return None


def command(program: str, pid: int, *options: str) -> List[str]:
    """`--nonblocking`: the process is not stopped while it is read, so nothing is left stopped whatever comes."""
    return [program, "dump", "--nonblocking", *options, "--pid", str(pid)]


def ask(program: str, pid: int, masks: Masks) -> Tuple[List[Stack], str]:
    """The stacks of one process; without any, what py-spy has said."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            spy = subprocess.Popen(
                command(program, pid, "--json"), stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd="/"
            )
        except OSError as error:
            return [], "%s: %s" % (program, error.strerror)
        if not _ends(spy):
            return [], "%s has not answered within %g s" % (program, LIMIT_S)
        said, wrong = (masks.hide(_read(file)).decode("utf-8", "replace") for file in (out, err))
    if spy.returncode == 0:
        try:
            return _stacks(json_text.parse(said), pid), ""
        except (ValueError, TypeError, KeyError, AttributeError):
            wrong = "%s says what is no list of stacks" % program
    return [], line(wrong.strip().split("\n")[0]) or "%s ended with exit code %d" % (program, spy.returncode)


def _ends(spy: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + LIMIT_S
    while spy.poll() is None and time.monotonic() < until:
        time.sleep(_LOOK_S)
    if spy.poll() is None:
        spy.kill()
        spy.wait()
        return False
    return True


def _read(file: Any) -> bytes:
    file.seek(0)
    data: bytes = file.read(_MOST_BYTES)
    return data


def _stacks(told: Any, pid: int) -> List[Stack]:
    """Raises what a text of another form makes of it."""
    found = [_stack(one) for one in told if one.get("pid", pid) == pid]
    if not found:
        raise ValueError
    return found


def _stack(told: Dict[str, Any]) -> Stack:
    every = told["frames"]
    tid = told.get("os_thread_id")
    return {
        "thread": "0x%x" % int(told["thread_id"]),
        "name": line(str(told.get("thread_name") or "")),
        "tid": int(tid) if tid else None,
        "main": told.get("thread_name") == "MainThread",
        "active": bool(told.get("active")),
        "gil": bool(told.get("owns_gil")),
        "frames": [frame(one["name"], one["filename"], one.get("line")) for one in every],
        "omitted": 0,
    }

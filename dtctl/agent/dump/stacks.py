"""The stacks of a trainer: by its faulthandler, which writes them on a signal and continues, or by py-spy.

The handler was installed by site/sitecustomize.py, and may no longer work: a trainer can set another one, block the
signal or close the file. A process gets the signal only if it was just observed to handle it: otherwise the signal
would end it. At the end: the handler of `dump` (docs/agent.md, "dump").
"""

from __future__ import annotations

import os
import re

from ..records.vitals import LONGEST_NAME, LONGEST_PATH, Frame, Stack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional


def frame(function: str, file: str, number: Optional[int]) -> Frame:
    known = number if type(number) is int and number >= 0 else None
    return {"function": str(function)[:LONGEST_NAME], "file": str(file)[-LONGEST_PATH:], "line": known}


_HEAD = r"(?:Current thread|Thread) (0x[0-9a-f]{1,16})(?: \[([^\]\n]*)\])? \(most recent call first\):\Z"
_FRAME = r'  File "(.*)", line (\d+|\?\?\?) in (.*)\Z'


def read(text: str) -> List[Stack]:
    """The stacks in faulthandler's output (cpython/Python/traceback.c, _Py_DumpTracebackThreads)."""
    stacks: List[Stack] = []
    for each in text.split("\n"):
        head, one = re.match(_HEAD, each), re.match(_FRAME, each)
        if head is not None:
            stacks.append(_begun(head.group(1), head.group(2) or ""))
        elif stacks and one is not None:
            number = int(one.group(2)) if one.group(2).isdigit() else None
            stacks[-1]["frames"].append(frame(one.group(3), one.group(1), number))
        elif stacks and each == "  ...":
            stacks[-1]["omitted"] = 1
    for stack in stacks:
        frames = stack["frames"]  # of which the outermost is a program's; those of other threads begin in threading.py
        stack["main"] = bool(frames) and frames[-1]["function"] in ("<module>", "_run_module_as_main")
    return stacks


def _begun(thread: str, name: str) -> Stack:
    return {
        "thread": "0x%x" % int(thread, 16),
        "name": name[:LONGEST_NAME],
        "tid": None,
        "main": False,
        "active": None,
        "gil": None,
        "frames": [],
        "omitted": 0,
    }


# py-spy, if it is installed in a trainer's environment: it reads the stacks from outside and stops nothing


def find_py_spy(argv: List[str], variables: Dict[str, str]) -> Optional[str]:
    """The path of py-spy, next to the trainer's interpreter or in the trainer's PATH."""
    directories = [os.path.dirname(word) for word in argv[:1] if os.path.isabs(word)]
    directories += [directory for directory in variables.get("PATH", "").split(":") if os.path.isabs(directory)]
    for directory in directories:
        program = os.path.join(directory, "py-spy")
        if os.access(program, os.X_OK):
            return program
    return None


def py_spy_command(program: str, pid: int, *options: str) -> List[str]:
    """`--nonblocking`: the process is not stopped while it is read, so nothing is left stopped in any case."""
    return [program, "dump", "--nonblocking", *options, "--pid", str(pid)]

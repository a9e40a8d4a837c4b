"""Stands in for `python3` on a host whose wall clock is wrong: seconds in ~/.clock are added to what time.time() says.

The machine has only one clock, and libfaketime breaks the sleep of newer Pythons. The monotonic clock and the times of
files stay as they are. Only the words that are used there are understood: -ISc CODE and -m MODULE.
"""

import runpy
import sys
import time
from contextlib import suppress
from pathlib import Path

CLOCK = Path.home() / ".clock"
right = time.time
wrong_by_s = 0.0


def wrong() -> float:
    global wrong_by_s
    with suppress(ValueError):  # just being written
        wrong_by_s = float(CLOCK.read_text())
    return right() + wrong_by_s


time.time = wrong
mode, what, *words = sys.argv[1:]
if mode == "-m":
    sys.argv = [what, *words]
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_module(what, run_name="__main__", alter_sys=True)
else:
    sys.argv = ["-c", *words]
    exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})

"""Where a trainer hung, by what was asked of it before it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.agent.run.policy import Verdict
from dtctl.agent.supervise.autopsy import Autopsy

FAULTHANDLER = """\
step 4
Fatal Python error: Aborted

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 622 in wait

Current thread 0x00007f02 (most recent call first):
  File "/home/train/x/train.py", line 9 in wait_for_the_ps
  File "/home/train/x/train.py", line 7 in train

Extension modules: numpy.core._multiarray_umath (total: 1)
"""
OTHER_THREADS = FAULTHANDLER.replace("Current thread", "Thread")
PY_SPY = """\
process 7: Name:\tpython3
  thread 7 (python3) waits in futex_wait
Process 7: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 8 (idle): "QueueRunner"
    wait (threading.py:324)
Thread 7 (idle): "MainThread"
    recv (multihost.py:41)
    train (train.py:7)
"""
KERNEL = "process 7: Name:\tsh\n  thread 7 (sh) waits in do_wait\n"


@pytest.mark.parametrize(
    ("stack", "log", "frame"),
    [
        (PY_SPY, FAULTHANDLER, "recv (multihost.py:41)"),
        (KERNEL, FAULTHANDLER, "wait_for_the_ps (train.py:9)"),
        ("", OTHER_THREADS, "wait (threading.py:324)"),
        (KERNEL, "step 4\n", "do_wait (the kernel)"),
        (KERNEL.replace("do_wait", "?"), "step 4\n", None),
        ("", "", None),
    ],
    ids=["py-spy", "faulthandler", "no current thread", "kernel", "hidden", "nothing"],
)
def test_the_innermost_frame_is_told(tmp_path: Path, stack: str, log: str, frame: str | None) -> None:
    (tmp_path / "stack").write_text(stack)
    wanted = [] if frame is None else [fact("hung_in", text=frame)]
    assert Autopsy(Verdict(True), log).hung_in(str(tmp_path)) == wanted


def test_without_a_stack_nothing_is_told(tmp_path: Path) -> None:
    assert Autopsy(Verdict(True), "step 4").hung_in(str(tmp_path)) == []

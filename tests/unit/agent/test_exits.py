"""Which exits may be tried again."""

from __future__ import annotations

import signal

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.agent.records.run_state import Ending
from dtctl.agent.run.cause import cause
from dtctl.agent.run.policy import Verdict, exit_record, unknown_exit, verdict
from tests.unit.agent.supervise.supervised import code, killed, recovery

USUAL = recovery()
MISSING = "ModuleNotFoundError: No module named 'tensorfow'"
TRACEBACK = f"""\
Traceback (most recent call last):
  File "train.py", line 1, in <module>
    import tensorfow
{MISSING}
"""
OUT_OF_RANGE = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    session.run(step)
tensorflow.python.framework.errors_impl.OutOfRangeError: End of sequence
"""


@pytest.mark.parametrize("ending", [code(2), code(126), code(127, "cannot run x: No such file or directory")])
def test_what_would_only_be_repeated_may_not(ending: Ending) -> None:
    assert not verdict(ending, "", USUAL).retry


def test_an_end_that_nobody_saw_may_be_tried_again() -> None:
    assert verdict(unknown_exit(None, fact("keeper_killed")), "", USUAL).retry


def test_the_users_lists_come_first_and_count_signals_from_128() -> None:
    said = recovery(retry=[2, 127], permanent=[1, 139, 42])
    assert verdict(code(2), "", said).retry
    assert verdict(code(127, "cannot run it"), "", said).retry
    assert not verdict(code(1), "", said).retry
    assert not verdict(killed(signal.SIGSEGV), "", said).retry
    assert not verdict(code(139), "", said).retry
    assert not verdict(code(42), "", said).retry
    assert verdict(killed(signal.SIGKILL), "", said).retry


def test_code_that_cannot_be_imported_is_not_tried_again() -> None:
    judged = verdict(code(1), cause(TRACEBACK), USUAL)
    assert (judged.retry, judged.cause) == (False, MISSING)
    assert verdict(code(3), cause(TRACEBACK), USUAL).retry  # this program chooses its exit codes itself


@pytest.mark.parametrize(
    "line",
    ["SyntaxError: invalid syntax", "ImportError: cannot import name 'x' from 'y'", "TabError: inconsistent use"],
)
def test_so_is_code_that_cannot_be_read(line: str) -> None:
    assert not verdict(code(1), cause(f"training\n  File 'x.py', line 1\n    if:\n      ^\n{line}\n"), USUAL).retry


@pytest.mark.parametrize(
    "tail",
    [
        "",
        OUT_OF_RANGE,
        TRACEBACK + OUT_OF_RANGE,  # the import failed, but that is not what it has died of
        TRACEBACK + "".join(f"step {step}\n" for step in range(13)),
        f"  {MISSING}\n",
        f"W going on without: {MISSING}\n",
    ],
)
def test_an_import_error_that_was_only_reported_does_not_count(tail: str) -> None:
    assert verdict(code(1), cause(tail), USUAL).retry


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_who_is_killed_by_somebody_did_not_die_of_what_it_wrote(number: int) -> None:
    assert verdict(killed(number), cause(OUT_OF_RANGE), USUAL).cause == ""


def test_who_aborts_did() -> None:
    log = "F0000 00:00:17.1  99 tensor.cc:852] Check failed: x\n"
    assert verdict(killed(signal.SIGABRT), cause(log), USUAL).cause == "Check failed: x (tensor.cc:852)"


def test_state_json_is_told_the_exit_whether_it_may_be_tried_again_and_the_end_of_the_log() -> None:
    ending = code(127, "cannot run it")
    exit_ = exit_record(ending, Verdict(retry=False), "last words")
    assert exit_ == {
        "why": [],
        "code": 127,
        "signal": None,
        "error": "cannot run it",
        "ended": 1.0,
        "retry": False,
        "left_behind": [],
        "killed_after_s": None,
        "tail": "last words",
    }
    assert exit_record(killed(9), Verdict(retry=True), "")["signal"] == 9


def test_a_code_that_a_user_lists_may_be_tried_again_however_often_it_ends_alike() -> None:
    bad = cause(OUT_OF_RANGE)
    judged = verdict(code(42), bad, recovery(retry=[42]))
    assert (judged.always, judged.retry, judged.cause) == (True, True, bad)
    assert not verdict(code(42), bad, recovery(retry=[])).always
    assert verdict(code(1), cause(OUT_OF_RANGE.replace("OutOfRange", "Unavailable")), USUAL).always

"""What becomes of a task whose process has ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, because, fact, read, said, sentence
from dtctl.agent.records.run_state import Ending, Entry, Exit, Intent, Past, RunEnd
from dtctl.agent.records.spec import RecoverySpec
from dtctl.agent.run.cause import OTHERS, cause
from dtctl.agent.run.policy import (
    Decision,
    Verdict,
    after_exit,
    back_off,
    exit_record,
    fingerprint,
    is_early,
    is_shortage,
    same_exits_in_a_row,
    unknown_exit,
    verdict,
    while_idle,
    why_ended,
)
from tests.unit.agent.supervise.supervised import code, intent, killed, recovery

RUN = intent("run")
FINISH = intent("finish")
STOP = intent("stop", why=said("enough"))
RESTART = intent("run", generation=2)
GANG = intent("hold", generation=2, why=said("ps:0 was lost"), restarts=1)


def decide(
    ending: Ending,
    wanted: Intent = RUN,
    *,
    asked: bool = False,
    restarts: int = 0,
    lived_s: float = 5.0,
    jitter: float = 0.0,
    tail: str = "",
    own: bool = True,
    stalled: Fact | None = None,
    max_restarts: int = 3,
    repeat: int = 0,
    history: Sequence[Past] = (),
) -> Decision:
    state = "running" if stalled is None else "stalled"
    entry = made(Entry, state=state, **because([stalled] if stalled else []), asked=asked, restarts=restarts)
    entry["history"] = list(history)
    policy = recovery(max_restarts=max_restarts, repeat=repeat)
    return after_exit(ending, verdict(ending, cause(tail), policy), entry, wanted, lived_s, policy, own, jitter)


UNSTARTED = unknown_exit(None, "unknown", fact("never_started"))


@pytest.mark.parametrize(
    ("ending", "wanted", "asked", "state", "reason"),
    [
        (code(0), RUN, False, "succeeded", "exit code 0"),
        (code(0), STOP, False, "succeeded", "exit code 0"),  # it was done before anybody stopped it
        (code(0), STOP, True, "stopped", "enough"),  # an exit code of 0 in answer to SIGTERM is no success
        (killed(15), STOP, True, "stopped", "enough"),
        (killed(9), STOP, False, "stopped", "enough"),
        (code(1), STOP, False, "stopped", "enough"),
        (killed(15), RESTART, True, "starting", "restart"),
        (code(0), RESTART, True, "starting", "restart"),
        (killed(9), GANG, True, "pending", "ps:0 was lost"),
        (code(1), GANG, False, "pending", "ps:0 was lost"),  # of its own, while the others were being ended
        (code(1), FINISH, False, "failed", "exit code 1"),
        (code(0), FINISH, False, "succeeded", "exit code 0"),
        (code(1), intent("finish", generation=2), False, "failed", "exit code 1"),
        (code(2), RUN, False, "failed", "exit code 2, which is not tried again"),
        (code(1), RUN, False, "backoff", "exit code 1"),
        (killed(15), RUN, False, "backoff", "killed by SIGTERM"),
        (code(127), RUN, False, "backoff", "exit code 127"),  # a shell's own: the program that we ran did run
        (code(127, "cannot run x: No such file"), RUN, False, "failed", "cannot run x: No such file"),
        (
            unknown_exit(None, "unknown", fact("never_started")),
            RUN,
            False,
            "backoff",
            "its keeper was killed before the start",
        ),
    ],
)
def test_the_next_state(ending: Ending, wanted: Intent, asked: bool, state: str, reason: str) -> None:
    decision = decide(ending, wanted, asked=asked)
    assert (decision.state, sentence(decision.why)) == (state, reason)


FAILED = {"state": "backoff", "why": said("exit code 3")}
LOST = made(Past, attempt=1, started=0.0, ended=1.0, asked=False, code=3, cause="no data")
HELD = {"state": "pending", "why": said("worker:1 was lost"), "history": [LOST]}
"""It failed by itself, and its restart is still to come."""
OWN_END = {"state": "backoff", **because([fact("exited", code=3), fact("cause", text="no data")])}
"""As its agent explains the end."""
FAILED_START = made(RunEnd, outcome="Failed", cause="ps:0", start="failed")
GIVEN_UP = intent("stop", by="ada@laptop", ends_as=FAILED_START, **because([fact("cannot_bind", task="ps:0")]))
PEERS_UNREADY = {**FAILED, "history": [made(Past, attempt=1, started=0.0, ended=1.0, asked=False, early=True)]}
EARLY = intent("run", early=True)


@pytest.mark.parametrize(
    ("entry", "wanted", "is_due", "outcome"),
    [
        ({}, intent("hold"), False, None),
        ({}, intent("run", why=said("up")), False, ("starting", "up", 1)),
        ({}, STOP, False, ("stopped", "enough", 1)),
        ({}, FINISH, False, ("stopped", "stopped", 1)),
        ({}, intent("finish", why=said("over")), False, ("stopped", "over", 1)),
        ({}, GANG, False, ("pending", "ps:0 was lost", 1)),
        (FAILED, RUN, False, None),
        (FAILED, intent("run", why=said("up")), True, ("starting", "", 1)),
        (FAILED, intent("hold"), True, None),
        (FAILED, GANG, False, ("pending", "ps:0 was lost", 1)),
        (FAILED, intent("run", generation=2, restarts=3), False, ("starting", "restart", 3)),
        (FAILED, FINISH, False, ("failed", "exit code 3", 1)),  # who has failed when the run ends was not stopped
        (FAILED, intent("stop", by="coordinator"), False, ("failed", "exit code 3", 1)),
        (FAILED, intent("stop", by="ada@laptop"), False, ("stopped", "stopped", 1)),
        (HELD, GIVEN_UP, False, ("failed", "exit code 3 (no data)", 1)),
        ({**HELD, **OWN_END}, GIVEN_UP, False, ("failed", "exit code 3 (no data)", 1)),
        (
            {**HELD, **FAILED, **because([fact("exited", code=3), fact("shortage")])},
            GIVEN_UP,
            False,
            ("failed", "exit code 3, a shortage on its host", 1),
        ),
        ({**HELD, "state": "pending"}, intent("stop", by="ada@laptop"), False, ("stopped", "stopped", 1)),
        (PEERS_UNREADY, GIVEN_UP, False, ("stopped", "ps:0 could not bind its port", 1)),
        ({}, GIVEN_UP, False, ("stopped", "ps:0 could not bind its port", 1)),
        (PEERS_UNREADY, EARLY, True, None),
        (PEERS_UNREADY, RUN, False, ("starting", "", 1)),
        (PEERS_UNREADY, FINISH, False, ("stopped", "stopped", 1)),
        ({"state": "succeeded"}, STOP, True, None),
        ({"state": "failed"}, RUN, True, None),
        ({"state": "succeeded"}, GANG, False, ("pending", "ps:0 was lost", 1)),
        ({"state": "failed"}, RESTART, False, ("starting", "restart", 0)),
    ],
)
def test_a_task_of_which_nothing_runs_follows_its_intent(
    entry: dict[str, Any], wanted: Intent, is_due: bool, outcome: tuple[str, str, int] | None
) -> None:
    given = made(Entry, **{"restarts": 1, **entry})
    decided = while_idle(given, wanted, may_start=True, is_due=is_due)
    assert (decided and (decided.state, sentence(decided.why), decided.restarts)) == outcome
    held_back = while_idle(given, wanted, may_start=False, is_due=is_due)
    assert (held_back is None) == (decided is None or wanted["want"] == "run"), "until the run is known to be this one"


@pytest.mark.parametrize(
    ("ending", "entry", "kind", "early", "lately", "expected"),
    [
        (code(1), {}, "", True, False, True),
        (code(1), {}, "", False, True, False),
        (code(1), {}, OTHERS, False, True, True),
        (code(1), {}, OTHERS, False, False, False),
        (code(0), {}, OTHERS, True, True, False),
        (code(1), {"asked": True}, OTHERS, True, True, False),
        (code(1), {"step": 0}, OTHERS, True, True, False),
    ],
)
def test_end_is_early_before_the_peers_are_ready_or_shortly_after_because_of_them(
    ending: Ending, entry: dict[str, Any], kind: str, early: bool, lately: bool, expected: bool
) -> None:
    judged = Verdict(True)
    judged.kind = kind
    assert is_early(ending, judged, made(Entry, **entry), early=early, lately=lately) is expected


def test_a_long_life_gives_the_budget_and_the_short_delay_back() -> None:
    decision = decide(code(1), restarts=3, lived_s=600)
    assert (decision.state, decision.restarts, decision.delay_s) == ("backoff", 1, 0.0)


def test_first_restart_is_immediate_then_the_delay_doubles_to_its_limit_with_jitter() -> None:
    assert [back_off(count, recovery(), 0) for count in (1, 2, 3, 4, 8, 10_000)] == [0, 1, 2, 4, 60, 60]
    assert back_off(4, recovery(), 1) == pytest.approx(4.4)


def past(cause: str, step: int | None = None, *, number: int = 1, asked: bool = False) -> Past:
    return made(Past, attempt=1, started=0.0, ended=1.0, asked=asked, code=number, cause=cause, step=step)


BAD, OTHER = "ValueError: bad", "ValueError: worse"


@pytest.mark.parametrize(
    ("history", "alike"),
    [
        ([], 0),
        ([past("")], 0),  # nothing is known of it
        ([past(BAD)], 1),
        ([past(BAD), past(BAD), past(BAD)], 3),
        ([past(BAD), past(OTHER), past(BAD)], 1),
        ([past(BAD), past(BAD, number=3), past(BAD)], 1),
        ([past(BAD), past(BAD, asked=True), past("", asked=True), past(BAD)], 2),  # those were dtctl's ends
        ([past("Error: at 0x7f10, pid 12"), past("Error: at 0x7f99, pid 3456")], 2),
        ([past(BAD, 100), past(BAD, 100), past(BAD, 100)], 3),
        ([past(BAD, 100), past(BAD, 90), past(BAD, 100)], 3),  # it goes back to a checkpoint, and gets no further
        ([past(BAD, 100), past(BAD, 200), past(BAD, 300)], 1),
        ([past(BAD, 100), past(BAD, 300), past(BAD, 300)], 2),
        ([past(BAD), past(BAD, 100), past(BAD, 100)], 2),
        ([past(BAD), past(BAD, 0)], 1),  # the first step of all is one
        ([past(BAD, 100), past(BAD), past(BAD)], 3),
    ],
)
def test_ends_alike_are_counted_until_one_comes_further(history: list[Past], alike: int) -> None:
    assert same_exits_in_a_row(history) == alike


def log(exception: str) -> str:
    return f"Traceback (most recent call last):\n  File 'x.py', line 1\n{exception}\n"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("OSError: /out/graph.tmpc7277a74fc434733b9b6; full", "OSError: /out/graph.tmpe3438255a2; full", True),
        ("NotFoundError: /tmp/tmpab_x9k2q/part", "NotFoundError: /tmp/tmpqqq0_z1x/part", True),
        ("died at 0x7f12ab in pid 71", "died at 0x7e99 in pid 1444", True),
        ("run 5f3c9a1be2d4 was cut", "run 00aa11bb22cc was cut", True),
        ("No space left on /out/graph.tmpc7277a74f", "Permission denied: /out/graph.tmpc7277a74f", False),
    ],
)
def test_numbers_and_names_of_temporary_files_make_no_other_cause(one: str, other: str, same: bool) -> None:
    assert (fingerprint(one) == fingerprint(other)) is same
    assert fingerprint("defaced") == "defaced"


def test_repeated_failure_is_not_restarted() -> None:
    alike = [past(BAD)] * 3
    assert decide(code(1), tail=log(BAD), repeat=4, history=alike).state == "backoff"
    assert decide(code(1), tail=log(BAD), repeat=0, history=alike).state == "backoff"
    assert decide(code(1), tail=log(BAD), repeat=1, history=alike[:1]).state == "failed"
    for own in (True, False):
        failed = decide(code(1), tail=log(BAD), repeat=3, history=alike, own=own)
        assert failed.state == "failed"
        assert failed.why == [fact("exited", code=1), fact("cause", text=BAD), fact("same_way", count=3)]


STOPPED_EARLY = past("", number=143, asked=True)


@pytest.mark.parametrize(
    ("history", "asked", "state"),
    [
        ([past(BAD), past(BAD)], False, "failed"),
        ([past(BAD), STOPPED_EARLY], True, "failed"),
        ([past(BAD), past("", 7, asked=True)], True, "stopped"),
        ([past("", 7, asked=True), STOPPED_EARLY], True, "stopped"),
        ([STOPPED_EARLY], True, "stopped"),
    ],
)
def test_a_task_of_a_failed_start_has_failed_while_it_was_tried_again(
    history: list[Past], asked: bool, state: str
) -> None:
    ended = decide(code(143), GIVEN_UP, asked=asked, history=history)
    assert ended.state == state
    assert state == "stopped" or ended.why == [fact("exited", code=1), fact("cause", text=BAD)]


@pytest.mark.parametrize("state", ["pending", "backoff"])
def test_idle_task_of_a_failed_start_names_the_attempt_before_one_that_was_stopped(state: str) -> None:
    lost, stopped = past(BAD), past("", number=143, asked=True)
    entry = made(Entry, state=state, attempt=2, history=[{**lost, "attempt": 1}, {**stopped, "attempt": 2}])
    decision = while_idle(entry, GIVEN_UP, may_start=True, is_due=False)
    assert decision is not None
    assert (decision.state, decision.failed_attempt) == ("failed", 1)
    entry["history"].pop()
    decision = while_idle(entry, GIVEN_UP, may_start=True, is_due=False)
    assert decision is not None
    assert (decision.state, decision.failed_attempt) == ("failed", 0), "it is the last one"


FULL = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("number", [1, 2, 134])
def test_a_shortage_of_the_machine_is_no_repetition(number: int, own: bool) -> None:
    decision = decide(code(number), tail=log(FULL), repeat=3, history=[past(FULL, number=number)] * 5, own=own)
    assert decision.state == "backoff"


def test_a_shortage_is_waited_for_longer() -> None:
    plain = recovery(backoff_min_s=0.1, backoff_max_s=1.0)
    delays = [back_off(count, plain, 0, shortage=True) for count in (1, 2, 3, 4, 5, 6, 100)]
    assert delays == [5, 10, 20, 40, 60, 60, 60]
    assert back_off(1, plain, 0, shortage=is_shortage(BlockingIOError(11, os.strerror(11)))) == 5
    assert back_off(1, plain, 0, shortage=is_shortage(FileNotFoundError(2, os.strerror(2)))) == 0
    assert decide(code(1), tail=log("ValueError: No space left on device")).delay_s == 0
    assert back_off(9, recovery(backoff_max_s=600.0), 0, shortage=True) == 128  # never shorter than the user's own
    assert decide(code(1), tail=log(FULL)).delay_s == 5


def test_the_signal_that_ends_a_hang_is_dtctls_own() -> None:
    seen = [fact("stalled", seconds=300.0), fact("hung_in", text="wait (train.py:9)")]
    hung = made(Past, attempt=1, started=0.0, ended=1.0, asked=False, signal=6, hung=True)
    assert why_ended({**hung, "why": seen}) == seen
    assert why_ended(hung) == [fact("hung")]  # as an earlier build has noted it
    assert why_ended({**hung, "hung": False}) == [fact("killed", signal=6)]
    assert why_ended({**hung, "hung": False, "signal": None}) == [fact("exit_unknown")]


def test_task_that_failed_before_its_peers_were_ready_waits_without_using_its_budget() -> None:
    early = made(Past, attempt=1, started=0.0, ended=1.0, asked=False, early=True, cause="x")
    decision = decide(code(1), restarts=3, repeat=1, history=[early])
    assert (decision.state, decision.restarts, decision.delay_s) == ("backoff", 3, None)
    assert decision.why == [fact("exited", code=1), fact("early")]
    later = decide(code(1), restarts=3, history=[early, made(Past, attempt=2, started=0.0, ended=1.0, asked=False)])
    assert later.state == "failed"


@pytest.mark.parametrize(
    ("cause", "found"),
    [
        ("DataLossError: Checksum does not match", {"cannot_restore"}),
        ("tensorflow.errors.OutOfRangeError: truncated block read", {"cannot_restore"}),
        ("OutOfRangeError: Read less bytes than requested", {"cannot_restore"}),
        ("ValueError: Unable to open table file /ckpt", {"cannot_restore"}),
        ("UnavailableError: DATA_LOSS: not an sstable", {"cannot_restore"}),
        ("DataLossError: cannot finish the file; No space left on device", {"cannot_restore", "shortage"}),
        ("MemoryError", set()),
        ("ValueError: no loss for the data", set()),
    ],
)
def test_a_damaged_checkpoint_is_known_by_the_cause_that_the_log_shows(cause: str, found: set[str]) -> None:
    kinds = {read(one)["kind"] for one in decide(code(1), tail=log(cause)).why}
    assert kinds & {"cannot_restore", "shortage"} == found


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


KILLS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
ABORTED = "F0000 00:00:17.1  99 tensor.cc:852] Check failed: x\n"
LISTS = recovery(retry=[2, 127], permanent=[1, 139, 42])
SYNTAX = "training\n  File 'x.py', line 1\n    if:\n      ^\n"
REPORTED = [
    *("", OUT_OF_RANGE, f"  {MISSING}\n", f"W going on without: {MISSING}\n"),
    TRACEBACK + OUT_OF_RANGE,  # the import failed, but that is not what it has died of
    TRACEBACK + "".join(f"step {step}\n" for step in range(13)),
]


@pytest.mark.parametrize(
    ("ending", "log", "settings", "retry"),
    [
        (code(2), "", USUAL, False),
        (code(126), "", USUAL, False),
        (code(127, "cannot run x: No such file or directory"), "", USUAL, False),
        (code(2), "", LISTS, True),
        (code(127, "cannot run it"), "", LISTS, True),
        (code(1), "", LISTS, False),
        (code(139), "", LISTS, False),
        (code(42), "", LISTS, False),
        (killed(signal.SIGSEGV), "", LISTS, False),
        (killed(signal.SIGKILL), "", LISTS, True),
        (code(1), TRACEBACK, USUAL, False),
        (code(3), TRACEBACK, USUAL, True),  # this program chooses its exit codes itself
        (code(1), f"{SYNTAX}SyntaxError: invalid syntax\n", USUAL, False),
        (code(1), f"{SYNTAX}ImportError: cannot import name 'x' from 'y'\n", USUAL, False),
        (code(1), f"{SYNTAX}TabError: inconsistent use\n", USUAL, False),
        *((code(1), log, USUAL, True) for log in REPORTED),
    ],
)
def test_permanent_exits_and_code_that_cannot_be_imported_are_not_retried(
    ending: Ending, log: str, settings: RecoverySpec, retry: bool
) -> None:
    assert verdict(ending, cause(log), settings).retry is retry


@pytest.mark.parametrize(
    ("ending", "log", "expected"),
    [
        *((killed(number), OUT_OF_RANGE, "") for number in KILLS),
        (killed(signal.SIGABRT), ABORTED, "Check failed: x (tensor.cc:852)"),
        (code(1), TRACEBACK, MISSING),
    ],
)
def test_a_task_has_its_log_as_cause_unless_it_was_killed(ending: Ending, log: str, expected: str) -> None:
    assert verdict(ending, cause(log), USUAL).cause == expected


def test_a_code_that_a_user_lists_may_be_tried_again_however_often_it_ends_alike() -> None:
    bad = cause(OUT_OF_RANGE)
    judged = verdict(code(42), bad, recovery(retry=[42]))
    assert (judged.always, judged.retry, judged.cause) == (True, True, bad)
    assert not verdict(code(42), bad, recovery(retry=[])).always
    assert verdict(code(1), cause(OUT_OF_RANGE.replace("OutOfRange", "Unavailable")), USUAL).always


def test_task_killed_as_hung_is_restarted_for_any_exit_code() -> None:
    hung = fact("stalled", seconds=300.0)
    for ending in (killed(9), killed(6), code(0)):
        decision = decide(ending, stalled=hung)
        assert (decision.state, decision.why, decision.restarts, decision.delay_s) == ("backoff", [hung], 1, 0.0)
    assert decide(killed(9), STOP, stalled=hung).state == "stopped"


def test_exit_record_says_whether_it_is_retried_and_has_the_end_of_the_log() -> None:
    exit_ = exit_record(code(127, "cannot run it"), Verdict(retry=False), "last words")
    assert exit_ == made(Exit, **code(127, "cannot run it"), retry=False, tail="last words")
    assert exit_record(killed(9), Verdict(retry=True), "")["signal"] == 9

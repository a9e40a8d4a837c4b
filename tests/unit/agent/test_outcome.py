"""What the states of all tasks say of a run: the one decider, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtctl.agent.records.answers import Checkpoint
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, because, fact, said, sentence
from dtctl.agent.records.run_state import Entry, Exit, Intent, Past, RunEnd
from dtctl.agent.records.spec import Member
from dtctl.agent.run import outcome
from dtctl.agent.run.outcome import Facts, Judgement
from tests.unit.holds import held
from tests.unit.tasks import checkpoint

ROSTER = ("ps:0", "worker:0", "worker:1", "evaluator:0")
LEAD, COLLECTIVE = ("worker:0",), ("worker:0", "worker:1")
"""Who decides."""


def failed(*ends: float, **fields: Any) -> dict[str, Any]:
    """An entry that has failed for good after attempts that ended then."""
    history = [past(number, end) for number, end in enumerate(ends, 1)]
    how = made(Exit, code=1)
    return {"state": "failed", "since": ends[-1] if ends else 9.0, "history": history, "exit": how, **fields}


def past(
    attempt: int, ended: float, code: int | None = 1, *, asked: bool = False, cause: str = "", signal: int | None = None
) -> Past:
    how: Any = {"code": code, "cause": cause, "signal": signal}
    return made(Past, attempt=attempt, started=ended - 1, ended=ended, asked=asked, **how)


def reset(ended: float) -> dict[str, Any]:
    """One that has failed for good by the loss of a connection."""
    return {**failed(ended), "history": [past(1, ended, cause="ConnectionResetError: [Errno 104] Connection reset")]}


KILLED = {"history": [past(1, 9.9, None, signal=9)]}


def facts(
    tasks: Mapping[str, str | dict[str, Any] | None],
    wants: Mapping[str, str | dict[str, Any]] | None = None,
    deciding: tuple[str, ...] = LEAD,
    *,
    fail_fast: bool = True,
) -> Facts:
    """Tasks that are not named run; those that are None are lost."""
    roster = {
        task: made(Member, task=task, host="h", vital=task != "evaluator:0", decides=task in deciding)
        for task in ROSTER
    }
    known = {**dict.fromkeys(ROSTER, "running"), **tasks}
    entries = {
        task: made(Entry, **(task_facts if isinstance(task_facts, dict) else {"state": task_facts}))
        for task, task_facts in known.items()
        if task_facts is not None
    }
    intents = {
        task: made(Intent, **(want if isinstance(want, dict) else {"want": want}))
        for task, want in {**dict.fromkeys(entries, "run"), **(wants or {})}.items()
    }
    return Facts(roster, fail_fast, entries, intents)


DRAINED = held(fact("drained", host="h", by="ada"))


def kind_and_cause(judgement: Judgement | None) -> tuple[str, str | None] | None:
    return (judgement.kind, judgement.cause) if judgement is not None else None


Expected = tuple[str, str | None] | None
"""Kind and cause; None while nothing is decided."""


def read_case(tasks: dict[str, Any], outcome: list[Any] | None, **settings: Any) -> tuple[Facts, Expected]:
    """One of outcomes.yaml."""
    known = {task: failed(*given["failed"]) if isinstance(given, dict) else given for task, given in tasks.items()}
    settings["deciding"] = tuple(settings.get("deciding", LEAD))
    return facts(known, **settings), (outcome[0], outcome[1]) if outcome else None


CASES = yaml.safe_load(Path(__file__).with_name("outcomes.yaml").read_text("utf-8"))
TABLE: dict[str, tuple[Facts, Expected]] = {
    **{name: read_case(**case) for name, case in CASES.items()},
    "failures before an exit that was asked for are not the cause": (
        facts(
            {
                "ps:0": failed(20.0),
                "worker:1": {**failed(30.0), "history": [past(1, 5.0), past(2, 8.0, None, asked=True), past(3, 30.0)]},
            }
        ),
        ("Failed", "ps:0"),
    ),
    "a killed task is the cause of a lost connection that is noticed before": (
        facts({"worker:1": reset(9.8), "ps:0": {**failed(9.9), **KILLED}}),
        ("Failed", "ps:0"),
    ),
    "also one that may be restarted": (
        facts({"worker:1": reset(9.8), "ps:0": {"state": "backoff", **KILLED}}),
        ("Failed", "ps:0"),
    ),
    "also one that runs again": (
        facts({"worker:1": reset(12.0), "ps:0": {"state": "running", **KILLED}}),
        ("Failed", "ps:0"),
    ),
    "but not one that was lost long before": (
        facts({"worker:1": reset(99.0), "ps:0": {"state": "running", **KILLED}}),
        ("Failed", "worker:1"),
    ),
    "a lost connection alone is the cause": (facts({"worker:1": reset(9.8)}), ("Failed", "worker:1")),
    "nor are those before a success": (
        facts({"ps:0": failed(20.0), "worker:1": {**failed(30.0), "history": [past(1, 5.0), past(2, 8.0, 0)]}}),
        ("Failed", "ps:0"),
    ),
}


@pytest.mark.parametrize("case", TABLE, ids=lambda name: name.replace(" ", "_"))
def test_the_outcome(case: str) -> None:
    known, expected = TABLE[case]
    assert kind_and_cause(outcome.decided(known)) == expected


def test_a_success_names_its_task() -> None:
    alone = outcome.decided(facts({"worker:0": "succeeded"}))
    every = outcome.decided(facts(dict.fromkeys(COLLECTIVE, "succeeded"), deciding=COLLECTIVE))
    assert alone is not None
    assert every is not None
    assert (sentence(alone.why), sentence(every.why)) == ("worker:0 finished", "every worker finished")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (failed(7.0), "ps:0 failed: exit code 1"),
        (failed(7.0, why=said("stalled: no step")), "ps:0 failed: stalled: no step"),
        (failed(7.0, exit=made(Exit, signal=9)), "ps:0 failed: killed by SIGKILL"),
        (failed(7.0, exit=None), "ps:0 failed: its exit is unknown"),
    ],
)
def test_a_failure_has_the_exit_of_its_task(entry: dict[str, Any], reason: str) -> None:
    found = outcome.decided(facts({"ps:0": entry}))
    assert found is not None
    assert sentence(found.why) == reason


def failed_start(task: str) -> RunEnd:
    return made(RunEnd, outcome="Failed", cause=task, start="failed")


@pytest.mark.parametrize("kind", ["start_failed", "cannot_bind"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_start_that_was_given_up_has_failed_by_the_task_to_blame(kind: str, elsewhere: bool) -> None:
    """To all that judge by the orders: to the coordinator, and to a controller that does not reach it."""
    why = [fact(kind, task="ps:0"), fact("exited", code=1)]
    order = {"want": "stop", "version": 2, "ends_as": failed_start("ps:0"), **because(why)}
    wants: dict[str, str | dict[str, Any]] = dict.fromkeys(ROSTER, order)
    away: dict[str, None] = {"worker:1": None} if elsewhere else {}
    known = facts({**dict.fromkeys(ROSTER, "stopped"), "ps:0": failed(7.0), **away}, wants)
    found = outcome.decided_elsewhere(known) if elsewhere else outcome.decided(known)
    assert found is not None
    assert (found.kind, found.cause, found.why[:2]) == ("Failed", "ps:0", why)


def test_a_start_that_is_blamed_on_no_task_of_the_run_was_stopped() -> None:
    found = outcome.by_request([fact("cannot_bind", task="ps:7")], failed_start("ps:7"), ROSTER)
    assert (found.kind, found.cause) == ("Stopped", None)


def test_a_failure_by_a_task_that_runs_again_has_the_exit_of_its_last_attempt() -> None:
    found = outcome.decided(facts({"worker:1": reset(12.0), "ps:0": {"state": "running", **KILLED}}))
    assert found is not None
    assert sentence(found.why) == "ps:0 failed: killed by SIGKILL"


def test_a_stop_has_the_reason_of_the_last_request() -> None:
    wants = {task: {"want": "stop", "version": 2, "why": said("first")} for task in ROSTER}
    last = {**wants, "worker:1": {"want": "stop", "version": 5, "why": said("last")}}
    silent = {**wants, "worker:1": {"want": "stop", "version": 5}}
    found = [outcome.decided(facts({}, each)) for each in (last, silent)]
    assert [sentence(each.why) for each in found if each is not None] == ["last", "stopped"]


STANDING = {
    "some run": (facts({"ps:0": "pending", "worker:1": "stalled"}), None, ("Running", "3 of 4 tasks run")),
    "none run": (facts(dict.fromkeys(ROSTER, "pending")), None, None),
    "a lost task is not said to run": (facts({"worker:0": None}), None, ("Running", "3 of 4 tasks run")),
    "something is mended": (facts({}), "ps:0: lost", ("Restarting", "ps:0: lost")),
    "the lead is stopped": (
        facts({"worker:0": "stopped"}, {"worker:0": {"want": "stop", "why": said("by me")}}),
        "ps:0: lost",
        ("Stopped", "by me"),
    ),
    "the lead is stopped without a word": (
        facts({"worker:0": "stopped"}, {"worker:0": "stop"}),
        None,
        ("Stopped", "worker:0 was stopped"),
    ),
    "the lead is being stopped": (facts({}, {"worker:0": "stop"}), None, ("Running", "4 of 4 tasks run")),
    "the lead is to start again": (facts({"worker:0": "stopped"}), None, ("Running", "3 of 4 tasks run")),
    "another is stopped": (facts({"ps:0": "stopped"}, {"ps:0": "stop"}), None, ("Running", "3 of 4 tasks run")),
    "all are held for a drained host": (
        facts({}, dict.fromkeys(ROSTER, DRAINED)),
        None,
        ("Suspended", "h is drained by ada"),
    ),
    "all are held for a host that shuts down": (
        facts({}, dict.fromkeys(ROSTER, held(fact("shutting_down", host="h")))),
        None,
        ("Restarting", "h is shutting down"),
    ),
    "one is not held": (facts({}, dict.fromkeys(ROSTER[1:], DRAINED)), None, ("Running", "4 of 4 tasks run")),
}


@pytest.mark.parametrize("case", STANDING, ids=lambda name: name.replace(" ", "_"))
def test_how_a_run_stands_that_is_not_decided(case: str) -> None:
    known, restarting, expected = STANDING[case]
    found = outcome.standing(known, said(restarting) if restarting is not None else None)
    assert (found and (found.kind, sentence(found.why))) == expected


@pytest.mark.parametrize(
    "why",
    [
        fact("scaled_down", task="worker:1", text="worker", count=1, by="ada"),
        fact("left_out", tasks=["worker:1"], host="h", seconds=300.0, count=1, of=2),
        fact("drained_alone", host="h", by="ada"),
    ],
)
def test_a_task_without_which_the_others_continue_decides_nothing_while_it_is_held(why: Fact) -> None:
    ended = {"worker:0": "succeeded"}
    assert kind_and_cause(outcome.decided(facts(ended, {"worker:1": held(why)}, COLLECTIVE))) == ("Succeeded", None)
    assert outcome.decided(facts(ended, {"worker:1": {**held(why), "want": "run"}}, COLLECTIVE)) is None


ENDED = {**dict.fromkeys(ROSTER, "stopped"), "ps:0": None}
SUCCEEDED = {
    "want": "stop",
    "ends_as": made(RunEnd, outcome="Succeeded"),
    **because([fact("run_succeeded")]),
}


@pytest.mark.parametrize(
    ("tasks", "wants", "expected"),
    [
        (ENDED, {}, ("Stopped", "stopped; 1 host unreachable: h")),
        (
            ENDED,
            {"worker:0": {**SUCCEEDED, "version": 9}},
            ("Succeeded", "the run has succeeded; 1 host unreachable: h"),
        ),
        (
            ENDED,
            {"worker:0": SUCCEEDED, "worker:1": {"want": "stop", "version": 9}},
            ("Stopped", "stopped; 1 host unreachable: h"),
        ),
        (ENDED, {"worker:0": "run"}, None),
        ({**ENDED, "worker:0": "running"}, {}, None),
        ({**ENDED, "ps:0": "stopped"}, {}, None),
    ],
)
def test_outcome_follows_from_the_orders_of_all_reachable_ended_tasks(
    tasks: dict[str, str | None], wants: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    found = outcome.decided_elsewhere(facts(tasks, {**dict.fromkeys(ROSTER, "stop"), **wants}))
    assert (found and (found.kind, sentence(found.why))) == expected


def test_task_in_backoff_is_reported_with_its_exit() -> None:
    backoff = {"state": "backoff", "exit": made(Exit, code=3)}
    waiting = outcome.waits_for_restart(facts({"worker:1": backoff, "ps:0": backoff}))
    assert waiting == [fact("task_lost", task="ps:0"), fact("exited", code=3)]
    assert outcome.waits_for_restart(facts({})) is None


@pytest.mark.parametrize(
    ("target", "newest", "logged", "warning"),
    [
        (None, checkpoint("ckpt", 1), 1, None),
        (9, None, None, None),
        (9, checkpoint("ckpt", None), None, None),
        (9, checkpoint("ckpt", 9), 2, None),
        (9, checkpoint("ckpt", 8), None, fact("short_of_target", step=8, of=9)),
        (9, checkpoint("ckpt", 8), 9, fact("short_of_target", step=8, of=9)),
        (1000, None, 2, fact("steps_short", step=2, of=1000)),
        (1000, checkpoint("ckpt", None), 899, fact("steps_short", step=899, of=1000)),
        (1000, None, 900, None),
        (1000, None, 1001, None),
    ],
)
def test_a_success_below_its_target_step_is_marked(
    target: int | None, newest: Checkpoint | None, logged: int | None, warning: Fact | None
) -> None:
    assert outcome.target_warning(target, newest, logged) == warning


def test_a_task_counts_only_when_it_is_known_what_it_does_and_what_is_wanted_of_it() -> None:
    known = facts({})
    wanted = {**known.intents, "not in the roster": known.intents["ps:0"]}
    del wanted["worker:1"]
    entries = {task: entry for task, entry in known.entries.items() if task != "ps:0"}
    assert list(Facts(known.roster, True, entries, wanted).entries) == ["worker:0", "evaluator:0"]


def test_failure_without_a_time_sorts_before_all_others() -> None:
    assert outcome.failing_since(made(Entry, state="failed")) == 0.0

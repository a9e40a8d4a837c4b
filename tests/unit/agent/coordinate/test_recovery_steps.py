"""What is restarted after a loss, when, and within which budget: one decision at a time."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordinate.recovery import GANG_GRACE_S, PS_END_LIMIT_S, TRAINED_S, Recovery, Services
from dtctl.agent.coordinate.repairs import ANSWER_S
from dtctl.agent.coordinate.stalls import AGAIN_AT_BARRIER_S, AT_BARRIER_S, SILENCE_S
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.answers import Checkpoint
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, because, fact, headline, read, said
from dtctl.agent.records.run_state import Intent, Past, Repaired
from dtctl.agent.run.hangs import NEVER_BEGAN_S
from dtctl.agent.run.outcome import Judgement
from tests.reasons import given_up, warnings_of
from tests.unit.agent.coordinate import views
from tests.unit.tasks import checkpoint

WALL = 1010.0


class Run:
    """A run whose every task runs, with a recovery that is asked step by step. The back-off has no jitter."""

    def __init__(self, strategy: str = "async-ps", **fields: Any) -> None:
        self.view: View = views.running(strategy, **fields)
        self.checkpoint: int | None = 100
        self.reported: list[dict[str, Any]] = []
        self.verified_all: list[bool] = []
        self.answers = True
        """Whether the lead's host carries out orders."""
        services = Services(self._newest, lambda: 0.0)
        self.recovery = Recovery(self.view, services, self._tell)
        for task in self.view.tasks:
            views.reported(self.view, task, step=500)

    def _tell(self, kind: str, why: list[Fact], **fields: Any) -> None:
        assert kind == "decision"
        self.reported.append({"why": why, **fields})

    def _repair(self) -> bool:
        """Whether the lead's host has carried out an order to repair."""
        view, lead = self.view, self.view.lead
        how, entry = view.intents[lead]["repair"], view.entry(lead)
        if how is None or not self.answers:
            return False
        self.verified_all.append(how == "full")
        done = {"attempt": entry["attempt"], "how": how, "done": ["one was damaged"], "step": self.checkpoint}
        views.reported(view, lead, repaired=made(Repaired, **done))
        return True

    def _newest(self) -> Checkpoint | None:
        return None if self.checkpoint is None else checkpoint("c", self.checkpoint)

    def dies(self, task: str, *, state: str = "backoff", ended: float = 1009.0, **how: Any) -> None:
        entry = self.view.entry(task)
        usual = {"started": 1000.0, "ended": ended, "asked": False, "code": None, "signal": 9}
        past = made(Past, attempt=entry["attempt"], **{**usual, **how})
        views.reported(self.view, task, state=state, ready=False, history=[*entry["history"], past])

    def step(self, now: float = 100.0, wall: float = WALL) -> Judgement | None:
        found = self.recovery.step(now, wall)
        return self.recovery.step(now, wall) if found is None and self._repair() else found

    def cleared(self, *tasks: str) -> None:
        """Nothing is left of their older generation."""
        for task in tasks:
            generation = self.view.intents[task]["generation"]
            views.reported(self.view, task, state="pending", generation=generation, ready=False)

    def begins(self, *tasks: str) -> None:
        """The restart of these tasks."""
        self.cleared(*tasks)
        self.step(101.0)

    def back(self, *tasks: str) -> None:
        for task in tasks:
            attempt = self.view.entry(task)["attempt"] + 1
            views.reported(self.view, task, state="running", ready=True, attempt=attempt)

    @property
    def incidents(self) -> list[Any]:
        return self.view.data["incidents"]

    @property
    def held(self) -> set[str]:
        return {task for task, intent in self.view.intents.items() if intent["want"] == "hold"}


def lost(task: str, *strategy: str, **fields: Any) -> Run:
    """A run that has noticed this loss."""
    run = Run(*strategy, **fields)
    run.dies(task)
    run.step(100.0)
    return run


ALL = {"ps:0", "ps:1", "chief:0", "worker:0", "worker:1"}


@pytest.mark.parametrize(
    ("strategy", "task", "restarted"),
    [
        ("async-ps", "ps:0", {"ps:0"}),
        ("async-ps", "chief:0", {"chief:0"}),
        ("sync-ps", "ps:1", ALL),
        ("ps-strategy", "ps:1", {"ps:1", "chief:0"}),
        ("ps-strategy", "chief:0", {"chief:0"}),
    ],
)
def test_scope_decides_which_tasks_a_loss_holds(strategy: str, task: str, restarted: set[str]) -> None:
    run = Run(strategy)
    run.dies(task)
    assert run.step() is None
    assert (run.held, run.view.held_by_incidents()) == (restarted, restarted)
    assert run.view.is_recovering()


def test_what_is_held_begins_another_generation_and_only_the_lost_task_pays() -> None:
    run = Run("sync-ps")
    views.reported(run.view, "worker:1", restarts=1)
    run.dies("ps:0")
    run.step()
    intents = run.view.intents
    assert {intent["generation"] for intent in intents.values()} == {2}
    assert {task: intent["restarts"] for task, intent in intents.items()} == {
        **dict.fromkeys(ALL, 0),
        "ps:0": 1,
        "worker:1": 1,
    }
    assert {intent["grace_s"] for intent in intents.values()} == {GANG_GRACE_S}
    assert {intent["by"] for intent in intents.values()} == {"coordinator"}
    assert run.view.data["restarts"] == 1


def test_the_grace_of_a_gang_is_no_longer_than_the_users() -> None:
    run = lost("ps:0", "sync-ps", grace_s=0.5)
    assert {intent["grace_s"] for intent in run.view.intents.values()} == {0.5}


def test_a_gang_leaves_out_who_was_stopped_and_evaluators() -> None:
    run = Run("sync-ps")
    run.view.wanted(["worker:1"], want="stop")
    run.view.roster["worker:0"]["role"] = "evaluator"
    run.dies("ps:0")
    run.step()
    assert run.held == ALL - {"worker:1", "worker:0"}


def test_an_agents_own_task_is_noted_and_not_held() -> None:
    run = lost("worker:0")
    assert (run.held, run.recovery.due(), run.view.data["restarts"]) == (set(), None, 1)
    [one] = run.incidents
    assert (one["own"], one["tasks"]) == (True, ["worker:0"])
    assert run.reported[0]["task"] == "worker:0"
    views.reported(run.view, "worker:0", state="running")
    run.step(101.0)
    assert one["begun"] is None, "its agent has not reported another attempt"
    views.reported(run.view, "worker:0", attempt=2, state="starting")
    run.step(102.0)
    assert one["begun"] is None
    run.back("worker:0")
    run.step(103.0, 1013.0)
    assert [run.incidents[0][name] for name in ("begun", "back_to")] == [1013.0, None]
    views.reported(run.view, "worker:0", step=501)
    run.step(104.0, 1014.0)
    assert one["recovered"] == 1014.0
    assert not run.view.is_recovering()


def test_the_next_delay_that_ends_is_the_shortest_of_those_that_wait() -> None:
    run = Run(recovery={"max_restarts": 9})
    views.reported(run.view, "ps:0", restarts=1)
    views.reported(run.view, "ps:1", restarts=2)
    assert run.recovery.due() is None
    run.dies("ps:1")
    run.step(100.0)
    assert run.recovery.due() == 102.0
    run.dies("ps:0")
    run.step(100.5)
    assert run.recovery.due() == 101.5
    run.cleared("ps:0")
    run.step(101.5)
    assert run.recovery.due() == 102.0
    assert run.view.held_by_incidents() == {"ps:1"}


def test_a_restart_begins_when_its_delay_is_over_and_nothing_of_the_old_is_left() -> None:
    run = Run("sync-ps")
    views.reported(run.view, "ps:0", restarts=1)
    run.dies("ps:0")
    run.step(100.0)
    run.cleared(*ALL)
    [one] = run.incidents
    run.step(100.9)
    assert one["begun"] is None
    views.reported(run.view, "worker:1", state="running")
    run.step(101.0)
    assert one["begun"] is None
    run.cleared("worker:1")
    views.reported(run.view, "worker:1", generation=1)
    run.step(101.0)
    assert one["begun"] is None
    run.cleared("worker:1")
    run.view.hosts["d"]["connected"] = False
    run.step(101.0)
    assert one["begun"] is None
    run.view.hosts["d"]["connected"] = True
    run.step(101.0, 1012.0)
    assert [run.incidents[0][name] for name in ("begun", "back_to")] == [1012.0, 100]
    assert warnings_of(run.view.data) == ["one was damaged"], "before the lead starts, damaged checkpoints go"
    assert run.reported[-1]["why"] == said("one was damaged")


def test_stopped_task_does_not_delay_a_restart() -> None:
    run = lost("ps:0", "sync-ps")
    run.cleared(*ALL - {"worker:1"})
    run.view.wanted(["worker:1"], want="stop")
    run.step(101.0)
    assert run.incidents[0]["begun"] is not None


def test_loss_of_a_ps_without_the_lead_restores_the_newest_checkpoint_unchecked() -> None:
    run = lost("ps:0")
    run.begins("ps:0")
    assert (run.incidents[0]["back_to"], warnings_of(run.view.data)) == (100, [])


def test_a_coordinator_that_comes_after_another_waits_no_longer_than_it_has_to() -> None:
    run = lost("ps:0")
    run.cleared("ps:0")
    after = Recovery(run.view, Services(run._newest, lambda: 0.0), lambda *_, **__: None)
    assert after.due() is None
    after.step(50.0, WALL)
    assert run.incidents[0]["begun"] == WALL


def test_a_second_loss_in_what_is_being_cleared_is_a_consequence() -> None:
    run = lost("ps:0", "sync-ps")
    run.dies("worker:0", ended=1009.5)
    run.step(100.5)
    [one] = run.incidents
    assert [each["task"] for each in one["collateral"]] == ["worker:0"]
    assert run.view.data["restarts"] == 1


def test_a_task_that_is_lost_again_closes_the_incident_before() -> None:
    run = lost("ps:0")
    run.begins("ps:0")
    run.back("ps:0")
    run.view.wanted(["ps:0"], want="run")
    run.dies("ps:0", ended=1011.0)
    run.step(102.0)
    first, second = run.incidents
    assert (given_up(first), given_up(second)) == ("ps:0 was lost again", None)


def test_a_larger_restart_takes_up_a_smaller_one_and_not_the_other_way_round() -> None:
    run = lost("chief:0", "ps-strategy", recovery={"max_restarts": 9})
    run.dies("ps:0", ended=1009.5)
    run.step(100.1)
    first, second = run.incidents
    assert given_up(first) == "ps:0 was lost too"
    run.dies("worker:0", ended=1009.8)
    run.step(100.2)
    assert given_up(second) is None


@pytest.mark.parametrize("how", [{"asked": True}, {"signal": None, "code": 0}])
def test_an_end_that_was_asked_for_or_that_is_a_success_is_no_loss(how: dict[str, Any]) -> None:
    run = Run()
    run.dies("ps:0", **how)
    run.step()
    assert (run.incidents, run.view.data["noted"]["ps:0"]) == ([], 1)


@pytest.mark.parametrize(("state", "want"), [("failed", "run"), ("backoff", "stop"), ("backoff", "finish")])
def test_what_is_not_to_run_again_is_left_to_the_outcome(state: str, want: Any) -> None:
    run = Run()
    run.view.wanted(["ps:0"], want=want)
    run.dies("ps:0", state=state)
    assert run.step() is None
    assert run.incidents == []


@pytest.mark.parametrize(
    ("chief", "ps", "cause"),
    [(1009.0, 1008.0, "ps:1"), (1008.0, 1009.0, "chief:0"), (1009.0, 1009.0, "chief:0")],
    ids=["ps first", "chief first", "at the same moment the first by name"],
)
def test_of_losses_at_once_the_first_in_time_is_the_cause(chief: float, ps: float, cause: str) -> None:
    run = Run("sync-ps")
    run.dies("ps:1", ended=ps)
    run.dies("chief:0", ended=chief)
    run.step()
    [one] = run.incidents
    assert one["task"] == cause
    assert [each["task"] for each in one["collateral"]] == [({"ps:1", "chief:0"} - {cause}).pop()]


def test_what_was_judged_before_is_passed_over() -> None:
    run = Run()
    run.dies("ps:0")
    views.reported(run.view, "ps:0", attempt=2)
    run.dies("ps:0")
    run.recovery.ignore_past(run.view.tasks)
    assert run.view.data["noted"] == {**dict.fromkeys(ALL, 0), "ps:0": 2}
    run.step()
    assert run.incidents == []


@pytest.mark.parametrize(
    ("budget", "task"), [("max_restarts", "ps:0"), ("max_run_restarts", "ps:0"), ("max_run_restarts", "worker:0")]
)
def test_a_loss_past_the_budget_of_its_task_or_run_fails_the_run(budget: str, task: str) -> None:
    for restarts in (1, 2):
        run = Run(recovery={"max_restarts": 9, budget: 2})
        views.reported(run.view, task, restarts=restarts if budget == "max_restarts" else 0)
        run.view.data["restarts"] = restarts
        run.dies(task)
        failure = run.step()
        assert (failure is not None) is (restarts == 2)
    assert failure is not None
    assert (failure.cause, run.held) == (task, set())


@pytest.mark.parametrize(
    ("step", "state", "since", "trained"),
    [
        (500, "running", WALL, True),
        (None, "running", WALL - TRAINED_S, True),
        (None, "running", WALL - TRAINED_S + 0.1, False),
        (None, "running", None, False),
        (None, "starting", WALL - 1000, False),
    ],
)
def test_without_a_checkpoint_a_ps_that_may_have_been_trained_is_not_restarted(
    step: int | None, state: str, since: float | None, trained: bool
) -> None:
    run = Run(needs_checkpoint=True)
    run.checkpoint = None
    views.reported(run.view, *run.view.tasks, step=step)
    views.reported(run.view, "chief:0", state=state, since=since)
    run.dies("ps:0")
    failure = run.step()
    assert (failure is not None) is trained
    if failure is not None:
        assert (failure.kind, failure.cause) == ("Failed", "ps:0")
        assert [read(one)["kind"] for one in failure.why] == ["task_failed", "killed", "no_checkpoint"]


def test_a_lead_that_takes_ps_with_it_needs_a_checkpoint_too() -> None:
    run = Run("sync-ps", needs_checkpoint=True)
    run.checkpoint = None
    run.dies("chief:0")
    assert run.step() is not None


def test_task_without_parameters_needs_no_checkpoint() -> None:
    for run, task in ((Run(needs_checkpoint=True), "chief:0"), (Run(needs_checkpoint=False), "ps:0")):
        run.checkpoint = None
        run.dies(task)
        assert run.step() is None


def test_a_ps_that_has_ended_well_is_lost_if_the_run_has_not_ended_by_then() -> None:
    run = Run()
    run.dies("ps:0", state="succeeded", signal=None, code=0)
    run.step(100.0)
    run.step(100.0 + PS_END_LIMIT_S - 0.1)
    assert run.incidents == []
    run.step(100.0 + PS_END_LIMIT_S)
    assert [one["task"] for one in run.incidents] == ["ps:0"]
    run.step(200.0)
    assert len(run.incidents) == 1


def test_time_of_an_ended_ps_restarts_after_it_has_run_again() -> None:
    run = Run()
    run.dies("ps:0", state="succeeded", signal=None, code=0)
    run.step(100.0)
    run.back("ps:0")
    run.step(105.0)
    views.reported(run.view, "ps:0", state="succeeded")
    run.step(106.0)
    run.step(106.0 + PS_END_LIMIT_S - 0.1)
    assert run.incidents == []


def test_servers_of_a_kvstore_may_end_by_themselves() -> None:
    run = Run()
    run.view.spec["strategy"] = "kvstore"
    run.dies("ps:0", state="succeeded", signal=None, code=0)
    run.step(100.0)
    run.step(200.0)
    assert run.incidents == []


STALLED = fact("stalled", seconds=300)
FROZEN = fact("frozen", seconds=60)


def back(why: Fact, *, hung: bool = False, **fields: Any) -> Run:
    """worker:0 was lost for that reason and is back, and nobody trains."""
    run = Run(**fields)
    views.reported(run.view, "worker:0", **because([why]))
    run.dies("worker:0", hung=hung)
    run.step(100.0)
    run.back("worker:0")
    run.step(101.0)
    return run


def hung(**fields: Any) -> Run:
    return back(STALLED, hung=True, **fields)


@pytest.mark.parametrize(
    ("why", "stall_s", "limit_s"),
    [(STALLED, None, SILENCE_S), (STALLED, 20.0, SILENCE_S), (STALLED, 300.0, 300.0), (FROZEN, None, SILENCE_S)],
)
def test_hang_that_continues_after_a_restart_restarts_all_tasks(
    why: Fact, stall_s: float | None, limit_s: float
) -> None:
    run = back(why, hung=True, recovery={"stall_s": stall_s})
    run.step(101.0 + limit_s - 0.1)
    assert len(run.incidents) == 1
    run.step(101.0 + limit_s)
    assert [one["loss"] for one in run.incidents] == ["hung", "still_silent"]
    assert [headline(one["why"]) for one in run.incidents] == [headline([why]), "still_silent"]
    assert run.incidents[-1]["tasks"] == list(run.view.tasks)
    assert (run.held, given_up(run.incidents[0])) == (ALL, "worker:0 was lost too")


def test_a_gang_that_hangs_again_closes_what_restarted_it_before() -> None:
    run = Run("sync-ps")
    run.dies("ps:0", hung=True)
    run.step(100.0)
    run.begins(*ALL)
    for task in ALL:
        views.reported(run.view, task, state="running", ready=True)
    run.step(102.0)
    run.step(102.0 + SILENCE_S)
    assert [given_up(one) for one in run.incidents] == ["ps:0 was lost too", None]


@pytest.mark.parametrize(
    "why",
    [
        fact("killed", signal=9),
        fact("exited", code=3),
        STALLED,  # whatever its words: what counts is that its agent did not end it for a hang
        fact("cannot_run", what="stalled", text="stalled"),
    ],
    ids=["killed", "exited", "stalled", "cannot_run"],
)
def test_silence_after_a_loss_that_was_no_hang_is_not_limited(why: Fact) -> None:
    run = back(why)
    run.step(1100.0)
    assert len(run.incidents) == 1


@pytest.mark.parametrize(
    ("stall_s", "took_s", "limit_s"),
    [(None, 2.0, 300.0), (None, 50.0, 500.0), (20.0, 2.0, SILENCE_S), (20.0, 50.0, 500.0), (400.0, 2.0, 400.0)],
)
def test_silence_after_a_loss_is_limited_by_the_first_steps_of_peers(
    stall_s: float | None, took_s: float, limit_s: float
) -> None:
    run = Run(recovery={"stall_s": stall_s, "max_restarts": 9})
    views.reported(run.view, "worker:1", first_step_s=took_s)
    run.dies("worker:0")
    run.step(100.0)
    run.back("worker:0")
    run.step(101.0)
    run.step(101.0 + limit_s - 0.1)
    assert len(run.incidents) == 1
    run.step(101.0 + limit_s)
    assert (run.held, headline(run.incidents[-1]["why"])) == (ALL, "still_silent")


def test_limit_doubles_after_each_failed_restart_of_all_tasks() -> None:
    run = hung(recovery={"max_restarts": 9})
    now = 101.0 + SILENCE_S
    run.step(now)
    for limit_s in (2 * SILENCE_S, 4 * SILENCE_S):
        run.cleared(*ALL)
        now += 100.0
        run.step(now)
        run.back(*ALL)
        run.step(now)
        before = len(run.incidents)
        run.step(now + limit_s - 0.1)
        assert len(run.incidents) == before
        now += limit_s
        run.step(now)
        assert len(run.incidents) == before + 1


TRAINERS = ("chief:0", "worker:0", "worker:1")


def waiting(run: Run, *tasks: str) -> Run:
    for task in tasks:
        views.reported(run.view, task, still_since=1.0)
    return run


@pytest.mark.parametrize(("recovery", "idles"), [({}, True), ({"stall_s": 0.0}, False), ({"stall_s": 900.0}, False)])
def test_tasks_that_all_wait_after_a_loss_are_all_restarted_in_seconds(
    recovery: dict[str, float | None], idles: bool
) -> None:
    """A worker of a synchronous program whose restart leaves the barrier of the others standing."""
    run = waiting(back(fact("killed", signal=9), recovery=recovery), *TRAINERS)
    run.step(102.0)
    run.step(102.0 + AT_BARRIER_S - 0.1)
    assert len(run.incidents) == 1
    run.step(102.0 + AT_BARRIER_S)
    assert (len(run.incidents) == 2) is idles
    if idles:
        assert (run.incidents[-1]["loss"], headline(run.incidents[-1]["why"])) == ("at_barrier", "at_barrier")
        assert run.held == ALL


@pytest.mark.parametrize("opened", [True, False])
def test_a_barrier_is_opened_sooner_once_a_restart_of_all_has_opened_one(opened: bool) -> None:
    """Until a step has followed, the restart of all may have been of no use, and the limit grows instead."""
    run = waiting(back(fact("killed", signal=9), recovery={"max_restarts": 9}), *TRAINERS)
    run.step(102.0)
    run.step(102.0 + AT_BARRIER_S)
    run.cleared(*ALL)
    run.step(250.0)
    run.back(*ALL)
    for task in TRAINERS:
        views.reported(run.view, task, still_since=None)
    run.step(251.0)
    if opened:
        for task in TRAINERS:
            views.reported(run.view, task, step=900, still_since=None)
        run.step(252.0)
        assert run.incidents[-1]["recovered"] is not None
        run.dies("worker:0")
        run.step(300.0)
        run.back("worker:0")
        run.step(301.0)
    before, limit_s = len(run.incidents), AGAIN_AT_BARRIER_S if opened else 2 * AT_BARRIER_S
    waiting(run, *TRAINERS)
    run.step(302.0)
    run.step(302.0 + limit_s - 0.1)
    assert len(run.incidents) == before
    run.step(302.0 + limit_s)
    assert run.incidents[-1]["loss"] == "at_barrier"
    assert len(run.incidents) == before + 1


@pytest.mark.parametrize(("step", "idles"), [(None, True), (7, False)])
def test_a_step_that_another_task_still_makes_does_not_open_the_barrier(step: int | None, idles: bool) -> None:
    run = back(fact("killed", signal=9))
    views.reported(run.view, "chief:0", step=501)
    run.step(102.0)
    assert [one["recovered"] is None for one in run.incidents] == [False]
    *before, last = run.view.entry("worker:0")["history"]
    views.reported(run.view, "worker:0", step=step, history=[*before, {**last, "step": 500}])
    waiting(run, *TRAINERS)
    run.step(103.0)
    run.step(103.0 + AT_BARRIER_S)
    assert (len(run.incidents) == 2) is idles


def test_tasks_of_which_one_works_after_a_loss_do_not_wait_for_each_other() -> None:
    run = waiting(back(fact("killed", signal=9)), *TRAINERS[1:])
    run.step(102.0)
    run.step(102.0 + 5 * AT_BARRIER_S)
    waiting(run, *TRAINERS)
    run.step(103.0 + 5 * AT_BARRIER_S)
    views.reported(run.view, "worker:0", still_since=None)
    run.step(104.0 + 5 * AT_BARRIER_S)
    waiting(run, "worker:0")
    run.step(102.0 + 6 * AT_BARRIER_S)
    assert len(run.incidents) == 1


@pytest.mark.parametrize("why", ["a host is away", "another is not back", "it is done", "it would start over", "off"])
def test_a_silence_after_a_loss_that_has_a_reason_is_no_hang(why: str) -> None:
    recovery = {"stall_s": 0.0 if why == "off" else 20.0, "max_restarts": 9}
    run = Run(recovery=recovery, target_step=499 if why == "it is done" else 1000, needs_checkpoint=True)
    views.reported(run.view, "worker:1", first_step_s=2.0)
    if why == "it would start over":
        run.checkpoint = None
    run.dies("worker:0")
    run.step(100.0)
    run.back("worker:0")
    run.step(101.0)
    if why == "a host is away":
        run.view.hosts["a"]["connected"] = False
    if why == "another is not back":
        run.dies("chief:0")
    count = 2 if why == "another is not back" else 1
    assert run.step(110.0) is None
    assert run.step(2000.0) is None
    assert len(run.incidents) == count


def test_ps_that_exits_again_before_any_step_is_lost_again() -> None:
    run = lost("ps:0")
    run.begins("ps:0")
    run.back("ps:0")
    run.view.wanted(["ps:0"], want="run")
    run.dies("ps:0", state="succeeded", signal=None, code=0, ended=1012.0)
    run.step(103.0)
    run.step(103.0 + PS_END_LIMIT_S)
    first, second = run.incidents
    assert (given_up(first), second["why"]) == ("ps:0 was lost again", [fact("ps_ended")])


def test_incident_begins_when_a_person_has_restarted_its_task() -> None:
    run = lost("ps:0")
    run.view.wanted(["ps:0"], want="run", generation=run.view.intents["ps:0"]["generation"] + 1, by="me@desk")
    run.step(101.5)
    assert run.incidents[0]["begun"] is None  # it is still the old one that was heard last
    generation = run.view.intents["ps:0"]["generation"]
    views.reported(run.view, "ps:0", state="running", ready=True, attempt=2, generation=generation)
    run.step(102.0)
    assert run.incidents[0]["begun"] == WALL


RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"


@pytest.mark.parametrize("strategy", ["async-ps", "sync-ps", "collective"])
def test_a_killed_task_comes_before_those_that_lost_their_connection_by_it(strategy: str) -> None:
    """Its host reports its end later, and by a clock that is behind."""
    run = Run(strategy)
    run.dies("chief:0", code=1, signal=None, cause=RESET, ended=1009.0)
    assert run.step(100.0) is None
    assert run.incidents == []
    assert run.recovery.due() == 101.0
    run.dies("ps:0", ended=1009.2)
    run.step(100.3)
    assert run.incidents[0]["task"] == "ps:0"
    assert run.reported[0]["task"] == "ps:0"
    assert run.recovery.awaits_cause("chief:0", 100.3) is False


def test_two_ends_of_a_task_that_are_reported_at_once_are_two_losses() -> None:
    run = Run()
    run.dies("worker:0", ended=1008.0)
    run.dies("worker:0", ended=1009.0)
    run.step(100.0)
    assert [one["task"] for one in run.incidents] == ["worker:0", "worker:0"]


def test_a_lost_connection_without_a_cause_is_repaired_after_a_second() -> None:
    run = Run()
    run.dies("chief:0", code=1, signal=None, cause=RESET)
    run.step(100.0)
    assert run.recovery.awaits_cause("chief:0", 100.9)
    run.step(100.9)
    assert run.incidents == []
    run.step(101.0)
    assert [one["task"] for one in run.incidents] == ["chief:0"]


def test_a_lost_connection_of_which_a_host_is_away_is_repaired_at_once() -> None:
    run = Run()
    run.view.hosts["a"]["connected"] = False
    run.dies("chief:0", code=1, signal=None, cause=RESET)
    run.step(100.0)
    assert [one["task"] for one in run.incidents] == ["chief:0"]


def test_task_that_a_person_restarted_and_that_was_lost_again_is_held() -> None:
    run = lost("ps:0")
    generation = run.view.intents["ps:0"]["generation"] + 1
    run.view.wanted(["ps:0"], want="run", generation=generation, by="me@desk")
    views.reported(run.view, "ps:0", attempt=2, generation=generation)
    run.dies("ps:0", ended=1012.0)
    run.step(101.5)
    first, second = run.incidents
    assert (given_up(first), second["attempt"], run.held) == ("ps:0 was lost again", 2, {"ps:0"})


@pytest.mark.parametrize("state", ["succeeded", "stopped"])
def test_task_that_ended_before_it_was_seen_running_has_recovered(state: str) -> None:
    run = lost("worker:1")
    views.reported(run.view, "worker:1", state=state, attempt=2)
    run.step(101.0)
    assert run.incidents[0]["begun"] == WALL


def test_a_stall_past_the_budget_fails_the_run() -> None:
    run = hung(recovery={"max_restarts": 1})
    views.reported(run.view, "worker:0", restarts=1)
    failure = run.step(101.0 + SILENCE_S)
    assert failure is not None
    assert failure.cause == "worker:0"


@pytest.mark.parametrize("entry", [{"state": "pending"}, {"attempt": 2}, {"why": []}])
def test_a_report_is_accepted_only_of_the_attempt_that_waits_for_another(entry: dict[str, Any]) -> None:
    run = Run("sync-ps")
    run.dies("ps:0")
    views.reported(run.view, "ps:0", **{**because([STALLED]), **entry})
    run.step()
    assert run.incidents[0]["why"] == [fact("killed", signal=9)]


@pytest.mark.parametrize(
    ("strategy", "task", "plan"),
    [
        ("async-ps", "ps:0", fact("goes_in", seconds=0.0)),
        ("ps-strategy", "ps:1", fact("goes_with", task="chief:0", seconds=0.0)),
        ("sync-ps", "ps:1", fact("all_go", count=5, seconds=0.0)),
        ("async-ps", "worker:1", fact("goes_alone")),
    ],
)
def test_decision_names_the_loss_and_the_restarted_tasks(strategy: str, task: str, plan: Fact) -> None:
    run = lost(task, strategy)
    assert run.reported == [{"why": [fact("killed", signal=9), plan], "task": task}]


def seconds(kind: str, after_s: float) -> Fact:
    return fact(kind, seconds=after_s)


@pytest.mark.parametrize(
    ("task", "steps", "checkpoint", "recovery"),
    [
        ("worker:1", (500, 501), 100, [seconds("trains_again", 0.5)]),
        ("worker:1", (None, None), 100, [seconds("runs_again", 0.5)]),
        ("ps:0", (500, 501), None, [seconds("trains_again", 0.5)]),
        (
            "ps:0",
            (500, 101),
            100,
            [fact("back_to_step", step=100), fact("steps_lost", count=400), fact("and"), seconds("trains_again", 0.5)],
        ),
        (
            "ps:0",
            (500, 501),
            500,
            [fact("back_to_step", step=500), fact("steps_lost", count=0), fact("and"), seconds("trains_again", 0.5)],
        ),
        ("ps:0", (None, None), 100, [fact("back_to_step", step=100), fact("and"), seconds("runs_again", 0.5)]),
    ],
)
def test_recovery_reports_its_cost(
    task: str, steps: tuple[int | None, int | None], checkpoint: int | None, recovery: list[Fact]
) -> None:
    run = Run(needs_checkpoint=False)
    run.checkpoint = checkpoint
    views.reported(run.view, *run.view.tasks, step=steps[0])
    run.dies(task)
    run.step(100.0, WALL)
    run.cleared("ps:0")
    run.step(101.0, WALL)
    run.back(task)
    run.step(102.0, WALL + 0.5)
    views.reported(run.view, "chief:0", step=steps[1])
    run.step(103.0, WALL + 0.5)
    assert run.reported[-1]["why"] == recovery


def test_a_person_who_starts_a_held_task_ends_its_delay() -> None:
    run = Run()
    views.reported(run.view, "ps:0", restarts=1)
    run.dies("ps:0")
    run.dies("worker:0")
    run.step(100.0)
    assert run.recovery.due() == 101.0
    assert run.recovery.skip_backoff("ps:1", 100.2) is False
    assert run.recovery.skip_backoff("worker:0", 100.2) is False, "its agent starts it"
    assert run.recovery.due() == 101.0
    assert run.recovery.skip_backoff("ps:0", 100.2) is True
    assert run.recovery.due() == 100.2


def idle(checkpoint: int | None, **fields: Any) -> Run:
    """Everybody is there, has reported no step, and does nothing."""
    run = Run("sync-ps", **fields)
    run.checkpoint = checkpoint
    views.reported(run.view, *run.view.tasks, step=None, idle_since=1000.0)
    run.step(100.0)
    return run


@pytest.mark.parametrize(("checkpoint", "restarted"), [(100, ALL), (None, ALL - {"ps:0", "ps:1"})])
def test_run_that_never_began_is_restarted_except_ps_tasks_with_unsaved_state(
    checkpoint: int | None, restarted: set[str]
) -> None:
    run = idle(checkpoint)
    run.step(99.0 + NEVER_BEGAN_S)
    assert run.incidents == []
    assert run.step(100.0 + NEVER_BEGAN_S) is None
    [one] = run.incidents
    assert (run.held, run.recovery.due()) == (restarted, 100.0 + NEVER_BEGAN_S)
    assert (one["task"], one["attempt"], one["ended"], one["noticed"]) == ("chief:0", 1, WALL, WALL)
    assert one["why"] == [fact("never_began", seconds=NEVER_BEGAN_S)]


def test_a_run_that_never_began_fails_past_the_leads_budget() -> None:
    run = idle(100, recovery={"max_restarts": 1})
    views.reported(run.view, "chief:0", restarts=1)
    failure = run.step(100.0 + NEVER_BEGAN_S)
    assert failure is not None
    assert failure.cause == "chief:0"


def test_a_loss_all_of_whose_tasks_were_stopped_is_over_and_not_before() -> None:
    run = lost("ps:0", "sync-ps")
    run.view.wanted(ALL, want="stop")
    views.reported(run.view, *ALL - {"worker:1"}, state="stopped")
    run.step(100.0)
    assert given_up(run.incidents[0]) is None
    views.reported(run.view, "worker:1", state="stopped")
    run.step(100.0)
    assert given_up(run.incidents[0]) is not None


def test_silence_is_counted_from_zero_after_a_host_was_away() -> None:
    run = hung()
    run.view.hosts["a"]["connected"] = False
    run.step(150.0)
    run.view.hosts["a"]["connected"] = True
    run.step(200.0)
    run.step(199.0 + SILENCE_S)
    assert len(run.incidents) == 1
    run.step(200.0 + SILENCE_S)
    assert len(run.incidents) == 2


@pytest.mark.parametrize(("unreadable", "verified_all"), [("ps:0", True), ("chief:0", True), ("", False)])
def test_checkpoints_are_verified_when_any_lost_task_could_not_restore_one(unreadable: str, verified_all: bool) -> None:
    run = Run("sync-ps", recovery={"allow_scratch": True})
    causes = {}
    if unreadable:
        causes[unreadable] = "DataLossError: Checksum does not match"
    run.dies("ps:0", ended=1008.0, cause=causes.get("ps:0", ""))
    run.dies("chief:0", ended=1009.0, cause=causes.get("chief:0", ""))
    run.step(100.0)
    run.begins(*ALL)
    assert run.verified_all == [verified_all]


def test_restart_waits_for_the_repair_on_any_host_for_a_limited_time() -> None:
    run = lost("chief:0", coordinator={"host": "a", "address": "a:2221", "port": 2221})
    run.answers = False
    run.cleared("chief:0")
    run.step(101.0)
    assert run.view.intents["chief:0"]["repair"] == "quick"
    run.step(101.0 + ANSWER_S - 1.0)
    assert run.incidents[0]["begun"] is None
    run.step(101.0 + ANSWER_S)
    assert run.incidents[0]["begun"] is not None
    assert run.view.intents["chief:0"]["repair"] is None
    assert warnings_of(run.view.data) == ["checkpoints were not inspected: c does not answer"]


def test_a_repair_before_an_earlier_attempt_does_not_count() -> None:
    run = lost("chief:0")
    run.answers = False
    views.reported(run.view, "chief:0", attempt=3, repaired=made(Repaired, attempt=2, how="full"))
    run.cleared("chief:0")
    run.step(101.0)
    assert (run.view.intents["chief:0"]["repair"], run.incidents[0]["begun"]) == ("quick", None)
    run.answers = True
    run.step(102.0)
    assert run.incidents[0]["begun"] is not None


def test_a_lead_that_a_person_has_started_meanwhile_is_not_waited_for() -> None:
    run = lost("chief:0")
    run.view.wanted(["chief:0"], want="run")
    views.reported(run.view, "chief:0", state="running", generation=run.view.intents["chief:0"]["generation"])
    run.step(101.0)
    assert (run.verified_all, run.incidents[0]["begun"] is not None) == ([], True)


def test_an_order_to_repair_ends_with_the_hold_that_it_belongs_to() -> None:
    """Else the lead's host would repair while other tasks of the gang still save."""
    run = lost("ps:0", "sync-ps")
    run.answers = False
    run.cleared(*ALL)
    run.step(101.0)
    lead = run.view.intents["chief:0"]
    assert lead["repair"] == "quick"
    run.view.wanted(ALL, want="run", generation=3)
    views.reported(run.view, *ALL, state="running", generation=3, attempt=2)
    run.step(102.0)
    run.dies("ps:1")
    run.step(103.0)
    assert made(Intent, **lead)["want"] == "hold"
    assert made(Intent, **lead)["repair"] is None

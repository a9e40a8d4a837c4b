"""Tasks and hosts on the command line: which are meant, made ready, replaced, and stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.answers import DownResult
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.run_state import Intent
from dtctl.agent.records.whole_run import RunView
from dtctl.agent.requests.drain import Held
from dtctl.agent.run import drains
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender
from dtctl.config.cluster import Cluster
from dtctl.errors import AgentError, DtctlError, PreflightError, TransportError, UsageError
from dtctl.model import Host, Local, TaskId
from dtctl.operations import down
from dtctl.operations.client import Progress
from dtctl.operations.drain import Scaling, scale
from dtctl.operations.push import push
from dtctl.operations.replace import as_scaled, check_replaceable, plan_replacement, unanswered
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.selection import select_hosts, select_tasks
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, Verdict
from dtctl.operations.stop import StopOrder, Stopping, listener, stop
from dtctl.operations.up import readying
from dtctl.operations.up.readying import converse
from dtctl.plan import plan_roster
from dtctl.render.result import show_scaled
from dtctl.rooms.execute.operation import targets
from dtctl.transport.seam import Message
from tests.unit.clusters import cluster, job, ssh_host
from tests.unit.coordinated import record, viewed
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.operations.test_one_connection import stopped


def frame(**tasks: tuple[str, float | None, int | None]) -> dict[str, Any]:
    """`worker_0=(way, for_s, signal)`."""
    named = {name.replace("_", ":"): values for name, values in tasks.items()}
    stopping = {name: {"way": way, "for_s": for_s, "signal": number} for name, (way, for_s, number) in named.items()}
    return {"type": "stopping", "grace_s": 30.0, "tasks": stopping}


def heard(host: str, progress: Mapping[str, Any]) -> list[Stopping]:
    found: list[Stopping] = []
    listener(record(), found.append)["stopping"](record().hosts[host], Message(progress))
    return found


def test_the_coordinator_reports_all_tasks() -> None:
    [told_of] = heard("c", frame(ps_0=("waits", None, None), worker_1=("ended", 3.0, 9)))
    assert told_of == Stopping(
        30.0,
        {
            TaskId("ps", 0): {"way": "waits", "for_s": None, "signal": None},
            TaskId("worker", 1): {"way": "ended", "for_s": 3.0, "signal": 9},
        },
    )


def test_other_hosts_report_their_own_tasks_only() -> None:
    [told_of] = heard("d", frame(worker_0=("ended", 1.0, None), worker_1=("saving", 1.0, None)))
    assert set(told_of.tasks) == {TaskId("worker", 1)}
    assert heard("d", frame(worker_0=("ended", 1.0, None))) == []
    assert heard("c", frame(chief_7=("saving", 1.0, None))) == []


def answering(*frames: Mapping[str, Any]) -> FakeTransport:
    """Agents that say this and then that worker:0 has stopped."""
    return FakeTransport(lambda *_: [*map(dict, frames), stopped("worker:0")])


def test_progress_is_passed_on_in_order_before_the_answer() -> None:
    found: list[Stopping] = []
    transport = answering(frame(worker_0=("saving", 1.0, None)), frame(worker_0=("ended", 4.0, None)))
    result = stop(record(), transport, tuple(record().roster), StopOrder("me@here"), found.append)
    assert [one.tasks[TaskId("worker", 0)]["way"] for one in found] == ["saving", "ended"]
    assert result.stopped == (TaskId("worker", 0),)


@pytest.mark.parametrize(
    "lie",
    [
        frame(worker_0=("dancing", 1.0, None)),
        frame(worker_0=("saving", -1.0, None)),
        frame(worker_0=("ended", 1.0, 99)),
        {**frame(), "grace_s": "long"},
        {"type": "states", "run": "digits-1"},
    ],
    ids=["way", "seconds", "signal", "grace", "another frame"],
)
def test_invalid_agent_messages_are_refused(lie: Mapping[str, Any]) -> None:
    transport = answering(lie)
    found: list[Stopping] = []
    order = StopOrder("me@here")
    result = stop(record(), transport, tuple(record().roster), order, found.append)
    assert not found
    assert result.away is not None, "the answer of the coordinator is not accepted, and every host is asked"
    assert all(isinstance(error, TransportError) for error in result.errors.values())


PUSHED = {"type": "result", "bundle": "b", "sent_files": 1}
Frames = list[dict[str, Any] | DtctlError]


@pytest.fixture
def sender(tmp_path: Path) -> Sender:
    (tmp_path / "train.py").write_text("print()")
    return Sender(scan(tmp_path))


def conversation(frames: Frames, sender: Sender | None, until: str = "result") -> list[Progress]:
    """What is reported of it."""
    session = FakeSession(Host("gpu-3", Local()), lambda _, fields: frames if fields["type"] == "go" else [])
    session.send({"type": "go"})
    reports: list[Progress] = []
    converse(session, sender, reports.append, until=until)
    return reports


def need(*indexes: int) -> dict[str, Any]:
    return {"type": "need", "files": list(indexes)}


def need_block(index: int, number: int) -> dict[str, Any]:
    return {"type": "need", "blocks": [{"index": index, "number": number}]}


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([need(7)], "gpu-3 needs a file 7 of a bundle of 1"),
        ([need(2**53)], "gpu-3 needs a file"),
        ([need(0) for _ in range(10)], "gpu-3 requests the same files repeatedly"),
        ([need() for _ in range(2000)], "gpu-3 requests the same files repeatedly"),
        ([{"type": "need", "digests": [7]}], "gpu-3 needs a file 7 of a bundle of 1"),
        ([{"type": "need", "digests": [0]} for _ in range(10)], "gpu-3 requests the same files repeatedly"),
        ([need_block(7, 0)], "gpu-3 needs a file 7 of a bundle of 1"),
        ([need_block(0, 1)], "gpu-3 requests data beyond the end of a file"),
        ([need_block(0, 0) for _ in range(10)], "gpu-3 requests the same files repeatedly"),
        ([{"type": "started", "run": "r", "tasks": {}}], "gpu-3 sent a `started` instead of a `result`"),
        ([{"type": "log", "task": "a:0", "attempt": 1, "offset": 0, "end": 0, "time": 0}], "gpu-3 sent a `log`"),
    ],
)
def test_files_outside_the_bundle_are_not_sent(frames: Frames, why: str, sender: Sender) -> None:
    with sender, pytest.raises(TransportError, match=why):
        conversation(frames, sender)


def test_a_host_that_is_to_start_has_all_it_needs() -> None:
    with pytest.raises(TransportError, match="gpu-3 requests files again that it has received"):
        conversation([need(0)], None, until="started")


def test_a_flood_of_progress_does_not_flood_the_screen(sender: Sender) -> None:
    frames: Frames = [{"type": "progress", "phase": "receive", "done_bytes": n} for n in range(10_000)]
    with sender:
        reports = conversation([*frames, dict(PUSHED)], sender)
    assert 1 <= len(reports) < 500


def test_output_of_a_setup_is_shown_up_to_a_limit(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readying, "SETUP_TEXT_BYTES", 1000)
    frames: Frames = [{"type": "progress", "phase": "setup", "payload": b"x" * 99 + b"\n"} for _ in range(100)]
    with sender:
        reports = conversation([*frames, dict(PUSHED)], sender)
    assert [one.text for one in reports[:10]] == ["x" * 99 + "\n"] * 10
    assert "not shown" in reports[10].text
    assert len(reports) == 11


def test_push_to_a_lying_host_reaches_all_others(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> Frames:
        if fields["type"] != "push":
            return []
        return [need(99)] if session.host.name == "d" else [need(0), dict(PUSHED)]

    done = push(record(), scan(tmp_path), FakeTransport(answer), lambda progress: None)
    assert (sorted(done.results), list(done.errors)) == (["a", "b", "c"], ["d"])


def with_spares(**settings: Any) -> Cluster:
    hosts = [ssh_host(name) for name in "abcdef"]
    return cluster(hosts=hosts, **{"spares": ("e", "f"), **settings})


def test_the_first_spare_takes_the_place() -> None:
    exchange = plan_replacement(with_spares(), "b", None)
    assert (exchange.new, exchange.tasks) == ("e", (TaskId("ps", 1),))
    assert exchange.cluster.jobs["ps"].hosts == ("a", "e")
    assert exchange.cluster.jobs["worker"].hosts == ("c", "d")
    assert exchange.cluster.spares == ("f",)
    assert not exchange.moves_the_lead
    assert plan_replacement(with_spares(), "c", None).moves_the_lead


def test_a_host_that_is_named_need_not_be_a_spare_and_is_needed_without_one() -> None:
    assert plan_replacement(with_spares(spares=()), "b", "f").cluster.jobs["ps"].hosts == ("a", "f")
    with pytest.raises(UsageError, match="no spare"):
        plan_replacement(with_spares(spares=()), "b", None)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("x", None, "x has no task"),
        ("e", None, "e has no task"),
        ("b", "x", "there is no host 'x'"),
        ("b", "c", "c has tasks of its own: worker:0"),
        ("b", "b", "b has tasks of its own: ps:1"),
    ],
)
def test_hosts_that_cannot_give_or_take_are_refused(old: str, new: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_replacement(with_spares(), old, new)


def found(run: RunRecord, time: float = 1.0, outcome: Outcome = Outcome.RUNNING) -> RunStatus:
    return RunStatus(run, {}, Verdict(outcome, ()), (), time)


def test_a_file_that_differs_from_the_run_is_refused() -> None:
    other = plan_replacement(with_spares(), "a", "f")
    run = record_of(plan_roster(plan_replacement(with_spares(), "b", "e").cluster))
    with pytest.raises(PreflightError, match="differs from run") as refused:
        check_replaceable(with_spares(), other, found(run))
    assert "ps:1: b in the file, e in the run" in refused.value.detail
    check_replaceable(with_spares(), other, found(record_of(plan_roster(with_spares()))))
    check_replaceable(with_spares(), other, found(run, outcome=Outcome.STOPPED))
    with pytest.raises(UsageError, match="there is no run of"):
        check_replaceable(with_spares(), other, found(run, time=0.0))


def test_replace_that_was_killed_at_its_end_can_be_typed_again() -> None:
    exchange = plan_replacement(with_spares(), "b", "e")
    run = dataclasses.replace(record_of(plan_roster(exchange.cluster)), replaced={"b": "e"})
    check_replaceable(with_spares(), exchange, found(run))


def test_the_hint_after_a_replacement_does_not_lead_back_to_the_lost_host() -> None:
    run = record_of(plan_roster(plan_replacement(with_spares(), "b", "e").cluster))
    with pytest.raises(PreflightError) as refused:
        check_replaceable(
            with_spares(),
            plan_replacement(with_spares(), "a", "f"),
            found(dataclasses.replace(run, replaced={"b": "e"})),
        )
    assert "--replace" not in refused.value.hint
    assert refused.value.hint.startswith("write e in the place of b into ")


@pytest.mark.parametrize(
    ("time", "errors", "unanswering"),
    [
        (0.0, {"b": TransportError("away")}, []),
        (0.0, {"b": TransportError("away"), "c": TransportError("away")}, ["c"]),
        (0.0, {"b": AgentError("damaged", "no")}, ["b"]),
        (1.0, {"c": TransportError("away")}, []),
    ],
)
def test_a_host_that_up_has_missed_can_be_replaced_before_there_is_a_run(
    time: float, errors: dict[str, DtctlError], unanswering: list[str]
) -> None:
    status = dataclasses.replace(found(record_of(plan_roster(with_spares())), time=time), errors=errors)
    assert [*unanswered(plan_replacement(with_spares(), "b", "e"), status)] == unanswering
    check_replaceable(with_spares(), plan_replacement(with_spares(), "b", "e"), status)


RECORD = record_of(
    plan_roster(cluster(job("ps", ["n1", "n2"], [1, 1]), job("worker", ["n1", "n2", "n3", "n3"], [2, 2, 2, 3])))
)


@pytest.mark.parametrize(
    ("args", "tasks"),
    [
        ([], "ps:0 ps:1 worker:0 worker:1 worker:2 worker:3"),
        (["worker:1"], "worker:1"),
        (["worker"], "worker:0 worker:1 worker:2 worker:3"),
        (["worker:0-2"], "worker:0 worker:1 worker:2"),
        (["worker:0,3"], "worker:0 worker:3"),
        (["@n3"], "worker:2 worker:3"),
        (["@n[1-2]"], "ps:0 ps:1 worker:0 worker:1"),
        (["worker:3", "ps", "worker:3"], "ps:0 ps:1 worker:3"),
    ],
)
def test_selectors_expand_to_tasks_in_file_order(args: list[str], tasks: str) -> None:
    assert " ".join(map(str, select_tasks(RECORD, args))) == tasks


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("wroker:1", "there is no job 'wroker'", "worker"),
        ("worker:9", "there is no task worker:9", "worker:3"),
        ("worker:x", "'worker:x' is not a task", "worker:0-3"),
        ("@n9", "there is no host 'n9'", "n"),
        ("worker:", "'worker:' is not a task", "worker:1"),
    ],
)
def test_an_unknown_selector_lists_valid_ones(word: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        select_tasks(RECORD, [word])
    assert message in error.value.summary
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("args", "exclude", "tasks"),
    [
        ([], ["@n3"], "ps:0 ps:1 worker:0 worker:1"),
        (["worker"], ["worker:3"], "worker:0 worker:1 worker:2"),
        (["worker"], ["worker:0-1", "@n3", "ps"], None),
        (["@n[1-3]"], ["ps", "worker:0,2"], "worker:1 worker:3"),
        (["ps"], ["worker:3"], "ps:0 ps:1"),
    ],
)
def test_excluded_tasks_are_left_out(args: list[str], exclude: list[str], tasks: str | None) -> None:
    if tasks is not None:
        assert " ".join(map(str, select_tasks(RECORD, args, exclude))) == tasks
        return
    with pytest.raises(UsageError, match="no task is left without worker:0-1 and @n3 and ps") as error:
        select_tasks(RECORD, args, exclude)
    assert error.value.hint == "exclude fewer of worker:0, worker:1, worker:2, worker:3"


@pytest.mark.parametrize("select", [select_tasks, select_hosts])
@pytest.mark.parametrize("word", ["wroker:1", "@n9", "worker:9"])
def test_an_unknown_excluded_name_is_refused_as_a_named_one_is(
    select: Callable[[RunRecord, Sequence[str], Sequence[str]], object], word: str
) -> None:
    with pytest.raises(UsageError, match="there is no"):
        select(RECORD, ["worker"], [word])


def test_a_command_runs_on_what_is_left_hosts_or_tasks_as_they_are_named() -> None:
    def names(where: list[str], *exclude: str) -> str:
        return " ".join(target.name for target in targets(RECORD, where, exclude))

    assert names([], "@n3") == "@n1 @n2"
    assert names([], "worker:3", "ps") == "worker:0 worker:1 worker:2"
    assert names(["worker"], "@n3") == "worker:0 worker:1"
    assert names(["@n[1-3]"], "worker:3") == "@n1 @n2"


def test_excluded_hosts_are_named_plainly_or_by_their_tasks() -> None:
    assert select_hosts(RECORD, [], ["n2"]) == ("n1", "n3")
    assert select_hosts(RECORD, ["@n[1-3]"], ["worker:2"]) == ("n1", "n2")
    assert select_hosts(RECORD, ["n1"], ["@n[2-3]"]) == ("n1",)
    with pytest.raises(UsageError, match="no host is left without worker") as error:
        select_hosts(RECORD, [], ["worker"])
    assert error.value.hint == "exclude fewer of n1, n2, n3"


def test_hosts_are_named_plainly_or_by_their_tasks() -> None:
    assert select_hosts(RECORD, ["n2", "@n1"]) == ("n1", "n2")
    assert select_hosts(RECORD, ["worker:2"]) == ("n3",)
    assert select_hosts(RECORD, []) == ("n1", "n2", "n3")


TOO_MANY = made(Intent, want="hold", holds=[*drains.beyond("worker", 1, "bob@desk", ["worker:1"]).values()])


@pytest.mark.parametrize(
    ("intents", "number", "shown"),
    [
        ({"worker:1": TOO_MANY}, 1, "worker: 1 of 2: 1 task stopped, 0 left\n"),
        ({"worker:1": made(Intent)}, 2, "worker: 2 of 2: 1 task stopped, 0 left\n"),
    ],
    ids=["as asked", "scaled by another command meanwhile"],
)
def test_scale_shows_the_number_that_the_coordinator_reports_afterwards(
    capsys: pytest.CaptureFixture[str], intents: Mapping[str, Any], number: int, shown: str
) -> None:
    answer = {**stopped("worker:1"), "coordination": viewed(intents=intents)}
    scaling = Scaling(record(), "worker", 2, 1, 2, (), (TaskId("worker", 1),))
    scaled = scale(scaling, FakeTransport(lambda *_: [answer]), StopOrder("me@here"))
    show_scaled(scaling, scaled, dry_run=False)
    assert scaled.number == number
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("outcome", "intents", "replicas"),
    [
        (Outcome.RUNNING, {"worker:1": TOO_MANY}, 1),
        (Outcome.RUNNING, {"worker:1": made(Intent)}, None),
        (Outcome.STOPPED, {"worker:1": TOO_MANY}, 2),
    ],
    ids=["scaled down", "scaled up", "the file's, where no run is live"],
)
def test_replace_keeps_the_number_of_tasks_of_the_live_run(
    outcome: Outcome, intents: Mapping[str, Any], replicas: int | None
) -> None:
    coordination = Coordination.of(checked(RunView, viewed(intents=intents)), record().roster, ())
    run = dataclasses.replace(found(record(), outcome=outcome), coordination=coordination)
    workers = dataclasses.replace(job("worker", ["c", "d"], [1, 1]), replicas=2)
    assert as_scaled(cluster(workers), run).jobs["worker"].replicas == replicas


class Handle:
    """What `drain` reads of a run, for a test that changes it."""

    def __init__(self) -> None:
        self.wanted: dict[str, Intent] = {"worker:1": made(Intent)}

    def intents(self) -> dict[str, Intent]:
        return self.wanted

    def entry(self, task: str) -> None:
        return None


def test_drain_waits_for_no_task_that_another_command_lets_run_again() -> None:
    held, handle = Held(), Handle()
    over = []
    for intent in (made(Intent), TOO_MANY, made(Intent)):
        handle.wanted = {"worker:1": intent}
        over.append(held.is_over(handle, "worker:1"))  # type: ignore[arg-type]
    assert over == [False, False, True]


def removed(**fields: Any) -> Any:
    return made(DownResult, **{"stopped": [], "already": [], "survivors": [], "removed": ["r-1"], "kept": [], **fields})


def test_down_names_who_reports_a_host_that_gave_no_answer_and_who_waits_for_it() -> None:
    answers = {
        "a": removed(awaits={"r-1": ["c"], "r-0": ["c", "d"]}, waits=["r-1"]),
        "b": removed(awaits={"r-1": ["c"]}),
    }
    assert down._awaited(answers) == {"c": down.Waiters(("a", "b"), ("a",)), "d": down.Waiters(("a",), ())}
    answers["e"] = removed(over=["r-0", "r-1"])
    assert down._awaited(answers) == {}, "its coordinator has heard of every end"

"""Hosts without a task in a start and in a run: who may fail, whose tasks are where, and whose report is accepted."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.spec import Inventory
from dtctl.agent.records.whole_run import RunView
from dtctl.config.cluster import Recovery
from dtctl.errors import AgentError, DtctlError, PreflightError, TransportError, UsageError
from dtctl.model import Host, TaskId
from dtctl.operations import coordinator, drain, replace
from dtctl.operations.client.plausible import check_coordinator, check_view, possible_tasks, tasks_of
from dtctl.operations.coordinator import agreed, dissenters
from dtctl.operations.credentials import Authority
from dtctl.operations.history import Memory
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.selection import select_hosts
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, Verdict
from dtctl.operations.status import status
from dtctl.operations.stop import Ending, StopOrder, stop
from dtctl.operations.up import up as starting
from dtctl.operations.up.launch import Start
from dtctl.plan import plan_roster
from dtctl.plan.run import plan_run
from dtctl.render.status import idle_lines, more_lines
from dtctl.transport.seam import Session
from tests.unit.clusters import cluster, ssh_host
from tests.unit.coordinated import HOSTS, Agents, entry, inventory, state_of, viewed
from tests.unit.fakes import FakeTransport
from tests.unit.holds import held
from tests.unit.operations.test_up import READY, agents, launch, started, unless, willing
from tests.waiting import PATIENCE_S, eventually

__all__ = ["launch"]

SPARED = dataclasses.replace(
    cluster(hosts=[ssh_host(name) for name in "abcdstz"]),
    spares=("s", "t"),
    arbiters=("z",),
    recovery=Recovery(replace_s=300.0),
)


@pytest.fixture
def spared(launch: Start) -> Start:
    plan = plan_run(SPARED, {name: name for name in SPARED.hosts}, local_python="python3")
    return dataclasses.replace(launch, plan=plan, record=record_of(plan, "digits-1", 1000.0), authority=Authority("r"))


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("up", TransportError("down")),
        ("up", AgentError("changed_run", "another run is live")),
        ("start", AgentError("port_taken", "port 2221 is taken")),
    ],
)
@pytest.mark.parametrize("host", ["s", "z"])
def test_start_goes_on_without_a_spare_or_an_arbiter_that_fails(
    spared: Start, kind: str, error: DtctlError, host: str
) -> None:
    sent: dict[str, list[Mapping[str, Any]]] = {}

    def answers(session: Any, fields: Mapping[str, Any]) -> Any:
        sent.setdefault(session.host.name, []).append(fields)
        return unless(kind, host, error)(session, fields)

    result = started(spared, answers)
    assert (list(result.absent), set(map(str, result.started))) == ([host], {"ps:0", "ps:1", "worker:0", "worker:1"})
    asked = {name: [fields["type"] for fields in each] for name, each in sent.items()}
    assert {name for name, each in asked.items() if each == ["up", "start", "keep"]} == set("abcdstz") - {host}
    begin = sent["c"][1]
    if kind == "up":  # what the run is begun without it can join later
        assert (begin["absent"], list(begin["pending_hosts"])) == ([host], [host])


def test_start_fails_with_a_host_that_has_tasks_as_ever(spared: Start) -> None:
    with pytest.raises(DtctlError, match="down"):
        started(spared, unless("up", "a", TransportError("down")))


def test_spare_whose_port_is_taken_is_left_out_of_the_start(spared: Start) -> None:
    taken = {"port": 2221, "whose": "the coordinator", "holder": "nginx"}
    answer = {**READY, "taken": [taken], "free_from": []}
    fixed = dataclasses.replace(spared, replan=None)
    result = started(fixed, unless("up", "s", answer))
    assert list(result.absent) == ["s"]


def test_arbiter_is_sent_neither_code_nor_secrets(spared: Start) -> None:
    asked: dict[str, Mapping[str, Any]] = {}
    noting = agents(up=lambda session, fields: asked.update({session.host.name: fields}))
    started(dataclasses.replace(spared, secrets={"KEY": "x"}), noting)
    assert {host: (one["bundle"] is None, one["secrets"]) for host, one in asked.items() if host in "sz"} == {
        "s": (False, {"KEY": "x"}),
        "z": (True, {}),
    }


RECORD = dataclasses.replace(record_of(plan_roster(SPARED), "digits-1", 1000.0), file=Path("/p/x.yaml"))


def inventory_after(number: int = 0, term: int = 0, elected: str | None = None, **moved: str) -> Inventory:
    """Of a run in which hosts have taken the places of others."""
    reported = inventory(RECORD)
    roster = [
        {**one, "host": moved[one["host"]], "slot": one["host"], "address": "there:1"} if one["host"] in moved else one
        for one in reported["roster"]
    ]
    spares = {name: {"address": name, "addresses": dict.fromkeys(HOSTS.values(), f"{name}:1")} for name in "st"}
    more = {"spares": spares, "arbiters": ["z"], "moved": {"number": number, "slots": moved}}
    found: Inventory = checked(Inventory, {**reported, **more, "roster": roster, "term": term, "elected": elected})
    return found


BEFORE, AFTER = inventory_after(), inventory_after(1, 2, "s", c="s")


@pytest.mark.parametrize(
    ("reported", "moved", "elected"),
    [
        ({"a": BEFORE, "b": BEFORE}, {}, None),
        ({"a": BEFORE, "b": AFTER, "s": AFTER}, {"c": "s"}, "s"),
        ({"a": BEFORE, "b": BEFORE, "s": AFTER, "z": AFTER}, {"c": "s"}, "s"),
        ({"a": BEFORE, "b": BEFORE, "d": AFTER}, {}, None),  # a single host that lies moves nothing
        ({"s": AFTER}, {"c": "s"}, "s"),
        ({"a": BEFORE, "b": AFTER}, {}, None),
    ],
)
def test_hosts_agree_on_a_run_though_not_all_have_heard_of_a_move(
    reported: dict[str, Inventory], moved: dict[str, str], elected: str | None
) -> None:
    answers: Any = {host: {"inventory": one} for host, one in reported.items()}
    found = agreed(RECORD, answers)
    assert found is not None
    assert dissenters(found, answers) == {}
    known = RECORD.as_known(found)
    assert (known.moved, known.elected, known.roster[TaskId("worker", 0)]) == (moved, elected, moved.get("c", "c"))
    assert set(known.hosts) == set("abcdstz")
    assert known.idle_hosts == tuple(name for name in "abcdstz" if name not in known.roster.values())


def test_report_of_a_host_outside_of_the_run_is_not_accepted() -> None:
    answers: Any = {"x": {"inventory": AFTER}}
    assert agreed(RECORD, answers) is None


def test_host_reports_tasks_that_it_has_or_had() -> None:
    tasks = {host: list(names) for host, names in tasks_of(AFTER).items()}
    assert tasks == {
        "a": ["ps:0"], "b": ["ps:1"], "c": ["worker:0"], "d": ["worker:1"], "s": ["worker:0"], "t": [], "z": [],
    }  # fmt: skip
    check_coordinator("s", AFTER)
    with pytest.raises(InvalidValue):
        check_coordinator("c", AFTER)


def test_coordinator_may_report_what_a_spare_that_is_gone_had() -> None:
    """It was replaced itself."""
    had = {"connected": False, "state": state_of("s", {"worker:0": entry()})}
    check_view(view_with({"s": had, "z": UP}), "digits-1", possible_tasks(inventory_after(2, c="t")))
    odd = {"state": state_of("s", {"worker:9": entry()})}
    with pytest.raises(InvalidValue, match="worker:9"):
        check_view(view_with({"s": odd}), "digits-1", possible_tasks(AFTER))


def test_commands_for_all_hosts_pass_over_those_without_tasks_unless_named() -> None:
    known = RECORD.as_known(AFTER)
    assert select_hosts(known, []) == known.task_hosts == ("a", "b", "d", "s")
    assert select_hosts(known, ["c", "t"]) == select_hosts(known, ["c", "@t"]) == ("c", "t")
    assert select_hosts(known, ["@c", "d", "t"], ["@t"]) == ("c", "d")


def test_moved_tasks_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    memory = Memory()
    memory.save(RECORD)
    memory.note_places(RECORD.as_known(AFTER))
    again = memory.load("digits-1")
    assert again is not None
    assert again.roster[TaskId("worker", 0)] == "s"


def test_stop_of_a_whole_run_without_a_coordinator_asks_idle_hosts_too() -> None:
    asked: list[str] = []

    def answers(session: Any, fields: Mapping[str, Any]) -> Any:
        asked.append(f"{fields['type']} {session.host.name}")
        raise AgentError("no_run", "there is no run")

    stop(RECORD, FakeTransport(answers), tuple(RECORD.roster), StopOrder("me"))
    assert {line for line in asked if line.startswith("stop")} >= {f"stop {host}" for host in "abdstz"}


def view_with(idle: Mapping[str, Mapping[str, Any]]) -> Any:
    reported = viewed()
    return checked(RunView, {**reported, "hosts": {**reported["hosts"], **idle}})


def status_of(known: RunRecord, idle: Mapping[str, Mapping[str, Any]]) -> RunStatus:
    coordination = Coordination.of(view_with(idle), known.roster, known.idle_hosts)
    return RunStatus(known, coordination.tasks, Verdict(Outcome.RUNNING, ()), (), 1010.0, coordination)


UP, AWAY, ABSENT = {"connected": True}, {"connected": False}, {"absent": True, "connected": False}


@pytest.mark.parametrize(
    ("reported", "idle", "lines"),
    [
        (BEFORE, {"s": UP, "t": UP, "z": UP}, ["spares: s,t ready", "arbiters: z ready"]),
        (
            BEFORE,
            {"s": AWAY, "t": UP, "z": ABSENT},
            ["spares: s away; t ready", "arbiters: z not started: dtctl up    adds it"],
        ),
        (AFTER, {"c": AWAY, "t": UP, "z": UP}, ["s has taken the place of c", "spares: t ready", "arbiters: z ready"]),
        (AFTER, {"c": UP, "t": UP, "z": UP}, ["s has taken the place of c", "spares: c,t ready", "arbiters: z ready"]),
    ],
)
def test_status_shows_idle_hosts_and_who_has_taken_whose_place(
    reported: Inventory, idle: dict[str, dict[str, Any]], lines: list[str]
) -> None:
    assert idle_lines(status_of(RECORD.as_known(reported), idle)) == lines


@pytest.mark.parametrize(
    ("known", "error", "lines"),
    [
        (
            RECORD.as_known(AFTER),
            TransportError("no route to c"),
            ["s has taken the place of c in the live run,"],
        ),
        (
            RECORD.as_known(AFTER),
            PreflightError("run r continues, but not on c"),
            ["s has taken the place of c"],
        ),
        (RECORD.as_known(BEFORE), TransportError("no route to c"), []),
        (
            dataclasses.replace(RECORD, replaced={"c": "e"}),
            AgentError("changed_run", "another run is live"),
            ["e has taken the place of c in the live run: write it into f.yaml"],
        ),
    ],
)
def test_up_that_fails_names_who_has_taken_a_place(known: RunRecord, error: DtctlError, lines: list[str]) -> None:
    reported = starting.taken_places(error, known, "f.yaml")
    assert [text.startswith(line) for text, line in zip(reported, lines, strict=True)] == [True] * len(lines)


@pytest.mark.parametrize(
    ("lost", "answer_of_it", "of_others", "finds_it"),
    [
        ("c", TransportError("no route"), {"unchanged": True}, True),
        ("d", TransportError("no route"), {"unchanged": True, "s": TransportError("no route to s")}, True),
        ("c", {"unchanged": False}, {"unchanged": True}, True),
        ("c", {"unchanged": True}, {"unchanged": True}, True),
        ("c", TransportError("no route"), {"unchanged": False, "run": "digits-2"}, False),
        ("c", TransportError("no route"), AgentError("changed_run", "another run is live"), False),
        ("c", TransportError("no route"), {"unchanged": True, "s": TransportError("no route to s")}, False),
    ],
    ids=[
        "gone",
        "gone with the other, which is allowed",
        "empty",
        "back",
        "the run is gone",
        "the file differs",
        "the other is away",
    ],
)
def test_up_without_a_host_that_was_replaced_finds_the_run_unchanged(
    spared: Start, lost: str, answer_of_it: Any, of_others: Any, finds_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spared = dataclasses.replace(spared, allow_missing=1 if lost == "d" else None)
    where = {"a": ["ps:0"], "b": ["ps:1"], "c": ["worker:0"], "d": ["worker:1"]}
    where["s"] = where.pop(lost)

    def answers(session: Any, fields: Mapping[str, Any]) -> Any:
        host = session.host.name
        if fields["type"] == "up":
            answer = answer_of_it if host == lost else of_others
            answer = answer.get(host, answer) if isinstance(answer, dict) else answer
            run = answer if isinstance(answer, DtctlError) else {**READY, "current": "digits-1", **answer}
            return [
                run if host != lost or isinstance(run, DtctlError) or run["unchanged"] else {**run, "current": None}
            ]
        if fields["type"] != "start":
            return willing(session, fields)
        tasks = {task: entry() for task in where.get(host, [])}
        return [{"type": "started", "run": "digits-1", "tasks": tasks}]

    live = Mock(return_value=status_of(RECORD.as_known(inventory_after(1, 2, "s", **{lost: "s"})), {}))
    monkeypatch.setattr(starting, "status", live)
    if not finds_it:
        with pytest.raises(DtctlError, match=r"no route|cannot prepare") as failed:
            started(spared, answers)
        assert ("s has taken the place of c" in failed.value.hint) is isinstance(of_others, dict)
        assert live.call_count == 1
        return
    result = started(spared, answers)
    assert (result.run, result.started, result.ended) == ("digits-1", {}, ())
    assert (result.moved, [*result.absent]) == ({lost: "s"}, ["s"] if lost == "d" else [])


def test_replace_names_who_has_taken_a_place() -> None:
    exchange = replace.plan_replacement(SPARED, "c", "s")
    with pytest.raises(PreflightError) as refused:
        replace.check_replaceable(SPARED, exchange, status_of(RECORD.as_known(AFTER), {}))
    assert refused.value.detail == "s has taken the place of c"


@pytest.mark.parametrize(("elected", "serial"), [("s", 9), (None, 5)])
def test_status_of_a_coordinator_without_a_lease_comes_from_the_elected_one(elected: str | None, serial: int) -> None:
    """It may have been cut off, and shows what it knew then."""

    def answers(session: Any, fields: Mapping[str, Any]) -> Any:
        host = session.host.name
        known = BEFORE if host == "c" else inventory_after(0, 2 if elected else 0, elected)
        run = type("Told", (Agents,), {"inventory": known})(run=RECORD)
        views = {"c": viewed(leased=False), elected: viewed(serial=9)}
        return [run.status(host, views.get(host))]

    found = status(RECORD, FakeTransport(answers))
    assert found.coordination is not None
    assert (found.record.elected, found.coordination.view["serial"]) == (elected, serial)
    reported = "c coordinates, but reaches no majority of the voting hosts: nothing is restarted until it does, or"
    assert (reported in "\n".join(more_lines(found))) is (elected is None)


def test_elected_coordinator_is_found_while_connecting_to_the_lost_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator, "SLOW_CONNECT_S", 0.05)
    over, connected = threading.Event(), threading.Event()

    def answers(session: Any, fields: Mapping[str, Any]) -> Any:
        known = inventory_after(0, 2, "s")
        run = type("Told", (Agents,), {"inventory": known})(run=RECORD)
        return [run.status(session.host.name, viewed(serial=9) if session.host.name == "s" else None)]

    class Slow(FakeTransport):
        def open(self, host: Host) -> Session:
            if host.name == "c":
                over.wait(PATIENCE_S)
                connected.set()
            return super().open(host)

    transport = Slow(answers)
    found = status(RECORD, transport)
    assert (found.record.elected, transport.opened.count("c")) == ("s", 0)
    over.set()
    assert connected.wait(PATIENCE_S)
    eventually(lambda: "c" in transport.sessions and transport.sessions["c"].closed, what="the late connection to end")
    assert transport.sessions["c"].received == []


@pytest.mark.parametrize(
    ("idle", "left"),
    [({"s": UP, "t": UP}, ("t",)), ({"s": UP, "t": AWAY}, ()), ({"s": UP, "t": {**UP, "drained": "anna"}}, ())],
)
def test_drain_of_a_spare_says_beforehand_who_can_take_places_besides_it(idle: Any, left: tuple[str, ...]) -> None:
    found = draining("s", BEFORE, view_with({**idle, "z": UP}))
    assert (found.tasks, found.restarts, found.spares) == ((), (), left)


def test_drain_of_a_host_that_is_none_of_the_run_is_refused() -> None:
    with pytest.raises(UsageError, match="x is not part of digits-1") as refused:
        draining("x", BEFORE, view_with({}))
    assert refused.value.hint == "its hosts: a,b,c,d,s,t,z"


RUN = {"want": "run", "version": 1}
ALONE = fact("drained_alone", host="d", by="anna")


@pytest.mark.parametrize(
    ("run", "intent", "ends", "restarts"),
    [
        ({"strategy": "mirrored", "resizes": True, "min_workers": 1}, RUN, ["worker:1"], ["ps:0", "ps:1", "worker:0"]),
        ({"strategy": "mirrored", "resizes": True}, RUN, ["ps:0", "ps:1", "worker:0", "worker:1"], []),
        ({"strategy": "async-ps", "min_workers": 1}, RUN, ["worker:1"], []),
        (
            {"strategy": "mirrored", "resizes": True, "min_workers": 1},
            {"version": 2, **held(ALONE)},
            [],
            [],
        ),
    ],
)
def test_drain_says_beforehand_who_restarts_with_fewer(run: Any, intent: Any, ends: Any, restarts: Any) -> None:
    roles = {"ps:0": "ps", "ps:1": "ps", "worker:0": "lead", "worker:1": "worker"}
    roster = [{**one, "role": roles[one["task"]], "scope": "task"} for one in BEFORE["roster"]]
    intents = {**dict.fromkeys(roles, RUN), "worker:1": intent}
    view = checked(RunView, {**viewed(), "intents": intents})
    found = draining("d", checked(Inventory, {**BEFORE, **run, "roster": roster}), view)
    assert ([*map(str, found.tasks)], [*map(str, found.restarts)]) == (ends, restarts)


def draining(host: str, run: Inventory, view: RunView) -> Ending:
    """What a person reads before the host is drained."""
    heard: list[Ending] = []
    agents = type("Told", (Agents,), {"inventory": run})(view, run=RECORD)
    done: Any = {"stopped": [], "already": [], "waiting": [], "survivors": []}
    agents.extra["drain"] = [{"type": "result", "run": "digits-1", "inventory": run, "coordination": view, **done}]
    drain.drain(RECORD, FakeTransport(agents), host, StopOrder("me"), before=heard.append)
    return heard[0]

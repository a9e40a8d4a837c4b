"""What an agent tells after its hello: all of its state, or how far its tasks have come where nothing else is new."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.agent.coordinate import following
from dtctl.agent.coordinate.following import Following, Report
from dtctl.agent.coordinate.view import View, first_view
from dtctl.agent.host import processes
from dtctl.agent.link import dialer, tls
from dtctl.agent.records.kinds import checked, fields_of, made
from dtctl.agent.records.messages import FROM_AGENT, PROTOCOL, Orders, Welcome
from dtctl.agent.records.run_state import Advance, Entry, Intent, Process, State
from dtctl.agent.run.intents import IntentFollower
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.survival import reboot
from tests.unit.agent.coordinate.slots import moved, on, with_spares
from tests.unit.agent.coordinate.world import spec_of

TASKS = ("worker:0", "worker:1")
MACHINE = {"time": 1.0, "cpus": 2, "load": 0.5, "memory_bytes": 8, "available_bytes": 4, "waiting": {}}
COMPLAINT = {"text": "waits for ps:0", "since": 1.0, "last": 2.0}


class Host:
    """state.json and intent.json of a host, and what is reported of them."""

    def __init__(self, brief: bool = True) -> None:
        entries = {task: made(Entry, state="running", attempt=1) for task in TASKS}
        self.state: Any = made(State, run="demo-1", host="far", machine=MACHINE, tasks=entries)
        intents: Any = {task: {"want": "run", "version": 1} for task in TASKS}
        self.intent: Any = SimpleNamespace(value={"serial": 1, "session": None, "tasks": intents}, lost_session=False)
        self.report = Report(brief)

    def tell(self, task: str = "", **fields: Any) -> Any:
        """With what has changed of the task, or of the state."""
        if task:
            self.state["tasks"][task].update(fields)
        else:
            self.state.update(fields)
        if fields:
            self.state["serial"] += 1
        return copy.deepcopy(self.report.news(self.state, self.intent))


@pytest.fixture
def host() -> Host:
    """It has reported its state."""
    made = Host()
    assert made.tell()["type"] == "state"
    return made


def test_unchanged_state_is_not_sent(host: Host) -> None:
    assert host.tell() is None


def test_progress_is_sent_alone(host: Host) -> None:
    assert host.tell("worker:1", step=5, loss="0.1") == {
        "type": "progress",
        "serial": 2,
        "tasks": {"worker:1": {"step": 5, "loss": "0.1"}},
    }
    assert host.tell("worker:1", loss="0.2")["tasks"] == {"worker:1": {"loss": "0.2"}}
    assert host.tell() is None


def test_a_machine_sample_is_sent_alone(host: Host) -> None:
    busy = {**MACHINE, "load": 9.0}
    assert host.tell(machine=busy) == {"type": "progress", "serial": 2, "tasks": {}, "machine": busy}


@pytest.mark.parametrize(
    ("task", "changed"),
    [
        ("worker:0", {"state": "backoff"}),
        ("worker:0", {"ready": True}),
        ("worker:0", {"step": 7, "attempt": 2}),
        ("worker:0", {"history": [{}]}),
        ("", {"finished": True}),
        ("", {"intent_serial": 3}),
    ],
)
def test_several_changes_are_sent_as_the_whole_state(host: Host, task: str, changed: dict[str, Any]) -> None:
    reported = host.tell(task, **changed)
    assert reported["type"] == "state"
    assert reported["state"] == host.state


@pytest.mark.parametrize("change", ["intent", "kept", "lost session"])
def test_intents_are_sent_with_the_whole_state(host: Host, change: str) -> None:
    if change == "intent":
        host.intent.value["serial"] += 1
    elif change == "kept":
        host.intent.value["session"] = {"pid": 1}
    else:
        host.intent.lost_session = True
    assert host.tell("worker:0", step=9)["type"] == "state"


def test_an_older_coordinator_is_sent_the_whole_state_each_time() -> None:
    assert not checked(Welcome, {"type": "welcome", "v": 2, "events_from": 0})["progress"], "it says nothing of that"
    host = Host(brief=False)
    assert [host.tell()["type"], host.tell("worker:0", step=1)["type"]] == ["state", "state"]
    assert host.tell() is None


def test_a_field_of_an_advance_is_as_that_of_an_entry() -> None:
    own, whole = fields_of(Advance), fields_of(Entry)
    assert {name: kind.description for name, (kind, _) in own.items()} == {
        name: whole[name][0].description for name in own
    }


CHANGES: list[tuple[str, list[Any]]] = [
    ("step", [None, 1, 2, 3]),
    ("progress", [1.0, 2.5]),
    ("rate", [None, 0.5]),
    ("cpu", [None, 0.5]),
    ("idle_since", [None, 4.0]),
    ("complaint", [None, COMPLAINT]),
    ("ready", [True, False]),
    ("state", ["running", "backoff"]),
    ("attempt", [1, 2, 3]),
]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_coordinator_has_the_state_that_the_agent_has(seed: int) -> None:
    chances = random.Random(seed)
    host = Host()
    spec = spec_of("async-ps", {"chief:0": "lead", **dict.fromkeys(TASKS, "far")})
    view = View(spec, first_view(spec, 0.0))
    types: list[str] = []
    for _ in range(100):
        for task in chances.sample(TASKS, chances.randint(0, 2)):
            name, values = chances.choice(CHANGES[: chances.choice([6, 6, 6, 9])])
            host.state["tasks"][task][name] = chances.choice(values)
        reported = host.tell(machine={**MACHINE, "load": chances.choice([0.5, 1.5])})
        reported = checked(FROM_AGENT[reported["type"]], json.loads(json.dumps(reported)))
        types.append(reported["type"])
        if reported["type"] == "progress":
            assert view.problem("far", reported) is None
            view.advance("far", reported)
        else:
            view.hosts["far"]["state"] = reported["state"]
        assert view.hosts["far"]["state"] == checked(State, host.state)
    assert types.count("progress") > 20
    assert types.count("state") > 1


WELCOME = checked(Welcome, {"type": "welcome", "v": PROTOCOL, "events_from": 0})


class Link:
    """In place of the Dialer."""

    def __init__(self, *_: Any) -> None:
        self.waiting: list[Any] = []
        self.sent: list[str] = []

    def step(self, now: float) -> list[Any]:
        said, self.waiting = self.waiting, []
        return said

    def send(self, message: Any) -> None:
        self.sent.append(message["type"])


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Hears what it is given, one message after the other. With True its machine was restarted."""
    monkeypatch.setattr(dialer, "Dialer", Link)
    monkeypatch.setattr(tls, "Identity", lambda *_: None)
    files = RunFiles(str(tmp_path / "runs" / "demo-1" / "far"))
    spec = {**spec_of("async-ps", {"chief:0": "lead", "worker:0": "far"}), "host": "far"}
    files.begin(files.stage(spec, {}, {}, made(Process, **processes.myself())), spec)  # type: ignore[arg-type]
    part = Following(files, spec, 100.0, rebooted=getattr(request, "param", False))  # type: ignore[arg-type]
    state = files.state()
    state["agent"] = {**made(Process, **processes.myself()), "since": 0.0}
    intent = IntentFollower(files)

    def hear(message: Any, step: int | None = None, now: float = 101.0, **known: Any) -> Following:
        next(iter(state["tasks"].values()))["step"] = step
        state["serial"] += step is not None
        part._dialer.waiting.append(message)  # type: ignore[attr-defined]
        part._spec.update(known)  # type: ignore[typeddict-item]
        intent.read()
        intent.take(part.step(now, 1000.0, state, intent) or {})
        return part

    return hear


def orders(**fields: Any) -> Any:
    return checked(Orders, {"type": "orders", "intents": {}, "recovering": False, "over": False, **fields})


def test_disconnected_agent_treats_silence_as_waiting(followed: Any) -> None:
    assert followed({"type": "connected"}).recovering
    assert not followed(WELCOME).recovering
    assert followed(orders(recovering=True)).recovering
    assert not followed(orders()).recovering
    assert followed({"type": "gone", "reason": "connection timed out", "last_received": 100.5}).recovering


def test_first_step_durations_of_peers_are_sent_with_each_order(followed: Any) -> None:
    followed(WELCOME)
    assert followed(orders(first_steps={"worker:0": 4.0})).first_steps == {"worker:0": 4.0}
    assert followed(orders()).first_steps == {}


@pytest.mark.parametrize(
    ("welcome", "reported"), [({"progress": True}, "progress"), ({}, "state")], ids=["of this build", "of an older one"]
)
def test_progress_is_sent_to_a_coordinator_that_supports_it(
    followed: Any, welcome: dict[str, Any], reported: str
) -> None:
    followed({"type": "connected"})
    followed(checked(Welcome, {"type": "welcome", "v": PROTOCOL, "events_from": 0, **welcome}))
    part = followed(orders(), step=7)
    assert part._dialer.sent == ["hello", "state", reported]
    followed({"type": "gone", "reason": "connection timed out", "last_received": 100.5})
    followed({"type": "connected"})
    followed(checked(Welcome, {"type": "welcome", "v": PROTOCOL, "events_from": 0, **welcome}), step=8)
    assert part._dialer.sent[3:] == ["hello", "state"], "what was reported before was reported to another coordinator"


def test_agent_without_reboot_may_start_tasks_at_once(followed: Any) -> None:
    assert followed({"type": "connected"}).may_start
    assert followed({**WELCOME, "may_start": False}).may_start


@pytest.mark.parametrize("followed", [True], indirect=True)
def test_after_a_reboot_nothing_starts_before_the_coordinators_order(followed: Any) -> None:
    assert not followed({"type": "connected"}).may_start
    assert not followed({**WELCOME, "may_start": False}).may_start
    assert not followed(orders(may_start=False)).may_start
    assert followed(orders()).may_start
    assert followed({"type": "gone", "reason": "connection timed out", "last_received": 100.5}).may_start


@pytest.mark.parametrize("followed", [True], indirect=True)
def test_a_welcome_to_a_run_that_goes_on_is_enough(followed: Any) -> None:
    assert followed(WELCOME).may_start


def test_agent_restarts_with_newer_moves_before_it_reports_anything(followed: Any) -> None:
    part = followed({"type": "connected"})
    assert part.moved is None
    part = followed({**WELCOME, "moved": moved(b="s")})
    assert part.moved == moved(b="s")
    assert not part.connected
    assert part._dialer.sent == ["hello"]


def test_agent_whose_tasks_may_have_moved_starts_nothing_before_an_answer(
    followed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 1000.0
    monkeypatch.setattr(following, "clock", lambda: seen)
    part = followed({"type": "connected"})
    followed(WELCOME)
    assert "ping" not in part._dialer.sent, "nobody may"
    spec: Any = on(with_spares("async-ps", {"chief:0": "lead", "worker:0": "far"}, "s"), "far")
    part = Following(part._files, spec, 100.0)
    assert not part.may_start
    state, intent = part._files.state(), IntentFollower(part._files)
    state["agent"] = {**made(Process, **processes.myself()), "since": 0.0}
    part._dialer.waiting.append(WELCOME)  # type: ignore[attr-defined]
    part.step(101.0, 0.0, state, intent)
    assert part.may_start
    assert "ping" not in part._dialer.sent, "the run may have ended"
    part._dialer.waiting.append(orders())
    part.step(101.0, 0.0, state, intent)
    assert "ping" in part._dialer.sent
    seen += 5.0
    part._dialer.waiting.append({"type": "pong", "n": 1})
    part.step(106.0, 0.0, state, intent)
    limit_s = part._fence.limit_s or 0.0
    seen = 1000.0 + limit_s - 0.1
    assert part.fence_s() is None
    seen = 1000.0 + limit_s
    assert part.fence_s() is not None


GONE = {"type": "gone", "reason": "connection timed out", "last_received": 100.0}


@pytest.mark.parametrize(
    ("absent", "reported", "kept"),
    [([], True, True), ([], False, False), (["far"], True, False)],
    ids=["kept", "not yet", "one that joins"],
)
def test_a_run_is_kept_when_its_coordinator_keeps_it_but_not_where_it_joins(
    followed: Any, monkeypatch: pytest.MonkeyPatch, absent: list[str], reported: bool, kept: bool
) -> None:
    offered: list[str] = []
    monkeypatch.setattr(reboot, "offer_later", offered.append)
    monkeypatch.setattr(processes, "find", lambda _: None)
    part = followed(WELCOME, absent=absent)
    followed(orders(kept=reported))
    assert (part._files.intent()["session"] is None) is kept
    assert offered == [part._files.root] * kept, "no session is left that could"


@pytest.mark.parametrize(
    ("passed_s", "begun", "ends"), [(599.0, False, False), (600.0, False, True), (600.0, True, False)]
)
def test_a_start_of_which_the_coordinator_never_heard_ends_when_it_has_failed_there(
    followed: Any, monkeypatch: pytest.MonkeyPatch, passed_s: float, begun: bool, ends: bool
) -> None:
    monkeypatch.setattr(processes, "find", lambda _: None)
    if begun:
        followed(WELCOME)
        followed(orders(intents={"chief:0": made(Intent, want="run", version=2)}))
    part = followed(GONE, now=100.0 + passed_s)
    wanted = part._files.intent()["tasks"].values()
    assert all((each["want"] == "stop") is ends for each in wanted)


VOTERS = [{"host": host, "address": f"10.0.0.{number}:1", "port": 1} for number, host in enumerate("abc")]


class Elector:
    """An agent that does not vote, in a run whose voters a, b and c are in the test's hands; a coordinates at first."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dialer, "Dialer", VoterLink)
        monkeypatch.setattr(tls, "Identity", lambda *_: None)
        files = RunFiles(str(tmp_path / "runs" / "demo-1" / "far"))
        spec = spec_of("async-ps", {"chief:0": "a", "ps:0": "b", "ps:1": "c", "worker:0": "far"}, voters=VOTERS)
        spec = {**spec, "coordinator": VOTERS[0], "host": "far"}  # type: ignore[typeddict-item]
        files.begin(files.stage(spec, {}, {}, made(Process, **processes.myself())), spec)
        self.files, self.now = files, 100.0
        self.part = Following(files, spec, self.now)
        self.state = files.state()
        self.state["agent"] = {**made(Process, **processes.myself()), "since": 0.0}
        self.intent = IntentFollower(files)
        self.step()

    def link(self, host: str) -> VoterLink:
        """To the host that it dials, or the one by which it asks a voter."""
        if self.part._place["host"] == host:
            return self.part._dialer  # type: ignore[return-value]
        assert self.part._inquiry is not None
        return self.part._inquiry._calls[host]._dialer  # type: ignore[return-value]

    def step(self, after_s: float = 0.1) -> Any:
        self.now += after_s
        self.intent.read()
        return self.part.step(self.now, 1000.0, self.state, self.intent)

    def hear(self, host: str, *messages: Any) -> Any:
        """From the connection to this host."""
        self.link(host).waiting += messages
        return self.step() or {}

    def claim(self, host: str, term: int, backs: str) -> Any:
        """The host's answer to a query."""
        return self.hear(host, {"type": "stance", "term": term, "backs": backs, "elected": True})

    def visit(self, host: str) -> None:
        """Waits until it dials this host."""
        for _ in range(30):
            if self.part._place["host"] == host:
                return
            self.step(1.0)
        raise AssertionError(host)


class VoterLink(Link):
    def close(self) -> None:
        pass

    def due(self) -> float:
        return float("inf")


@pytest.fixture
def elector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elector:
    made = Elector(tmp_path, monkeypatch)
    made.hear("a", {"type": "connected"}, {**WELCOME, "term": 1})
    assert made.part.connected
    made.hear("a", {"type": "gone", "reason": "connection timed out", "last_received": made.now})
    return made


STOPS = {"worker:0": {"want": "stop", "version": 9, "by": "stop"}}


def test_orders_of_a_host_that_claims_to_coordinate_wait_for_a_majority(elector: Elector) -> None:
    elector.visit("c")
    lie = [{"type": "connected"}, {**WELCOME, "term": 2**53}, orders(intents=STOPS, over=True)]
    assert elector.hear("c", *lie) == {}
    assert not elector.part.connected
    assert not elector.part.over
    assert elector.claim("b", 1, "a") == {}
    elector.link("c").waiting += [orders(intents=STOPS)] * 10_000
    assert elector.step() is None
    assert len(elector.part._kept) <= following.MOST_KEPT
    ballot = elector.files.ballot()
    assert ballot is not None
    assert (ballot["term"], ballot["coordinator"]) == (1, "a")


def test_orders_are_obeyed_once_two_of_three_voters_back_the_host(elector: Elector) -> None:
    elector.visit("b")
    assert elector.hear("b", {"type": "connected"}, {**WELCOME, "term": 2}, orders(intents=STOPS)) == {}
    assert elector.link("a").sent == elector.link("c").sent == ["query"]
    assert elector.claim("c", 2, "b") == checked(Orders, orders(intents=STOPS))["intents"]
    assert elector.part.connected
    ballot = elector.files.ballot()
    assert ballot is not None
    assert (ballot["term"], ballot["coordinator"]) == (2, "b")


def test_orders_without_a_welcome_and_after_a_redirection_are_not_obeyed(elector: Elector) -> None:
    elector.visit("c")
    elsewhere = {"type": "elsewhere", "term": 1, "backs": "a", "elected": True}
    assert elector.hear("c", {"type": "connected"}, orders(intents=STOPS)) == {}
    words = [elsewhere, {**WELCOME, "term": 1}, orders(intents=STOPS)]
    assert elector.hear("c", *words) == {}, "the welcome is not that of a, to which it is redirected"
    assert not elector.part.connected


@pytest.mark.parametrize("backs", ["c", "b"])
def test_a_redirection_leads_to_no_host_that_only_one_voter_names(elector: Elector, backs: str) -> None:
    elector.visit("c")
    elector.hear("c", {"type": "connected"}, {"type": "elsewhere", "term": 5, "backs": backs, "elected": True})
    assert elector.part._inquiry is not None
    assert elector.part._inquiry.elected == (1, "a")
    elector.claim("b", 5, backs)
    assert elector.part._inquiry.elected == (5, backs)


def test_other_hosts_names_in_an_answer_count_for_the_host_that_sent_it(elector: Elector) -> None:
    elector.visit("c")
    for _ in range(5):
        elector.claim("c", 7, "b")
        elector.claim("c", 7, "c")
    assert elector.part._inquiry is not None
    assert elector.part._inquiry.elected == (1, "a")


def test_the_run_is_over_when_a_majority_of_the_voters_says_so(elector: Elector) -> None:
    last_words = [{"type": "connected"}, WELCOME, orders(intents=STOPS, over=True)]
    elector.visit("c")
    assert elector.hear("c", *last_words) == {}
    assert not elector.part.over
    elector.hear("c", {"type": "gone", "reason": "closed", "last_received": elector.now})
    elector.visit("b")
    assert elector.hear("b", *last_words)["worker:0"]["want"] == "stop"
    assert elector.part.over


def over(elector: Elector, host: str, *, removed: bool) -> None:
    """A host claims that the run is over, and its connection ends."""
    elector.visit(host)
    words = orders(intents=STOPS, over=True, removed=removed)
    gone = {"type": "gone", "reason": "closed", "last_received": elector.now}
    elector.hear(host, {"type": "connected"}, WELCOME, words, gone)


@pytest.mark.parametrize("liar", ["b", "c"])
def test_the_run_is_removed_by_no_voters_word_alone(elector: Elector, liar: str) -> None:
    for host in ("c", "b"):
        over(elector, host, removed=host == liar)
    assert elector.part.over
    assert elector.part.is_superseded
    assert not elector.part.is_removed


def test_the_run_is_removed_when_a_majority_of_the_voters_says_so(elector: Elector) -> None:
    over(elector, "c", removed=True)
    assert not elector.part.is_removed
    over(elector, "b", removed=True)
    assert elector.part.over
    assert elector.part.is_removed


def test_the_run_is_removed_by_the_coordinators_own_word(elector: Elector) -> None:
    over(elector, "a", removed=True)
    assert elector.part.over
    assert elector.part.is_removed


def test_an_end_that_the_coordinator_orders_leaves_nobody_to_report_to(elector: Elector) -> None:
    elector.visit("a")
    end = orders(intents=STOPS, over=True, awaits=[])
    elector.hear("a", {"type": "connected"}, {**WELCOME, "term": 1}, end)
    assert elector.part.over
    assert not elector.part.is_superseded


def test_the_coordinators_own_word_ends_its_run(elector: Elector) -> None:
    elector.visit("a")
    assert elector.hear("a", {"type": "connected"}, WELCOME, orders(intents=STOPS, over=True))
    assert elector.part.over

"""What the coordinator's part makes of what comes over its links: lies end a connection and reach nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate import contacts
from dtctl.agent.coordinate.history import BURST_BYTES, CONTACT_BURST_BYTES
from dtctl.agent.coordinate.leading import LISTEN_AGAIN_S, SAVE_S, Leading
from dtctl.agent.coordinate.superseded import EndClaims
from dtctl.agent.host import paths, processes
from dtctl.agent.link import hub, tls
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.messages import FROM_AGENT, PROTOCOL
from dtctl.agent.records.reasons import said
from dtctl.agent.records.run_state import Process, State
from dtctl.agent.records.spec import Spec
from dtctl.agent.records.vitals import Machine
from dtctl.agent.records.whole_run import RunView
from dtctl.agent.run.intents import IntentFollower
from dtctl.agent.run.runfiles import RunFiles
from tests.reasons import reason_of, warnings_of
from tests.unit.agent.coordinate.slots import moved, with_spares
from tests.unit.agent.coordinate.world import Fields, spec_of

PLACES = {"chief:0": "lead", "worker:0": "good", "worker:1": "bad"}
WALL = 1_700_000_000.0
MACHINE = made(Machine, time=WALL, cpus=2, load=0.5, memory_bytes=8, available_bytes=4, waiting={})
LOST = {"attempt": 1, "started": WALL, "ended": WALL, "asked": False, "signal": 9}


class Links:
    """In place of the Hub: says what a test has it say, and keeps what it receives."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Any]] = []
        self.refused: list[tuple[str, str]] = []
        self.redirected: list[str] = []
        self.sent: list[tuple[str, Fields]] = []

    def step(self, now: float) -> list[tuple[str, Any]]:
        said, self.waiting = self.waiting, []
        return said

    def send(self, host: str, message: Fields) -> None:
        self.sent.append((host, message))

    def refuse(self, host: str, reason: str) -> None:
        self.refused.append((host, reason))

    def redirect(self, host: str) -> None:
        self.redirected.append(host)

    def due(self) -> None:
        return None

    def close(self) -> None:
        pass


class Voters:
    """In place of the Voter: a majority has what `committed` says, and grants a lease or does not."""

    is_deposed = False
    end = EndClaims([])
    inherited = None
    place = (1, "lead")

    def __init__(self) -> None:
        self.election = self
        self.leads, self.lease, self.committed = True, True, (0, 0)
        self.memo, self.ballot = (1, 0), {"term": 1}
        self.claims: dict[tuple[str, str], int] = {}

    def has_lease(self, now: float) -> bool:
        return self.lease

    def publish(self, view: RunView, now: float) -> tuple[int, int]:
        self.memo = (1, view["serial"])
        return self.memo

    def step(self, *_: Any) -> None:
        pass

    def unconfirmed(self, now: float) -> dict[tuple[str, str], int]:
        return self.claims

    def due(self) -> float:
        return float("inf")


class Desk:
    """A coordinator's part with its files, whose links are in a test's hands."""

    def __init__(self, directory: Path, spec: Spec | None = None) -> None:
        self.files = RunFiles(str(directory / "runs" / "demo-1" / "lead"))
        self.spec = spec or spec_of("async-ps", PLACES)
        self.files.begin(self.files.stage(self.spec, {}, {}, made(Process, **processes.myself())), self.spec)
        self.now, self.wall = 100.0, WALL
        self.open()

    def open(self, voters: Voters | None = None) -> None:
        """As a new supervisor does."""
        self.leading = Leading(self.files, self.spec, self.now, voter=voters)  # type: ignore[arg-type]
        self.links = Links()
        self.leading._hub = self.links  # type: ignore[assignment]
        self.state = self.files.state()
        self.state["agent"] = {**made(Process, **processes.myself()), "since": self.wall}
        self.intent = IntentFollower(self.files)

    def receive(self, host: str, *messages: Any) -> None:
        self.links.waiting += [(host, message) for message in messages]
        for _ in range(3):
            self.now, self.wall = self.now + 0.1, self.wall + 0.1
            self.leading.step(self.now, self.wall, self.state, self.intent)

    def state_of(self, host: str) -> State:
        """What cluster.json has of it after a while."""
        self.now, self.wall = self.now + SAVE_S, self.wall + SAVE_S
        self.receive(host)
        state = self.view["hosts"][host]["state"]
        assert state is not None
        return state

    def hello(self, host: str, **changed: Any) -> Any:
        agent = {"pid": 1, "start_time": 1, "boot_id": "b"}
        whole = {"type": "hello", "v": PROTOCOL, "run": "demo-1", "host": host, "agent": agent, "events": 0}
        return checked(FROM_AGENT["hello"], {**whole, **self.reported(host, **changed)})

    def news(self, host: str, **changed: Any) -> Any:
        return checked(FROM_AGENT["state"], {"type": "state", **self.reported(host, **changed)})

    def progress(self, **reported: Any) -> Any:
        return checked(FROM_AGENT["progress"], {"type": "progress", **reported})

    def reported(self, host: str, **changed: Any) -> Fields:
        own = [task for task, place in PLACES.items() if place == host]
        state = made(State, run="demo-1", host=host, tasks={task: {"state": "running", "attempt": 1} for task in own})
        intents = {task: {"want": "run", "version": 2} for task in own}
        return {"state": state, "intents": intents, "kept": True, "lost_session": False, **changed}

    @property
    def view(self) -> RunView:
        return checked(RunView, json.loads(Path(self.files.path("cluster.json")).read_text()))

    @property
    def events(self) -> list[Fields]:
        return [json.loads(line) for line in Path(self.files.path("history.jsonl")).read_text().splitlines()]

    def contacts(self) -> list[str]:
        return [reason_of(line) for line in self.events if line["kind"] == "contact"]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    made.receive("good", made.hello("good"))
    made.receive("bad", made.hello("bad"))
    assert {host for host, known in made.view["hosts"].items() if known["connected"]} >= {"good", "bad"}
    yield made
    made.leading.close()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("intents", {"worker:0": {"want": "stop", "version": 99}}, "intents are not those of its own tasks"),
        ("intents", {}, "intents are not those of its own tasks (worker:1)"),
        (
            "intents",
            {"worker:1": {"version": 3}, "chief:0": {"want": "stop", "version": 9}},
            "intents are not those of its own tasks (chief:0)",
        ),
        (
            "state",
            {"run": "demo-1", "host": "bad", "tasks": {"worker:1": {}, "chief:0": {"state": "failed"}}},
            "state are not those of its own tasks (chief:0)",
        ),
        (
            "state",
            {"run": "demo-1", "host": "bad", "tasks": {f"worker:{number}": {} for number in range(1, 6)}},
            "state are not those of its own tasks (worker:2, worker:3, worker:4)",
        ),
        ("state", {"run": "demo-1", "host": "bad", "tasks": {}}, "state are not those of its own tasks (worker:1)"),
        ("state", {"run": "demo-1", "host": "good", "tasks": {"worker:1": {}}}, "it reports the state of good"),
        ("state", {"run": "demo-2", "host": "bad", "tasks": {"worker:1": {}}}, "in run demo-2"),
    ],
)
@pytest.mark.parametrize("kind", ["hello", "state"])
def test_agent_reports_only_its_own_tasks(desk: Desk, kind: str, field: str, value: Any, said: str) -> None:
    lie = (desk.hello if kind == "hello" else desk.news)("bad", **{field: value})
    before = desk.view["intents"]
    desk.receive("bad", lie)
    assert desk.view["intents"] == before
    assert [host for host, _ in desk.links.refused] == ["bad"]
    assert not desk.view["hosts"]["bad"]["connected"]
    assert desk.view["hosts"]["good"]["connected"]
    [reported] = [text for text in desk.contacts() if "sent an invalid message" in text]
    assert said in reported
    desk.receive("bad", desk.hello("bad"))  # the genuine agent
    assert desk.view["hosts"]["bad"]["connected"]


def test_progress_alone_is_taken_into_the_state_of_its_host(desk: Desk) -> None:
    before, good = desk.state_of("bad"), desk.state_of("good")
    reported = {"serial": 7, "machine": MACHINE, "tasks": {"worker:1": {"step": 12, "loss": "0.5"}}}
    desk.receive("bad", desk.progress(**reported))
    entry = {**before["tasks"]["worker:1"], "step": 12, "loss": "0.5"}
    assert desk.state_of("bad") == {**before, "serial": 7, "machine": MACHINE, "tasks": {"worker:1": entry}}
    assert desk.state_of("good") == good
    desk.receive("bad", desk.progress(serial=8, tasks={"worker:1": {"loss": None}}))
    entry["loss"] = None
    assert desk.state_of("bad") == {**before, "serial": 8, "machine": MACHINE, "tasks": {"worker:1": entry}}


def test_progress_can_be_of_how_far_a_task_is_and_of_nothing_else(desk: Desk) -> None:
    desk.receive("bad", desk.progress(serial=7, tasks={"worker:1": {"state": "failed", "attempt": 9, "step": 12}}))
    entry = desk.state_of("bad")["tasks"]["worker:1"]
    assert (entry["state"], entry["attempt"], entry["step"]) == ("running", 1, 12)


def test_progress_of_another_hosts_task_ends_the_connection(desk: Desk) -> None:
    before = desk.state_of("good")
    desk.receive("bad", desk.progress(serial=7, tasks={"worker:0": {"step": 10**6}}))
    assert [host for host, _ in desk.links.refused] == ["bad"]
    assert desk.state_of("good") == before
    [reported] = [text for text in desk.contacts() if "sent an invalid message" in text]
    assert "it reports worker:0, which is not its own task" in reported
    desk.receive("bad", desk.progress(serial=8, tasks={"worker:1": {"step": 13}}))  # before its next hello
    assert desk.state_of("bad")["tasks"]["worker:1"]["step"] is None


def test_welcome_accepts_progress_messages(desk: Desk) -> None:
    welcomes = [(one["progress"], one["may_start"]) for _, one in desk.links.sent if one["type"] == "welcome"]
    assert welcomes == [(True, False)] * 2, "what is wanted meanwhile comes first"


def test_repeated_invalid_message_is_reported_once_and_different_ones_a_few_times(desk: Desk) -> None:
    for round_ in range(50):
        desk.receive("bad", desk.hello("bad", state=made(State, run=f"demo-{round_ // 25 + 2}", host="bad", tasks={})))
    assert len([text for text in desk.contacts() if "sent an invalid message" in text]) == 2
    for round_ in range(50):
        desk.receive("bad", {"type": "invalid", "reason": f"lie {round_}"})
    assert len([text for text in desk.contacts() if "sent an invalid message" in text]) == 10


def test_messages_after_an_invalid_hello_are_ignored(desk: Desk) -> None:
    desk.receive("bad", {"type": "gone", "reason": "it ended", "last_received": desk.now})
    event = {"time": WALL, "task": "worker:1", "attempt": 1, "from": "running", "to": "failed", "why": said("lie")}
    events: Any = checked(FROM_AGENT["events"], {"type": "events", "from": 0, "events": [event]})
    desk.receive("bad", desk.hello("bad", intents={}), events, desk.news("bad"))
    assert "lie" not in [reason_of(line) for line in desk.events]
    assert not desk.view["hosts"]["bad"]["connected"]


def test_flood_of_events_is_limited_and_reported_and_other_hosts_are_served(desk: Desk) -> None:
    event = {"time": WALL, "task": "worker:1", "attempt": 1, "from": "running", "to": "failed", "why": said("x" * 4000)}
    for first in range(0, 5000, 100):
        desk.receive("bad", checked(FROM_AGENT["events"], {"type": "events", "from": first, "events": [event] * 100}))
    assert Path(desk.files.path("history.jsonl")).stat().st_size < 1.1 * BURST_BYTES
    [reported] = [text for text in desk.contacts() if "more events than the event history takes" in text]
    assert reported.startswith("bad sends")
    event["task"] = "worker:0"
    desk.receive("good", checked(FROM_AGENT["events"], {"type": "events", "from": 0, "events": [event]}))
    assert desk.events[-1]["host"] == "good"


def test_a_host_that_reconnects_in_a_loop_is_left_out_of_the_history_after_a_while(desk: Desk) -> None:
    for round_ in range(1000):
        desk.receive("bad", {"type": "gone", "reason": f"lie {round_}", "last_received": desk.now})
        desk.receive("bad", desk.hello("bad"))
    assert Path(desk.files.path("history.jsonl")).stat().st_size < 2 * CONTACT_BURST_BYTES
    assert [text for text in desk.contacts() if "are left out" in text]
    assert desk.view["hosts"]["bad"]["connected"]
    before = len(desk.events)
    desk.receive("good", {"type": "gone", "reason": "a cut", "last_received": desk.now})
    desk.receive("good", desk.hello("good"))
    assert {one["host"] for one in desk.events[before:]} == {"good"}, "others are recorded as ever"


def test_event_of_a_foreign_task_is_not_recorded(desk: Desk) -> None:
    event = {"time": WALL, "task": "worker:0", "attempt": 1, "from": "running", "to": "failed", "why": said("lie")}
    desk.receive("bad", checked(FROM_AGENT["events"], {"type": "events", "from": 0, "events": [None, event]}))
    assert "lie" not in [reason_of(line) for line in desk.events]
    assert desk.links.refused == [("bad", "it reports worker:0, which is not its own task")]


def test_a_host_that_has_no_part_in_the_run_is_refused(desk: Desk) -> None:
    desk.receive("other", desk.hello("bad"))
    assert desk.links.refused == [("other", "other has no part in this run")]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"version": 1}',
        '{"serial": 1e999}',
        "another run",
        "a host too few",
        "a task too many",
        "\xff",
    ],
)
def test_damaged_view_is_set_aside_and_rebuilt_from_reports(desk: Desk, damage: str) -> None:
    path = Path(desk.files.path("cluster.json"))
    view: Any = desk.view
    if damage == "another run":
        damage = json.dumps({**view, "run": "demo-2"})
    elif damage == "a host too few":
        damage = json.dumps({**view, "hosts": {host: view["hosts"][host] for host in ("lead", "good")}})
    elif damage == "a task too many":
        damage = json.dumps({**view, "intents": {**view["intents"], "worker:9": {}}})
    desk.leading.close()
    path.write_bytes(damage.encode("latin-1"))
    history = [{"attempt": 1, "started": WALL, "ended": WALL, "asked": False, "code": 1}]
    entry = {"state": "running", "attempt": 2, "generation": 1, "history": history}
    state = made(State, run="demo-1", host="bad", tasks={"worker:1": entry})
    desk.open()
    desk.receive("good", desk.hello("good"))
    desk.receive("bad", desk.hello("bad", state=state))
    desk.receive("bad")
    assert desk.view["hosts"]["bad"]["connected"]
    assert desk.view["incidents"] == []  # what its tasks had suffered before was judged by the one before
    [aside] = path.parent.glob("cluster.json.damaged-*")
    assert aside.read_bytes() == damage.encode("latin-1")
    assert any(aside.name in text for text in desk.contacts())
    assert desk.view["intents"]["worker:1"]["version"] >= 2
    assert [reason_of(line) for line in desk.events if line["kind"] == "request"] == ["up"]  # nobody asked for more


def test_orders_are_written_to_disk_before_they_are_sent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that dies in between leaves no task with an intent that the next one knows nothing of."""
    on_disk = []
    path = Path(desk.files.path("cluster.json"))

    def send(host: str, message: Fields) -> None:
        if message["type"] == "orders" and message["intents"]:
            on_disk.append((json.loads(path.read_text())["intents"], message["intents"]))

    monkeypatch.setattr(desk.links, "send", send)
    entry = {"state": "backoff", "attempt": 1, "why": said(""), "history": [LOST]}
    desk.leading.coordinator.view.roster["worker:1"]["scope"] = "gang"
    desk.receive("bad", desk.news("bad", state=made(State, run="demo-1", host="bad", tasks={"worker:1": entry})))
    assert on_disk
    for written, sent in on_disk:
        assert {task: written[task] for task in sent} == sent


class Posts:
    """In place of Posting."""

    settled = False
    stepped = 0

    def step(self, view: RunView, *, over: bool, now: float) -> None:
        self.stepped += 1

    def readers(self) -> list[int]:
        return []

    def due(self) -> None:
        return None

    def close(self) -> None:
        pass


def test_agent_stays_until_its_hooks_are_delivered(desk: Desk) -> None:
    posts = Posts()
    desk.leading._posting = posts  # type: ignore[assignment]
    desk.leading._over = True
    assert not desk.leading.over
    posts.settled = True
    assert desk.leading.over


def test_start_that_may_be_cancelled_is_sent_to_no_hook(desk: Desk) -> None:
    posts = Posts()
    desk.leading._posting = posts  # type: ignore[assignment]
    desk.receive("good")
    assert desk.intent.value["session"] is not None
    assert posts.stepped == 0
    desk.intent.value["session"] = None
    desk.receive("good")
    assert posts.stepped > 0


def test_a_run_without_hooks_loads_nothing_of_them(desk: Desk) -> None:
    assert desk.leading._posting is None


def test_coordinator_without_its_port_does_not_wait_for_a_removed_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = ["demo-0"]
    served: list[list[str]] = []

    def listen(address: str, port: int, own: object, others: list[str], *_: object, **__: object) -> Links:
        served.append(others)
        if len(served) == 1:
            earlier.clear()
            raise OSError("the port is taken")
        return Links()

    monkeypatch.setattr(hub, "Hub", listen)
    monkeypatch.setattr(tls, "Identity", lambda *_: None)
    monkeypatch.setattr(contacts, "superseded_identities", lambda *_: list(earlier))
    desk.leading._hub = None
    desk.receive("good")
    desk.now += LISTEN_AGAIN_S
    desk.receive("good")
    assert served == [["demo-0"], []]


def ordered(desk: Desk) -> list[str]:
    """What has been wanted of the tasks on `good`, in its order."""
    found = [message for host, message in desk.links.sent if host == "good" and message["type"] == "orders"]
    return [intent["want"] for message in found for intent in message["intents"].values()]


@pytest.fixture
def voters(tmp_path: Path) -> Iterator[tuple[Desk, Voters]]:
    """All hosts are in touch, and nothing that the coordinator has published is held by a majority."""
    desk, voters = Desk(tmp_path), Voters()
    desk.open(voters)
    for host in ("good", "bad"):
        intents = {task: {"want": "hold"} for task, place in PLACES.items() if place == host}
        pending = {task: {"state": "pending"} for task in intents}
        desk.receive(host, desk.hello(host, state=made(State, run="demo-1", host=host, tasks=pending), intents=intents))
    yield desk, voters
    desk.leading.close()


def test_no_task_is_started_before_a_majority_of_the_voters_knows(voters: tuple[Desk, Voters]) -> None:
    desk, majority = voters
    assert ordered(desk) == []
    majority.committed = majority.memo
    desk.receive("good")
    assert ordered(desk) == ["run"]


def test_coordinator_is_in_doubt_after_losing_its_lease_not_before_its_first(tmp_path: Path) -> None:
    desk, voters = Desk(tmp_path), Voters()
    voters.lease = False
    desk.open(voters)
    leased = []
    for voters.lease in (False, True, False):
        desk.receive("good", desk.hello("good"))
        leased.append(desk.leading.coordinator.view.data["leased"])
    assert leased == [True, True, False]
    desk.leading.close()


def test_once_a_majority_knows_the_outcome_its_orders_wait_for_no_voter(voters: tuple[Desk, Voters]) -> None:
    desk, majority = voters
    desk.leading.coordinator.end_superseded(desk.now)
    desk.state_of("good")
    assert ordered(desk) == []
    majority.committed = (1, majority.memo[1])
    desk.receive("good")
    assert ordered(desk)[-1] == "stop"
    desk.receive("good", desk.hello("good"))  # all is forgotten that was sent to it; no more is ever committed
    assert ordered(desk).count("stop") > 1


def test_what_waits_when_the_lease_is_lost_and_the_run_ends_is_sent_as_an_end(voters: tuple[Desk, Voters]) -> None:
    desk, majority = voters
    majority.lease = False
    desk.leading.coordinator.end_superseded(desk.now)
    desk.state_of("good")
    assert set(ordered(desk)) == {"stop"}


def test_that_the_lease_is_over_is_on_the_disk_soon(voters: tuple[Desk, Voters]) -> None:
    """Sessions read there whether another may have been elected."""
    desk, majority = voters
    desk.state_of("good")
    seen = []
    for lease in (True, False, True):
        majority.lease = lease
        desk.now += SAVE_S
        desk.receive("good")
        seen.append(desk.view["leased"])
    assert seen == [True, False, True]


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[tuple[Desk, Voters]]:
    """The coordinator has decided that s takes the place of `bad`, and no voter knows it yet."""
    desk, voters = Desk(tmp_path, with_spares("async-ps", PLACES, "s")), Voters()
    desk.open(voters)
    desk.receive("good", desk.hello("good"))
    desk.leading.coordinator.view.data["moved"] = moved(bad="s")
    desk.state_of("good")
    yield desk, voters
    desk.leading.close()


def test_move_begins_when_a_majority_of_the_voters_knows_it_and_not_before(
    slots: tuple[Desk, Voters],
) -> None:
    desk, majority = slots
    desk.links.sent.clear()
    desk.receive("bad", desk.hello("bad"))
    assert (desk.leading.moved, desk.leading.may_start, desk.links.redirected) == (None, False, ["bad"])
    majority.committed = majority.memo
    desk.receive("good", desk.news("good", intents={"worker:0": {"want": "stop", "version": 9}}))
    assert desk.leading.moved == moved(bad="s")
    assert desk.links.sent == []


def no_space(*_: object) -> None:
    raise OSError(28, "no space")


def test_a_move_that_the_disk_does_not_take_is_not_begun(
    slots: tuple[Desk, Voters], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, majority = slots
    monkeypatch.setattr(majority, "publish", no_space)
    desk.leading.coordinator.view.data["moved"] = moved(2, bad="s")
    desk.state_of("good")
    majority.committed = majority.memo
    desk.receive("good")
    assert desk.leading.moved is None


def test_a_coordinator_that_ended_before_it_followed_its_own_move_goes_on_with_it(slots: tuple[Desk, Voters]) -> None:
    desk, majority = slots
    desk.leading.close()
    desk.open(majority)
    desk.receive("good")
    assert not desk.leading.may_start
    majority.committed = majority.memo
    desk.receive("good")
    assert desk.leading.moved == moved(bad="s")


@pytest.mark.parametrize(("is_full", "since"), [(False, 70.0), (True, 110.0)])
def test_how_long_a_host_was_silent_is_off_the_disk_before_it_can_be_heard_again(
    slots: tuple[Desk, Voters], is_full: bool, since: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that is killed after it has heard the host, and before it has written that, would find it."""
    desk, majority = slots
    desk.leading.coordinator.view.hosts["good"].update({"connected": False, "silent_s": 40.0})
    desk.leading._save(desk.now, at_once=True)
    desk.leading.close()
    desk.now = 110.0
    with monkeypatch.context() as during:
        if is_full:
            during.setattr(paths, "write_text", no_space)
        desk.open(majority)
    assert desk.view["hosts"]["good"]["silent_s"] == (40.0 if is_full else None)
    assert desk.leading.coordinator.contacts.away["good"] == since


def test_agent_of_a_replaced_host_is_not_restarted(slots: tuple[Desk, Voters]) -> None:
    desk, majority = slots
    desk.receive("bad", desk.hello("bad"))
    desk.leading.coordinator.contacts.note_answer("bad", answers=True)
    desk.leading.coordinator.view.hosts["bad"]["heard"] = WALL
    desk.leading._save(desk.now, at_once=True)
    assert warnings_of(desk.view)
    desk.leading.close()
    desk.files.write_moved(moved(bad="s"))
    desk.spec = desk.files.spec()
    desk.open(majority)
    desk.receive("good")
    assert warnings_of(desk.leading.coordinator.view.data) == []


def test_after_a_move_agents_that_follow_older_ones_are_sent_it_and_are_not_heard(slots: tuple[Desk, Voters]) -> None:
    desk, majority = slots
    desk.leading.close()
    desk.files.write_moved(moved(bad="s"))
    desk.spec = desk.files.spec()
    desk.open(majority)
    desk.receive("bad", desk.hello("bad"))
    desk.receive("bad", desk.news("bad"))
    assert [message.get("moved") for host, message in desk.links.sent if host == "bad"] == [moved(bad="s")]
    assert not desk.leading.coordinator.view.hosts["bad"]["connected"]
    nothing: Any = {"state": made(State, run="demo-1", host="bad", tasks={}), "intents": {}}
    desk.receive("bad", {**desk.hello("bad", **nothing), "moved": 1})
    assert desk.leading.coordinator.view.hosts["bad"]["connected"]
    stale = [{"time": WALL, "task": "worker:1", "attempt": 1, "from": "running", "to": "stopped"}]
    desk.receive("bad", checked(FROM_AGENT["events"], {"type": "events", "from": 0, "events": stale}))
    assert desk.links.refused == [], "what happened to a task there before is still of interest"
    taken: Any = {"state": made(State, run="demo-1", host="s", tasks={"worker:1": {}}), "intents": {"worker:1": {}}}
    desk.receive("s", {**desk.hello("s", **taken), "moved": 1})
    assert desk.leading.coordinator.view.hosts["s"]["connected"]


@pytest.mark.parametrize(
    ("greeted", "lease", "decided", "answered"),
    [(True, True, False, True), (False, True, False, False), (True, False, False, False), (True, True, True, False)],
    ids=["heard", "not welcome", "without a lease", "while hosts take places"],
)
def test_a_ping_is_answered_by_a_coordinator_whose_the_run_is_for_certain(
    tmp_path: Path, greeted: bool, lease: bool, decided: bool, answered: bool
) -> None:
    desk, voters = Desk(tmp_path, with_spares("async-ps", PLACES, "s")), Voters()
    desk.open(voters)
    if greeted:
        desk.receive("good", desk.hello("good"))
    voters.lease = lease
    if decided:
        desk.leading.coordinator.view.data["moved"] = moved(bad="s")
    desk.receive("good", checked(FROM_AGENT["ping"], {"type": "ping", "n": 7}))
    pongs = [message for _, message in desk.links.sent if message["type"] == "pong"]
    assert pongs == ([{"type": "pong", "n": 7}] if answered else [])
    desk.leading.close()


def test_what_a_voter_claims_and_no_majority_confirms_is_a_warning_and_one_event(tmp_path: Path) -> None:
    desk, voters = Desk(tmp_path), Voters()
    desk.open(voters)
    for term in (3000, 3020, 3040):
        voters.claims["bad", "claims_term"] = term
        desk.receive("bad")
    claims = [line for line in desk.events if line["why"] and line["why"][0]["kind"] == "claims_term"]
    assert [(line["host"], line["why"][0]["count"]) for line in claims] == [("bad", 3000)]
    assert any("bad claims term 3000" in text for text in warnings_of(desk.leading.coordinator.view.data))

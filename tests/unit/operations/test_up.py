"""The order of a start: everything is ready everywhere before anything starts, and one failure takes all of it back."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from dtctl.agent.records.checkpoints import CheckpointReport
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry
from dtctl.bundle.scanning import scan
from dtctl.errors import AgentError, ConnectionLost, DtctlError, PreflightError, TransportError
from dtctl.model import Local
from dtctl.operations.client import Progress
from dtctl.operations.credentials import Authority
from dtctl.operations.findings import Checked
from dtctl.operations.history import CodeRecord
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.up.launch import Start
from dtctl.operations.up.readying import Interrupted
from dtctl.operations.up.result import UpReport
from dtctl.operations.up.up import up
from dtctl.plan.run import plan_run
from dtctl.render.starting import not_complete
from dtctl.rooms.check.checking import InPassing, context_of
from tests.unit.checks.network.networks import listening, reaching
from tests.unit.clusters import cluster
from tests.unit.fakes import Answer, FakeSession, FakeTransport, rolled_back
from tests.unit.tasks import checkpoint

READY = {
    "type": "prepared",
    "run": "digits-1",
    "unchanged": False,
    "replaces": None,
    "current": None,
    "checkpoints": [],
}


@pytest.fixture
def launch(tmp_path: Path) -> Start:
    (tmp_path / "train.py").write_text("print()")
    names = {name: name for name in "abcd"}
    plan = plan_run(cluster(), names, local_python="python3")
    return Start(
        plan=plan,
        record=record_of(plan, "digits-1", time.time()),
        bundle=scan(tmp_path),
        digest="d",
        controller="me@here",
        secrets={},
        authority=Authority("digits-1"),
        replace=False,
    )


class Notes:
    """A memory that notes what it receives; `full`: what cannot be written."""

    def __init__(self, *full: str, order: list[str] | None = None) -> None:
        self.order: list[str] = [] if order is None else order
        self.records: list[RunRecord] = []
        self.codes: dict[str, CodeRecord] = {}
        self.keys: dict[str, Authority] = {}
        self.changes: list[Mapping[str, Any]] = []
        self._full = full

    def begin(self, record: RunRecord) -> None:
        self._note("begin", record)

    def save(self, record: RunRecord) -> None:
        self._note("save", record)

    def take_back(self, record: RunRecord) -> None:
        self._note("take_back", record)

    def keep_code(self, run: str, code: CodeRecord) -> None:
        self.codes[run] = code

    def code_of(self, run: str) -> CodeRecord | None:
        return self.codes.get(run)

    def keep_authority(self, run: str, authority: Authority) -> None:
        self.keys[run] = authority

    def authority_of(self, run: str) -> Authority | None:
        return self.keys.get(run)

    def change(self, record: RunRecord, **fields: Any) -> None:
        self.changes.append(fields)

    def note_failure(self, record: RunRecord, error: DtctlError) -> None:
        self.order.append("note_failure")
        self.failure = error.summary

    def _note(self, what: str, record: RunRecord) -> None:
        self.order.append(what)
        if what in self._full:
            raise DtctlError("run digits-1 cannot be remembered", detail="No space left on device")
        self.records.append(record)


def entry() -> dict[str, Any]:
    return dict(made(Entry, state="running", attempt=1, pid=1, since=1.0))


def willing(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
    """An agent that does what it is asked."""
    kind = fields["type"]
    if kind == "up":
        session.tasks = [task["id"] for task in fields["spec"]["tasks"]]  # type: ignore[attr-defined]
        return [READY]
    if kind == "start":
        run = getattr(session, "run", "digits-1")
        tasks = {task: entry() for task in session.tasks}  # type: ignore[attr-defined]
        return [{"type": "started", "run": run, "tasks": tasks}]
    kept = {"type": "result", "run": getattr(session, "run", "digits-1"), "unchanged": False}
    return [kept] if kind == "keep" else [rolled_back()]


def agents(order: list[str] | None = None, **instead: Callable[[FakeSession, Mapping[str, Any]], Any]) -> Answer:
    """Agents that are willing, but for what is said instead to a kind of request, unless that is None.

    `order`: gets `KIND HOST` of each request.
    """

    def answers(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        kind = fields["type"]
        if order is not None:
            order.append(f"{kind} {session.host.name}")
        usual = willing(session, fields)
        other = instead[kind](session, fields) if kind in instead else None
        return usual if other is None else list(other)

    return answers


def unless(kind: str, host: str, answer: dict[str, Any] | DtctlError | type[BaseException]) -> Answer:
    """Agents that are willing, but for one request to one host; a type of exception is raised in its place."""

    def other(session: FakeSession, fields: Mapping[str, Any]) -> Any:
        if session.host.name != host:
            return None
        if isinstance(answer, type):
            raise answer
        return [answer]

    return agents(None, **{kind: other})


class Hearing(UpReport):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.progress: list[Progress] = []

    def __call__(self, progress: Progress) -> None:
        self.progress.append(progress)

    def checked(self, checked: Checked) -> None:
        self.found.append(checked)

    def at_zero(self, unseen: Any) -> None:
        self.found.append(unseen)

    def incomplete(self, found: Any) -> None:
        self.found.append(found)


def started(launch: Start, agents: FakeTransport | Answer, notes: Notes | None = None, **known: Any) -> Any:
    transport = agents if isinstance(agents, FakeTransport) else FakeTransport(agents)
    return up(launch, transport, UpReport(), notes or Notes(), **known)


def received(transport: FakeTransport) -> dict[str, str]:
    return {name: " ".join(session.received) for name, session in transport.sessions.items()}


def test_all_hosts_are_prepared_then_started_then_ordered_to_keep(launch: Start) -> None:
    transport, notes = FakeTransport(willing), Notes()
    result = started(launch, transport, notes)
    assert [str(task) for task in result.started] == ["ps:0", "ps:1", "worker:0", "worker:1"]
    assert received(transport) == dict.fromkeys("abcd", "up start keep")
    assert [name for name, session in transport.sessions.items() if not session.closed] == ["c"]
    assert result.lead is transport.sessions["c"], "whoever watches goes on with it"
    assert sorted(transport.opened) == list("abcd"), "each once"
    assert notes.records == [launch.record] * 2


def test_hosts_look_at_each_other_when_all_are_prepared_and_before_any_starts(launch: Start) -> None:
    """What is wrong is reported, and the run starts all the same."""
    order: list[str] = []

    def looked(session: FakeSession, fields: Mapping[str, Any]) -> Any:
        question = fields["ask"]["network"]
        reached = reaching({"x": question}, lambda source, peer: "timeout" if peer["host"] == "b" else "")["x"]
        return [{"type": "looked", "facts": {"network": reached}, "facts_s": 0.5}]

    def prepared(session: FakeSession, fields: Mapping[str, Any]) -> Any:
        reached = listening({"x": fields["ask"]["network"]})["x"]
        return [{**READY, "facts": {"network": reached}, "facts_s": 0.1}]

    report = Hearing()
    launch = replace(launch, inspect=lambda plan: InPassing(context_of(plan, brief=True)))
    result = up(launch, FakeTransport(agents(order, look=looked, up=prepared)), report, Notes())
    assert [one.partition(" ")[0] for one in order] == ["up"] * 4 + ["look"] * 4 + ["start"] * 4 + ["keep"] * 4
    (checked,) = report.found
    assert isinstance(checked, Checked)
    assert checked is result.checked
    assert checked.failed
    assert {host for one in checked.found for host in one.seen.hosts} == {"b"}
    assert checked.seconds == pytest.approx(0.6)


def test_an_earlier_checkpoint_on_the_leads_host_is_reported(launch: Start) -> None:
    checkpoint = saved(None, seen=True)["checkpoint"]
    report = {"dir": "/out", "newest_complete": checkpoint, "incomplete": [], "all": [checkpoint]}

    def resuming(session: FakeSession, fields: Mapping[str, Any]) -> Any:
        leads = fields["spec"]["coordinator"]["host"] == session.host.name
        return [{**READY, "checkpoints": [report]}] if leads else None

    result = started(launch, agents(up=resuming))
    assert (result.earlier.host, result.earlier.report["dir"]) == ("c", "/out")
    assert result.earlier.report["newest_complete"]["step"] == 7
    assert started(launch, willing).earlier is None


def saved(run: str | None, *, seen: bool, step: int = 7) -> dict[str, Any]:
    found = checkpoint(f"m-{step}", step, time=float(step))
    return {"run": run, "dir": "/old", "checkpoint": found, "seen": seen}


def begun(launch: Start, taken: Mapping[str, list[dict[str, Any]]], **known: Any) -> Any:
    """What `up` tells before it starts anything, with what hosts have found of earlier runs."""
    order: list[str] = []

    class Ordered(Hearing):
        def at_zero(self, unseen: Any) -> None:
            assert not any(one.startswith("start") for one in order)
            super().at_zero(unseen)

    report = Ordered()
    telling = agents(order, up=lambda session, _: [{**READY, "saved": taken.get(session.host.name, [])}])
    result = up(launch, FakeTransport(telling), report, Notes(), **known)
    assert report.found == ([result.unseen] if result.unseen else [])
    return result


def test_a_run_that_begins_at_0_beside_a_checkpoint_says_so_before_it_starts(launch: Start) -> None:
    result = begun(launch, {"c": [saved("digits-0", seen=False)], "a": [saved(None, seen=False, step=9)]})
    assert (result.unseen.host, result.unseen.run, result.unseen.lead) == ("a", None, "c"), "the newest"
    assert (result.unseen.directory, result.unseen.checkpoint["step"]) == ("/old", 9)
    assert result.earlier is None


def test_a_checkpoint_that_the_run_sees_is_reported_as_what_it_continues_from(launch: Start) -> None:
    result = begun(launch, {"c": [saved("digits-0", seen=True)], "a": [saved(None, seen=False, step=9)]})
    assert result.unseen is None
    assert (result.earlier.host, result.earlier.report["newest_complete"]["step"]) == ("c", 7)


def test_the_newest_one_that_is_not_complete_is_named_before_the_start(launch: Start) -> None:
    damaged = checkpoint("checkpoint-9", 9, complete=False, problem="trainer_state.json is missing", kind="huggingface")
    one = made(CheckpointReport, dir="/out", newest_complete=None, incomplete=[damaged], all=[damaged], identity="5")
    report = Hearing()
    telling = agents([], up=lambda session, _: [{**READY, "checkpoints": [one] if session.host.name in "ac" else []}])
    up(launch, FakeTransport(telling), report, Notes())
    [[found]] = report.found
    assert (found.report["dir"], found.others != ()) == ("/out", True)
    summary, hint = not_complete(found)
    assert summary.endswith("/out, checkpoint-9, is not complete: trainer_state.json is missing")
    assert "a directory that all of them share" in hint


def test_the_lead_of_the_last_run_was_on_a_host_that_has_no_part_any_more(launch: Start) -> None:
    roster = {task: "gone" if task == launch.record.lead else host for task, host in launch.record.roster.items()}
    previous = replace(launch.record, run="digits-0", roster=roster)
    unseen = begun(launch, {}, previous=previous).unseen
    assert (unseen.host, unseen.run, unseen.checkpoint) == ("gone", "digits-0", None)
    assert begun(launch, {}, previous=replace(launch.record, run="digits-0")).unseen is None


def test_one_host_that_cannot_be_reached_starts_nothing_anywhere_and_is_named(launch: Start) -> None:
    transport = FakeTransport(willing, {"c": TransportError("connection to c refused", hint="ssh c true")})
    with pytest.raises(DtctlError) as error:
        started(launch, transport)
    assert "1 of 4 hosts" in error.value.summary
    assert "connection to c refused" in error.value.detail
    assert error.value.hint == "ssh c true"
    assert all(session.received == ["up", "abort"] for session in transport.sessions.values())


def test_a_host_that_cannot_start_takes_the_others_back(launch: Start) -> None:
    transport = FakeTransport(unless("start", "d", AgentError("port_taken", "port 2222 is taken by pid 7 (python)")))
    with pytest.raises(DtctlError, match="cannot start on 1 of 4 hosts"):
        started(launch, transport)
    assert [transport.sessions[name].received[-1] for name in "abc"] == ["abort"] * 3


def test_hosts_that_wait_for_a_failed_one_are_cancelled_without_an_error(launch: Start) -> None:
    taken = AgentError("port_taken", "port 2222 is taken")
    waiting = agents(start=lambda session, _: [taken] if session.host.name == "d" else [])
    with pytest.raises(DtctlError, match="cannot start on 1 of 4 hosts") as error:
        started(launch, FakeTransport(waiting, patient=True))
    assert "port 2222 is taken" in error.value.detail
    assert "rolled back" not in error.value.detail


def going_on(lost: str = "", **instead: Any) -> Answer:
    """Agents whose current run is the one that is asked for; on host `lost` all has ended."""
    return agents(up=lambda session, _: [gone_on(session, lost=session.host.name == lost)], **instead)


def gone_on(session: FakeSession, *, lost: bool, current: str | None = "digits-0") -> dict[str, Any]:
    """What is prepared where the run continues, or where it is lost and a new one could start."""
    session.run = "digits-1" if lost else "digits-0"  # type: ignore[attr-defined]
    return {**READY, "unchanged": not lost, "run": session.run, "current": current}  # type: ignore[attr-defined]


def test_a_run_that_continues_everywhere_is_left_alone_and_not_remembered_as_another(launch: Start) -> None:
    transport, notes = FakeTransport(going_on()), Notes()
    result = started(launch, transport, notes)
    assert (result.run, result.started, result.ended) == ("digits-0", {}, ())
    assert notes.order == ["begin", "take_back"]
    assert received(transport) == dict.fromkeys("abcd", "up start")


def test_tasks_of_an_unchanged_run_that_have_ended_are_named(launch: Start) -> None:
    tasks = {"worker:0": {**entry(), "state": "stopped"}}
    ended = [{"type": "started", "run": "digits-0", "tasks": tasks}]
    result = started(launch, going_on("d", start=lambda session, _: ended if session.host.name == "c" else None))
    # d, where worker:1 is, does not go on with the run at all.
    assert [str(task) for task in result.ended] == ["worker:0", "worker:1"]


def test_a_host_where_all_has_ended_belongs_to_the_run_that_continues(launch: Start) -> None:
    assert started(launch, going_on("d")).run == "digits-0"


def test_a_run_that_continues_in_part_only_is_an_error(launch: Start) -> None:
    def mixed(session: FakeSession, fields: Mapping[str, Any]) -> Any:
        lost = session.host.name == "d"
        return [gone_on(session, lost=lost, current=None if lost else "digits-0")]

    with pytest.raises(PreflightError, match=r"digits-0 continues on a,b,c, but not on d"):
        started(launch, agents(up=mixed))


def test_an_interrupt_takes_everything_back_and_waits_until_it_is_done(launch: Start) -> None:
    transport = FakeTransport(unless("start", "b", KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        started(launch, transport)
    assert all("abort" in session.received for session in transport.sessions.values())
    assert all(session.closed for session in transport.sessions.values())


def test_host_lost_after_the_run_is_kept_is_named_and_the_run_continues(
    launch: Start,
) -> None:
    transport, notes = FakeTransport(unless("keep", "b", ConnectionLost("b has gone"))), Notes()
    result = started(launch, transport, notes)
    assert {host: error.summary for host, error in result.unconfirmed.items()} == {"b": "b has gone"}
    assert received(transport) == dict.fromkeys("abcd", "up start keep")
    assert "save" in notes.order


@pytest.mark.parametrize("error", [ConnectionLost("c has gone"), AgentError("disk_full", "no space")], ids=str)
def test_a_coordinators_host_whose_decision_is_not_known_decides_all_the_same(launch: Start, error: DtctlError) -> None:
    """The other hosts hear from it: neither `keep` nor `abort` is for this machine to send."""
    transport, notes = FakeTransport(unless("keep", "c", error)), Notes()
    with pytest.raises(type(error)) as raised:
        started(launch, transport, notes)
    assert "dtctl status" in raised.value.hint
    assert received(transport) == {**dict.fromkeys("abd", "up start"), "c": "up start keep"}
    assert all(session.closed for session in transport.sessions.values())
    assert notes.order == ["begin", "save"], "the run is found again if it is kept"


def test_output_of_a_setup_is_reported(launch: Start) -> None:
    report = Hearing()
    printed = {"type": "progress", "phase": "setup", "payload": "grüße\n".encode()}
    up(launch, FakeTransport(agents(up=lambda *_: [dict(printed), READY])), report, Notes())
    phases = [(one.phase, one.text) for one in report.progress if one.host == "a"]
    assert phases == [("connect", ""), ("setup", "grüße\n"), ("prepared", ""), ("started", "")]


def test_every_host_gets_its_own_credentials_without_the_authority_key(launch: Start) -> None:
    given: dict[str, Any] = {}
    started(launch, agents(up=lambda session, fields: given.update({session.host.name: fields["credentials"]})))
    assert sorted(given) == list("abcd")
    assert {tuple(each) for each in given.values()} == {("key", "certificate", "authority", "port_token")}
    for field, different in {"key": 4, "certificate": 4, "authority": 1, "port_token": 1}.items():
        assert len({each[field] for each in given.values()}) == different
    signer = x509.load_pem_x509_certificate(given["a"]["authority"].encode()).public_key()
    for each in given.values():
        assert "PRIVATE KEY" not in each["authority"] + each["certificate"] + each["port_token"]
        assert load_pem_private_key(each["key"].encode(), None).public_key() != signer


def test_run_is_recorded_before_any_host_is_contacted_and_again_before_keep(
    launch: Start,
) -> None:
    order: list[str] = []
    result = started(launch, agents(order), Notes(order=order))
    kinds = [one.partition(" ")[0] for one in order]
    assert kinds == ["begin", *["up"] * 4, *["start"] * 4, "save", *["keep"] * 4]
    assert order[kinds.index("keep")] == "keep c", "the coordinator's host decides"
    assert result.unremembered is None


@pytest.mark.parametrize(
    ("code", "then"),
    [("port_taken", ["begin", "take_back", "note_failure"]), ("disk_full", ["begin"]), ("internal", ["begin"])],
)
def test_only_a_start_that_every_host_has_certainly_taken_back_is_forgotten(
    launch: Start, code: str, then: list[str]
) -> None:
    """A host with a full disk, say, may not have been able to."""
    notes = Notes()
    with pytest.raises(DtctlError):
        started(launch, unless("start", "d", AgentError(code, "no")), notes)
    assert notes.order == then


def test_a_record_that_cannot_be_written_ends_no_run(launch: Start) -> None:
    transport = FakeTransport(willing)
    result = started(launch, transport, Notes("begin", "save", "take_back"))
    assert received(transport) == dict.fromkeys("abcd", "up start keep")
    assert result.unremembered is not None
    assert result.unremembered.detail == "No space left on device"


def test_a_disk_that_fills_up_during_the_start_has_the_record_of_its_beginning(launch: Start) -> None:
    assert started(launch, willing, Notes("save")).unremembered is None


def test_a_run_on_this_machine_of_which_nothing_could_be_known_again_is_not_begun(launch: Start) -> None:
    hosts = {name: replace(host, reach=Local()) for name, host in launch.record.hosts.items()}
    transport = FakeTransport(willing)
    with pytest.raises(PreflightError, match="cannot be remembered"):
        started(replace(launch, record=replace(launch.record, hosts=hosts)), transport, Notes("begin"))
    assert transport.opened == []


@pytest.mark.parametrize(
    ("kind", "unreachable", "is_started", "unclear", "then"),
    [("up", "", False, (), ["begin", "take_back"]), ("start", "c", True, ("c",), ["begin"])],
    ids=["before the start nothing is left", "hosts that did not say that they took it back are named"],
)
def test_an_interrupt_reports_what_is_left(
    launch: Start, kind: str, unreachable: str, is_started: bool, unclear: tuple[str, ...], then: list[str]
) -> None:
    """Ctrl-C when this is sent to b; `unreachable` gives no answer to an abort any more. What may go on is found."""

    def interrupt(session: FakeSession, fields: Mapping[str, Any]) -> None:
        if session.host.name == "b":
            raise KeyboardInterrupt

    gone = [ConnectionLost(f"{unreachable} has gone")]
    deaf = {"abort": lambda session, _: gone if session.host.name == unreachable else None}
    notes = Notes()
    with pytest.raises(Interrupted) as caught:
        started(launch, agents(None, **{kind: interrupt, **deaf}), notes)
    left = caught.value.left
    assert (left.kept, left.started, left.unclear, notes.order) == (False, is_started, unclear, then)


def test_interrupt_during_keep_is_raised_when_all_hosts_have_been_informed(launch: Start) -> None:
    def interrupt(session: FakeSession, fields: Mapping[str, Any]) -> None:
        if session.host.name == "a":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        started(launch, agents(keep=interrupt), Notes("begin", "save"))
    assert caught.value.left.kept
    assert caught.value.left.unremembered is not None


def test_a_failed_setup_says_that_the_run_to_be_replaced_continues(launch: Start) -> None:
    with pytest.raises(DtctlError) as raised:
        started(
            replace(launch, replace=True), lambda *_: [AgentError("setup_failed", "the setup command ended with 1")]
        )
    assert "no run was stopped" in raised.value.hint

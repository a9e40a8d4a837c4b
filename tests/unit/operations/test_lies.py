"""One host lies, in the form of a record: nothing of it is dialled, written, shown as a task's state or decided by."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dtctl.agent.records.checkpoints import Checkpoint, CheckpointReport
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import sentence
from dtctl.cli.ending import exit_for
from dtctl.errors import ExitCode, TransportError
from dtctl.model import TaskId, TaskState
from dtctl.operations.coordinator import status_of_hosts
from dtctl.operations.down import down
from dtctl.operations.events import read_events
from dtctl.operations.gc import collect
from dtctl.operations.logs import LogLines, LogRequest
from dtctl.operations.logs.reading import read_logs
from dtctl.operations.restart import restart
from dtctl.operations.runs import known_runs
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.status import status
from dtctl.operations.stop import StopOrder, stop
from dtctl.rooms.execute.operation import Target, execute
from tests.unit.coordinated import HOSTS, Agents, Script, entry, inventory, moved_record, record, state_of, viewed
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.operations.test_gc import NOTHING
from tests.unit.operations.test_logs import log
from tests.unit.operations.test_one_connection import restarted, stopped

ORDER = StopOrder("me@here")
ALL = tuple(record().roster)
CODE = {"ssh": {"target": "evil", "host_keys": "accept-new", "known_hosts": "~/.ssh/authorized_keys", "jump": "evil"}}

Answer = dict[str, Any]


class Liar(Agents):
    """`host` changes what an honest agent would have answered to one kind of request."""

    def __init__(self, host: str, kind: str, lie: Callable[[Answer], Answer], view: Mapping[str, Any] | None = None):
        super().__init__(view)
        self._host, self._kind, self._lie = host, kind, lie

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
        answer = super().__call__(session, fields)
        if session.host.name != self._host or fields["type"] != self._kind:
            return answer
        return [self._lie(one) if isinstance(one, dict) else one for one in answer]


def put(value: object, *path: str) -> Callable[[Answer], Answer]:
    """A lie: this value in place of the one there."""

    def lie(answer: Answer) -> Answer:
        at = answer
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = value
        return answer

    return lie


def everywhere(lie: Callable[[Answer], Answer], host: str = "d") -> RunStatus:
    """Each host is asked for itself, and one lies."""
    return status_of_hosts(record(), FakeTransport(Liar(host, "status", lie)))


URLS = ("webhdfs://127.0.0.1:9870/a", "hdfs://nn.example/a", "gs://bucket/a", "s3://bucket/a", "http://127.0.0.1/a")


def report_of(place: str) -> CheckpointReport:
    """A complete checkpoint there, which a command would verify, pull or prune."""
    one = made(Checkpoint, prefix="model.ckpt-7", step=7, time=1.0, size_bytes=3, shards=1, complete=True, problem=None)
    return made(CheckpointReport, dir=place, newest_complete=one, incomplete=[], all=[one])


FORMS = [
    ("state.tasks.worker:1.state", put("exploded", "state", "tasks", "worker:1", "state")),
    ("state.tasks.worker:1.attempt", put("1; rm -rf ~", "state", "tasks", "worker:1", "attempt")),
    ("state.tasks", put({"../../x:0": entry()}, "state", "tasks")),
    ("state.host", put("a", "state", "host")),
    ("state.run", put("digits-2", "state", "run")),
    ("state.tasks.ps:0", put({"ps:0": entry("failed")}, "state", "tasks")),
    ("run", put("../../victim", "run")),
    ("run", put("mnist-1", "run")),
    ("run", put("digits-99", "run")),
    ("inventory", put(None, "inventory")),
    ("inventory.cluster", put("mnist", "inventory", "cluster")),
    ("inventory.run", put("digits-9", "inventory", "run")),
    ("inventory.roster.0.host", put("-oProxyCommand=touch x", "inventory", "roster", "0", "host")),
    ("inventory.lead", put("worker:9", "inventory", "lead")),
    ("time", put(float("nan"), "time")),
    ("time", put(10**400, "time")),
    ("checkpoints.0.dir", put([{"dir": 7}], "checkpoints")),
    *(("checkpoints.0.dir", put([report_of(url)], "checkpoints")) for url in URLS),
]


@pytest.mark.parametrize(("field", "lie"), FORMS, ids=[f"{number} {field}" for number, (field, _) in enumerate(FORMS)])
def test_a_record_that_does_not_hold_is_one_error_that_names_host_and_field(
    field: str, lie: Callable[[Answer], Answer]
) -> None:
    def listed(answer: Answer) -> Answer:
        answer["inventory"]["roster"] = dict(enumerate_names(answer["inventory"]["roster"]))
        answer = lie(answer)
        if answer["inventory"]:
            answer["inventory"]["roster"] = list(answer["inventory"]["roster"].values())
        return answer

    found = everywhere(listed)
    assert list(found.errors) == ["d"]
    error = found.errors["d"]
    assert isinstance(error, TransportError)
    assert error.exit_code is ExitCode.UNREACHABLE
    assert error.summary.startswith(f"d answered `status` with an invalid record: {field}")
    assert "tampered" in error.hint
    states = {str(task): status.state for task, status in found.tasks.items()}
    assert states == {**dict.fromkeys(("ps:0", "ps:1", "worker:0"), TaskState.RUNNING), "worker:1": TaskState.LOST}


@pytest.mark.parametrize("run", ["digits-1", None])
def test_a_storage_url_that_a_host_reports_is_no_place_of_checkpoints(run: str | None) -> None:
    """The controller opens storage URLs itself, with the user's credentials: only the cluster file names them."""

    def lie(answer: Answer) -> Answer:
        answer.update(checkpoints=[report_of(URLS[0])], **({} if run else {"run": None, "inventory": None}))
        return answer

    found = everywhere(lie)
    assert [each.where for each in found.checkpoints] == []
    assert found.errors["d"].summary.startswith("d answered `status` with an invalid record: checkpoints.0.dir")


def enumerate_names(roster: list[Any]) -> list[tuple[str, Any]]:
    return [(str(index), member) for index, member in enumerate(roster)]


def test_how_a_host_is_reached_is_never_taken_from_a_host() -> None:
    def with_settings(answer: Answer) -> Answer:
        answer["inventory"].update(hosts=[{"name": name, **CODE} for name in "abcde"], file="/nowhere/passwd")
        answer["inventory"]["roster"] = [{**one, **CODE} for one in answer["inventory"]["roster"]]
        return answer

    for lie in (with_settings, put(None, "ssh")):
        transport = FakeTransport(Liar("c", "status", lie, viewed()))
        found = status(record(), transport)
        assert found.record.hosts == record().hosts
        assert found.record.file == record().file
        assert transport.opened == ["c"]


def test_a_host_that_only_the_run_knows_is_named_and_not_dialled() -> None:
    transport = FakeTransport(Agents(run=moved_record("gpu-9")))
    found = status(record(), transport)
    assert set(transport.opened) <= set("abcd")
    lost = found.tasks[TaskId("worker", 0)]
    assert (lost.state, lost.host) == (TaskState.LOST, "gpu-9")
    assert "gpu-9" in sentence(lost.why)
    assert found.away is not None
    assert found.errors["gpu-9"].summary == "gpu-9 is in run digits-1, but not in x.yaml"
    assert "add gpu-9 under hosts:" in found.errors["gpu-9"].hint
    with pytest.raises(Exception) as left:
        exit_for(found.errors, others=found.time)
    assert left.value.exit_code == ExitCode.PARTIAL  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ["stop", "down", "restart", "logs", "events"])
def test_no_command_dials_a_host_that_only_the_run_knows(command: str) -> None:
    def quiet(session: FakeSession, fields: Mapping[str, Any]) -> Any:
        is_own = fields["type"] == "events" and not fields["whole"]
        return [{"type": "result", "run": "digits-1", "next": 0}] if is_own else None

    run = moved_record("gpu-9")
    transport = FakeTransport(Agents(run=run, instead=quiet))
    lead = (TaskId("worker", 0),)
    known = dataclasses.replace(run, hosts={name: run.hosts[name] for name in "abd"})
    errors = {
        "stop": lambda: stop(record(), transport, ALL, ORDER).errors,
        "down": lambda: down(record(), transport, ORDER).stop.errors,
        "restart": lambda: restart(record(), transport, lead, by="me").errors,
        "logs": lambda: read_logs(known, transport, LogRequest(lead), lambda lines: None).errors,
        "events": lambda: read_events(record(), transport, last=None).errors,
    }[command]()
    assert "gpu-9" in errors
    assert set(transport.opened) <= set("abcd")


def test_run_on_unknown_hosts_only_is_not_listed_here() -> None:
    only = dataclasses.replace(record(), roster=dict.fromkeys(record().roster, "gpu-9"))
    known = record().as_known(inventory(only))  # type: ignore[arg-type]
    assert known.hosts == {}
    assert not known.is_local


def claims(run: str) -> Callable[[Answer], Answer]:
    """The run is from the far future, with every task on the liar."""

    def lie(answer: Answer) -> Answer:
        other = dataclasses.replace(record(run, 9e11), roster=dict.fromkeys(record().roster, "d"))
        tasks = {str(task): entry("succeeded") for task in other.roster}
        return {**answer, "run": run, "inventory": inventory(other), "state": state_of("d", tasks, run)}

    return lie


@pytest.mark.parametrize("run", ["digits-9", "digits-1"], ids=["a run of its own", "the run of all, contradicted"])
def test_one_lying_host_of_four_decides_nothing(run: str) -> None:
    found = everywhere(claims(run))
    assert list(found.errors) == ["d"]
    assert (found.record.run, found.record.created, found.record.roster) == ("digits-1", 1000.0, record().roster)
    assert {str(task): one.state.value for task, one in found.tasks.items()} == {
        **dict.fromkeys(("ps:0", "ps:1", "worker:0"), "running"),
        "worker:1": "lost",
    }
    assert not found.verdict.outcome.decided


def test_the_newer_run_that_several_hosts_report_is_trusted() -> None:
    """As when somebody else has started one on fewer hosts."""
    old, new = (Agents(run=record(run, created)) for run, created in (("digits-1", 1000.0), ("digits-2", 2000.0)))
    agents = Agents(reported=lambda host, _: (new if host in "ab" else old).status(host, None))
    assert status_of_hosts(record(run=None), FakeTransport(agents)).record.run == "digits-2"  # type: ignore[arg-type]


def test_leads_host_is_trusted_if_two_hosts_contradict_each_other() -> None:
    transport = FakeTransport(Liar("d", "status", claims("digits-9")), {name: TransportError("off") for name in "ab"})
    assert status_of_hosts(dataclasses.replace(record(), run=None), transport).record.run == "digits-1"


VIEWS = [
    ("coordination.hosts.gpu-9", lambda view: view["hosts"].update({"gpu-9": view["hosts"]["a"]})),
    ("coordination.hosts.a.state.host", lambda view: view["hosts"].update(a=view["hosts"]["b"])),
    ("coordination.intents.worker:7", lambda view: view["intents"].update({"worker:7": {}})),
    ("coordination.run", lambda view: view.update(run="digits-2")),
    ("coordination.condition.cause.worker:7", lambda view: view["condition"].update(cause="worker:7")),
    ("coordination.phase", lambda view: view.update(phase="exploded")),
]


@pytest.mark.parametrize(("field", "spoil"), VIEWS, ids=[field for field, _ in VIEWS])
def test_a_coordinator_that_reports_unknown_tasks_is_not_trusted(field: str, spoil: Any) -> None:
    def lie(answer: Answer) -> Answer:
        if answer["coordination"]:
            spoil(answer["coordination"])
        return answer

    found = status(record(), FakeTransport(Liar("c", "status", lie, viewed())))
    assert found.coordination is None
    assert found.away is not None
    assert field in found.away.detail
    assert sum(one.state is TaskState.RUNNING for one in found.tasks.values()) == 3


def test_only_the_leads_host_reports_the_whole_run() -> None:
    asked = dataclasses.replace(record(), lead=TaskId("worker", 1))
    transport = FakeTransport(Liar("d", "status", put(viewed(), "coordination"), viewed()))
    found = status(asked, transport)
    assert (found.record.coordinator, transport.opened[0]) == ("c", "d")
    assert found.coordination is not None


def test_two_hosts_that_redirect_to_each_other_are_queried_once() -> None:
    def elsewhere(host: str, answer: Answer) -> Answer:
        answer["inventory"]["lead"] = {"c": "worker:1", "d": "worker:0"}.get(host, answer["inventory"]["lead"])
        return answer

    transport = FakeTransport(Agents(reported=elsewhere))
    status(record(), transport)
    assert len(transport.opened) < 12


STOPS = [
    ("stopped", put(["ps:0"], "stopped")),
    ("already", put(["worker:99"], "already")),
    ("survivors", put([{"task": "ps:0", "pid": 1, "command": "init"}], "survivors")),
    ("run", put("digits-2", "run")),
]


@pytest.mark.parametrize(("field", "lie"), STOPS, ids=[field for field, _ in STOPS])
def test_a_host_that_stops_tasks_of_others_is_not_trusted(field: str, lie: Callable[[Answer], Answer]) -> None:
    result = stop(record(), FakeTransport(Liar("d", "stop", lie), {"c": TransportError("off")}), ALL, ORDER)
    assert set(result.errors) == {"c", "d"}
    assert field in result.errors["d"].summary
    assert {str(task) for task in result.stopped} == {"ps:0", "ps:1"}
    assert not result.survivors


@pytest.mark.parametrize("removed", ["../../victim", "mnist-1", "digits-2", "/nowhere/passwd", ".."])
def test_what_a_host_claims_to_have_removed_is_a_run_that_it_was_asked_to_remove(removed: str) -> None:
    result = down(record(), FakeTransport(Liar("d", "down", put([removed], "removed"))), ORDER)
    assert "d" not in result.removed
    assert "removed" in result.stop.errors["d"].summary


def test_a_coordinator_that_ends_other_tasks_than_were_asked_for_is_not_trusted() -> None:
    agents = Agents(viewed(), stop=[stopped("worker:9")])
    result = stop(record(), FakeTransport(agents), ALL, ORDER)
    assert result.away is not None
    assert "worker:9" in result.away.detail


def test_unrequested_restart_in_an_answer_is_refused() -> None:
    agents = Agents(viewed(), restart=[restarted("ps:0")])
    result = restart(record(), FakeTransport(agents), (TaskId("worker", 0),), by="me")
    assert result.away is not None


def talker(kind: str, frames: Callable[[], Script]) -> Agents:
    """Of which d answers one kind of request with these frames."""

    def instead(session: FakeSession, fields: Mapping[str, Any]) -> Any:
        host = session.host.name
        honest = {
            "logs": [log(HOSTS[host], b"honest\n"), {"type": "result", "run": "digits-1"}],
            "exec": [{"type": "result", "exit_code": 0, "signal": None}],
            "runs": [{"type": "result", "runs": []}],
            "gc": [dict(GC)],
        }
        return (frames() if host == "d" else honest[kind]) if fields["type"] == kind else None

    return Agents(instead=instead)


GC = {**NOTHING, "dry_run": True}


LOGS: list[tuple[str, Callable[[], Script]]] = [
    ("task.ps:0", lambda: [log("ps:0", b"forged\n")]),
    ("time", lambda: [log("worker:1", b"x\n", time=1e300)]),
    ("attempt", lambda: [log("worker:1", b"x\n", attempt=-1)]),
    ("`progress`", lambda: [{"type": "progress", "phase": "x"} for _ in range(1000)]),
    ("`need`", lambda: [{"type": "need", "files": [1]}]),
    ("`started`", lambda: [{"type": "started", "run": "digits-1", "tasks": {}}]),
    ("`shell`", lambda: [{"type": "shell"}]),
    ("more than 32 MiB", lambda: [log("worker:1", b"x" * (8 << 20)) for _ in range(6)]),
    ("the last 5 of each task", lambda: [log("worker:1", b"x\n" * 1000) for _ in range(1000)]),
    ("run", lambda: [{"type": "result", "run": "digits-2"}]),
]


@pytest.mark.parametrize(("why", "frames"), LOGS, ids=[why for why, _ in LOGS])
def test_logs_of_a_lying_host_do_not_withhold_those_of_others(why: str, frames: Callable[[], Script]) -> None:
    shown: list[LogLines] = []
    found = read_logs(record(), FakeTransport(talker("logs", frames)), LogRequest(ALL, lines=5), shown.append)
    assert list(found.errors) == ["d"]
    assert why in found.errors["d"].summary
    honest = [lines for lines in shown if lines.data == b"honest\n"]
    assert sorted(lines.log["task"] for lines in honest) == ["ps:0", "ps:1", "worker:0"]
    assert sum(len(lines.data) for lines in shown) < 64 << 20


def test_a_stream_that_is_neither_output_is_refused() -> None:
    frames: Script = [{"type": "output", "stream": 3, "payload": b"x"}]
    chunks: list[bytes] = []
    places = [Target(host) for host in record().hosts.values()]
    transport = FakeTransport(talker("exec", lambda: frames))
    done = execute(record(), transport, places, ["true"], lambda *output: chunks.append(output[2]), cwd="home")
    assert list(done.errors) == ["@d"]
    assert sorted(done.results) == ["@a", "@b", "@c"]
    assert chunks == []


def test_runs_of_other_clusters_are_no_answer() -> None:
    forged = {"run": "mnist-1", "cluster": "mnist", "host": "d", "created": 1.0, "live": True, "tasks": {}}
    known = known_runs(record(), FakeTransport(talker("runs", lambda: [{"type": "result", "runs": [forged]}])))
    assert (known.runs, list(known.errors)) == ((), ["d"])


def test_runs_of_every_cluster_are_listed_once() -> None:
    """Two of them share a home directory; in the other cluster they have other names."""
    others = [
        {
            "run": "mnist-1",
            "cluster": "mnist",
            "host": name,
            "created": 1.0,
            "live": True,
            "by": "ada@x",
            "tasks": tasks,
        }
        for name, tasks in (("gpu-1", {"ps:0": "running"}), ("gpu-2", {"worker:0": "failed"}))
    ]
    answers = {"c": others, "d": others}

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> Script:
        assert fields["cluster"] is None
        return [{"type": "result", "runs": answers.get(session.host.name, []), "omitted": 0, "damaged": []}]

    (run,) = known_runs(record(), FakeTransport(answer), every_cluster=True).runs
    assert (run.run, run.cluster, run.by, run.hosts) == ("mnist-1", "mnist", "ada@x", ("gpu-1", "gpu-2"))
    assert {str(task): state.value for task, state in run.tasks.items()} == {"ps:0": "running", "worker:0": "failed"}


def test_a_host_that_removes_in_a_dry_run_is_named() -> None:
    transport = FakeTransport(talker("gc", lambda: [{**GC, "dry_run": False}]))
    assert list(collect(record(), transport, dry_run=True, every_cluster=False).errors) == ["d"]


def test_a_host_reports_its_own_events_only() -> None:
    line = {"type": "event", "n": 0, "time": 1.0, "host": "a", "task": "ps:0", "from": "running", "to": "failed"}
    result = {"type": "result", "run": "digits-1", "next": 1}

    def forged(session: FakeSession, fields: Mapping[str, Any]) -> Any:
        lies = [dict(line)] if session.host.name == "d" else []
        return [*lies, dict(result)] if fields["type"] == "events" else None

    story = read_events(record(), FakeTransport(Agents(instead=forged), {"c": TransportError("off")}), last=None)
    assert story.lines == ()
    assert set(story.errors) == {"c", "d"}

"""state.json and intent.json that are damaged: they are put aside, the story says so, and the run continues."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from dtctl.agent import main
from dtctl.agent.host import errors, paths, processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Start, State
from dtctl.agent.records.spec import Spec
from dtctl.agent.run.intents import IntentFollower
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise import keeper, supervisor
from dtctl.agent.supervise.supervisor import Supervisor
from dtctl.agent.survival import revival
from dtctl.agent.survival.revival import Bond
from dtctl.agent.vitals.usage import Usage
from tests.reasons import reason_of
from tests.unit.agent.supervise import supervised
from tests.unit.agent.supervise.supervised import QuietRole

JUNK = {
    "empty": b"",
    "cut off": b'{"serial": 1, "tasks": {"work',
    "no object": b"[]",
    "nothing": b"null",
    "no text": b"\xff\xfe",
    "poison": b'{"serial": 1, "tasks": {"worker:0": {"attempt": "1", "want": 7}}, "run": "r", "host": "h1"}',
    "about other tasks": b'{"serial": 1, "tasks": {}, "run": "r", "host": "h1"}',
    "another run's": b'{"serial": 1, "tasks": {}, "run": "../x", "host": "h1"}',
}
LOOKS = 40

NOT_TOLD_BY_EVENTS = ("since", "history", "exit", "progress", "version")


class Ended(Exception):
    pass


class Host:
    """A run of worker:0 and worker:1, of which the first fails for good and the second goes on."""

    def __init__(self, directory: Path) -> None:
        self.files = RunFiles(str(directory / "runs" / "r" / "h1"))
        self.spec: Spec = supervised.spec(
            supervised.task("worker:0"),
            supervised.task("worker:1"),
            recovery=supervised.recovery(max_restarts=1, backoff_min_s=0.0, backoff_max_s=0.0),
        )
        self.files.begin(
            self.files.stage(self.spec, {"TOKEN": "hunter2hunter2"}, {"PATH": "/bin"}, processes.myself()), self.spec
        )
        wants = {task["id"]: supervised.intent("run") for task in self.spec["tasks"]}
        paths.write_json(self.files.intent_path, {**self.files.intent(), "session": None, "tasks": wants})

    def launch(self, what: keeper.AttemptSpec) -> None:
        """worker:1 lives as this process does; worker:0 has been here, said its secret, and ended with code 3."""
        me = processes.myself()
        if "worker-1" in what.directory:
            start = made(Start, started=5.0, pid=me["pid"], start_time=me["start_time"], boot_id=me["boot_id"])
        else:
            start = made(Start, started=5.0, pid=2**22, start_time=1, boot_id=me["boot_id"])
            paths.write_json(f"{what.directory}/exit.json", supervised.code(3))
            Path(what.directory, "log").write_text("the key is hunter2hunter2\n")
        paths.write_json(f"{what.directory}/start.json", start)

    def supervise(self) -> State:
        looks = iter(range(LOOKS))

        def update() -> None:
            if next(looks, None) is None:
                raise Ended

        with pytest.raises(Ended):
            Supervisor(self.files).run(update)
        return self.files.state()

    def contact_events(self) -> list[tuple[object, object]]:
        """The events that no transition belongs to."""
        events = RunFiles(self.files.directory).events.since(0)
        return [(event["task"], reason_of(event)) for event in events if event["from"] == event["to"]]

    def aside(self) -> list[str]:
        return [name for name in paths.entries(self.files.directory) if ".damaged-" in name]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made_ = Host(tmp_path)
    monkeypatch.setattr(keeper, "launch", made_.launch)
    monkeypatch.setattr(processes, "tree", lambda *_: [])
    monkeypatch.setattr(processes, "bears", lambda *_: True)
    monkeypatch.setattr(supervisor, "take_role", lambda *_, **__: QuietRole())
    monkeypatch.setattr(Supervisor, "_wait", lambda _: None)
    monkeypatch.setattr(Usage, "sample", lambda *_: None)  # of this process, which does not stay as it is
    monkeypatch.setattr(errors, "_logged", set())
    return made_


def told_of(state: State, *but: str) -> dict[str, object]:
    return {
        task: {name: value for name, value in entry.items() if name not in but}
        for task, entry in state["tasks"].items()
    }


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_a_damaged_state_is_reported_again_by_the_events(host: Host, junk: bytes) -> None:
    before = host.supervise()
    assert [entry["state"] for entry in before["tasks"].values()] == ["failed", "running"]
    Path(host.files.state_path).write_bytes(junk)
    after = host.supervise()
    assert told_of(after, *NOT_TOLD_BY_EVENTS) == told_of(before, *NOT_TOLD_BY_EVENTS)
    failed = after["tasks"]["worker:0"]
    assert failed["exit"] is not None
    assert (failed["exit"]["code"], failed["exit"]["tail"]) == (3, "the key is ***")
    assert [(past["attempt"], past["code"], past["asked"]) for past in failed["history"]] == [
        (1, 3, False),
        (2, 3, False),
    ]
    histories = [[entry["history"] for entry in state["tasks"].values()] for state in (before, after)]
    assert histories[0] == histories[1], "each event that ends an attempt has its record"
    (aside,) = host.aside()
    assert Path(host.files.path(aside)).read_bytes() == junk
    assert [task for task, _ in host.contact_events()] == ["worker:0", "worker:1"]
    for _, reason in host.contact_events():
        assert f"{host.files.state_path} is damaged: " in str(reason)
        assert f"it was put aside as {host.files.path(aside)}" in str(reason)


@pytest.mark.parametrize("name", ["state.json", "intent.json"])
def test_a_directory_in_the_place_of_a_file_is_put_aside_too(host: Host, name: str) -> None:
    before = host.supervise()
    Path(host.files.path(name)).unlink()
    Path(host.files.path(name), "x").mkdir(parents=True)
    after = host.supervise()
    assert told_of(after, *NOT_TOLD_BY_EVENTS) == told_of(before, *NOT_TOLD_BY_EVENTS)
    assert len(host.aside()) == 1


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_after_a_damaged_intent_the_tasks_go_on_as_they_are(host: Host, junk: bytes) -> None:
    before = host.supervise()
    Path(host.files.intent_path).write_bytes(junk)
    after = host.supervise()
    assert told_of(after, "version", "since") == told_of(before, "version", "since")
    assert {intent["want"] for intent in host.files.intent()["tasks"].values()} == {"run"}
    assert len(host.aside()) == 1
    assert len(host.contact_events()) == 2


def test_orders_take_precedence_over_rebuilt_intents(host: Host) -> None:
    host.supervise()
    Path(host.files.intent_path).write_bytes(b"")
    host.supervise()
    followed = IntentFollower(host.files)
    assert followed.take({"worker:1": supervised.intent("stop", version=1)})
    assert host.files.intent()["tasks"]["worker:1"]["want"] == "stop"


def test_damaged_state_and_intent_keep_attempts_and_events(host: Host) -> None:
    before = host.supervise()
    for path in (host.files.intent_path, host.files.state_path):
        Path(path).write_bytes(b"\0")
    after = host.supervise()
    assert told_of(after, *NOT_TOLD_BY_EVENTS) == told_of(before, *NOT_TOLD_BY_EVENTS)
    assert len(host.aside()) == 2


def test_damaged_events_and_attempts_are_passed_over(host: Host) -> None:
    host.supervise()
    Path(host.files.path("events.jsonl")).write_bytes(b'\xff\n{"task": "worker:0"}\n[]\n{"time": 1e999}\n' * 100)
    for junk in ("exit.json", "start.json"):
        Path(paths.attempt_directory(host.files.directory, "worker:0", 2), junk).write_text("{")
    Path(host.files.state_path).write_bytes(b"")
    assert host.supervise()["tasks"]["worker:1"]["state"] == "running"


def test_a_full_disk_leaves_the_damaged_file_in_its_place(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.supervise()
    Path(host.files.state_path).write_bytes(b"junk")
    with monkeypatch.context() as during:
        during.setattr(paths, "write_json", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            Supervisor(host.files)
    assert Path(host.files.state_path).read_bytes() == b"junk"
    assert host.aside() == []


@pytest.mark.parametrize("name", ["spec.json", "secrets.json", "environ.json"])
def test_without_its_spec_an_agent_ends_for_good(
    host: Host, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(host.files.path(name)).write_text("{")
    bond = Bond.__new__(Bond)
    monkeypatch.setattr(Bond, "files", host.files, raising=False)
    main._supervise(bond)
    assert revival.is_retired(host.files)
    assert not revival.is_orphaned(host.files)
    output = capsys.readouterr().err
    assert f"{host.files.path(name)} is damaged" in output
    assert "Traceback" not in output
    assert output.count("\n") == 1


def test_an_agent_with_a_damaged_state_is_restarted(host: Host) -> None:
    assert revival.is_orphaned(host.files)
    Path(host.files.state_path).write_bytes(b"{")
    assert revival.is_orphaned(host.files)
    revival.retire(host.files)
    assert not revival.is_orphaned(host.files)


def test_after_a_restart_of_the_machine_a_run_with_a_damaged_intent_comes_back(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(host.files.intent_path).write_bytes(b"{")
    started: list[str] = []
    monkeypatch.setattr(revival, "start", lambda files: started.append(files.directory))
    revival.revive_all(str(tmp_path))
    assert started == [host.files.directory]

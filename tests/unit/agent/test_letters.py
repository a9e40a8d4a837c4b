"""A stop that a session sends to the agent in memory, because no file can be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import processes, wake
from dtctl.agent.host.errors import Refused
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import because, fact
from dtctl.agent.records.run_state import How, Intent, Process, State
from dtctl.agent.requests import unwritten
from dtctl.agent.requests.run_handles import RunHandle
from dtctl.agent.run.intents import IntentFollower, to_end
from dtctl.agent.run.letters import Correspondence, Letters
from dtctl.agent.run.runfiles import RunFiles
from tests.unit.agent.coordinate.slots import on
from tests.unit.agent.coordinate.world import spec_of

HOW = made(How, by="ada@laptop", grace_s=3.0, **because([fact("stopped")]))
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Agent:
    """Of a run on this host alone, on a disk that takes nothing. It reads what is in its FIFO."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = on(spec_of("async-ps", {"chief:0": "a", "ps:0": "a"}), "a")
        self.files = RunFiles(str(tmp_path / "runs" / "demo-1" / "a"))
        self.files.begin(self.files.stage(spec, {}, {}, made(Process, **processes.myself())), spec)
        self.state: State = self.files.state()
        self.follower = IntentFollower(self.files)
        self.letters = Letters()
        self.reads = wake.listen(self.files.wake_path)
        self.is_full = True
        write = RunFiles.write_intent

        def write_intent(files: RunFiles, intent: Any, urgent: bool = True) -> None:
            if self.is_full:
                raise FULL
            write(files, intent, urgent)

        monkeypatch.setattr(RunFiles, "write_intent", write_intent)

    def look(self) -> None:
        with suppress(BlockingIOError):
            self.letters.feed(os.read(self.reads, 65536))
        self.follower.read()
        self.letters.obey(self.follower)
        self.letters.answer(self.state)

    def wants(self) -> dict[str, str]:
        return {task: intent["want"] for task, intent in self.follower.value["tasks"].items()}


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    made_ = Agent(tmp_path, monkeypatch)
    yield made_
    os.close(made_.reads)


def session(agent: Agent, *tasks: str, ends_run: bool) -> Correspondence:
    return Correspondence(agent.files.wake_path, list(tasks), HOW, ends_run=ends_run)


@pytest.mark.parametrize("ends_run", [True, False])
def test_agent_obeys_at_once_and_writes_it_when_there_is_room(agent: Agent, ends_run: bool) -> None:
    one = session(agent, "chief:0", ends_run=ends_run)
    wake.ring(agent.files.wake_path)
    one.exchange(0.0)
    wake.ring(agent.files.wake_path)
    assert one.answer is None
    agent.look()
    one.exchange(0.0)
    assert one.answer == agent.state
    assert agent.wants() == {"chief:0": "stop", "ps:0": "hold"}
    known = agent.follower.value["tasks"]
    assert [known[task]["ends_run"] for task in known] == [HOW if ends_run else None] * 2
    assert agent.files.intent()["tasks"]["chief:0"]["want"] == "hold", "the disk is full"
    versions = {task: intent["version"] for task, intent in known.items()}
    for _ in range(3):  # it is asked again until the tasks have ended
        one.exchange(0.0)
        agent.look()
    assert {task: intent["version"] for task, intent in agent.follower.value["tasks"].items()} == versions
    agent.is_full = False
    agent.look()
    on_disk = agent.files.intent()["tasks"]["chief:0"]
    assert (on_disk["want"], on_disk["by"], on_disk["grace_s"]) == ("stop", "ada@laptop", 3.0)
    one.close()


def test_agent_that_was_started_anew_meanwhile_is_asked_again(agent: Agent) -> None:
    one = session(agent, "chief:0", ends_run=True)
    one.exchange(0.0)
    os.read(agent.reads, 65536)  # its guard takes it, before there is another agent
    agent.look()
    assert agent.wants()["chief:0"] == "hold"
    one.exchange(0.0)
    agent.look()
    assert agent.wants()["chief:0"] == "stop"
    one.close()


def test_what_no_session_waits_for_any_more_is_not_done(agent: Agent) -> None:
    one = session(agent, "chief:0", ends_run=True)
    one.exchange(0.0)
    one.close()
    agent.look()
    assert agent.wants() == {"chief:0": "hold", "ps:0": "hold"}


def test_a_host_without_tasks_ends_its_part(agent: Agent) -> None:
    agent.is_full = False
    agent.files.write_intent({**agent.files.intent(), "serial": 2, "tasks": {}})
    agent.is_full = True
    one = session(agent, ends_run=True)
    one.exchange(0.0)
    agent.look()
    assert agent.follower.value["ends_run"] == HOW
    one.close()


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"id": 1}', b"x" * 9000, b"\xff", b'{"id": "a", "pid": -1}'])
def test_what_is_no_letter_is_passed_over(agent: Agent, line: bytes) -> None:
    """A trainer of the same user may write into the FIFO."""
    one = session(agent, "chief:0", ends_run=True)
    agent.letters.feed(b".." + line + b"\n..")
    one.exchange(0.0)
    agent.look()
    assert agent.wants()["chief:0"] == "stop"
    one.close()


def test_a_letter_arrives_however_the_fifo_is_read(agent: Agent) -> None:
    one = session(agent, "chief:0", ends_run=True)
    one.exchange(0.0)
    for byte in os.read(agent.reads, 65536):
        agent.letters.feed(bytes([byte]))
    agent.look()
    assert agent.wants()["chief:0"] == "stop"
    one.close()


def test_answers_of_a_pipe_without_room_are_passed_over(agent: Agent) -> None:
    one = session(agent, "chief:0", ends_run=True)
    one.exchange(0.0)
    os.write(one._writes, b'\n{"letter": "x", "sta')
    agent.look()
    one.exchange(0.0)
    assert one.answer == agent.state
    one.close()


def test_a_letter_that_is_too_long_for_a_fifo_is_refused(agent: Agent) -> None:
    with pytest.raises(Refused, match="too long"):
        session(agent, *[f"worker:{number}" for number in range(1000)], ends_run=False)


class Run:
    """As `runs.Run`; `does` is called with each look of the session."""

    def __init__(self, agent: Agent, answers: bool) -> None:
        self.files, self.spec, self.agent, self.answers = agent.files, agent.files.spec(), agent, answers
        self.processes = {"chief:0", "ps:0"}

    def state(self) -> State:
        return self.files.state()

    def survivors(self, tasks: list[str]) -> list[Any]:
        return [{"task": task, "pid": 1, "command": ""} for task in tasks if task in self.processes]

    def until(self, done: Any, limit_s: float) -> Any:
        for _ in range(5):
            if done(self.state()):
                return self.state()
            if self.answers:
                self.agent.look()
        return None


@pytest.fixture
def stopping(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(unwritten, "ASK_S", 0.01)

    def make(answers: bool = True) -> tuple[Run, unwritten.UnwrittenStop]:
        run: Any = Run(agent, answers)
        return run, unwritten.UnwrittenStop(run, FULL, RunHandle(run))

    return make


def test_a_task_has_ended_when_its_agent_obeys_and_none_of_its_processes_is_left(agent: Agent, stopping: Any) -> None:
    run, handle = stopping()
    for task in ("chief:0", "ps:0"):
        agent.state["tasks"][task]["state"] = "running"
    handle.refresh()
    run.processes.clear()
    assert handle.entry("chief:0")["state"] == "pending", "by the file"
    handle.post_stop(None, ["chief:0"], HOW)
    assert handle.entry("chief:0")["state"] == "stopped"
    run.processes.add("chief:0")
    assert handle.entry("chief:0")["state"] == "running"
    agent.state["tasks"]["ps:0"]["state"] = "starting"
    handle.until(lambda: False, 1.0)
    assert handle.entry("ps:0")["state"] == "starting", "its process may be about to appear"
    handle.close()


def test_a_stop_that_no_agent_obeys_is_refused_with_the_error_of_the_disk(stopping: Any) -> None:
    _, handle = stopping(answers=False)
    with pytest.raises(OSError, match="No space left"):
        handle.post_stop(None, ["chief:0"], HOW)
    handle.close()


def test_an_intent_that_ends_the_run_names_it_for_every_task() -> None:
    held = {"chief:0": made(Intent, want="stop"), "ps:0": made(Intent)}
    found = to_end(held, ["ps:0"], HOW, ends_run=True)
    assert [one["version"] for one in found.values()] == [2, 2]
    assert [one["want"] for one in found.values()] == ["stop", "stop"]
    assert held["ps:0"]["want"] == "run", "what is held is not changed"
    assert list(to_end(held, ["ps:0"], HOW, ends_run=False)) == ["ps:0"]

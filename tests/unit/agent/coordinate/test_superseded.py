"""The end of a run that a host learns of from others, and its own report that nothing of the run is left there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate import superseded
from dtctl.agent.coordinate.superseded import LEAVE_S, EndClaims, Farewell
from dtctl.agent.coordinate.waiting import Waiting
from dtctl.agent.host import processes, wake
from dtctl.agent.link import dialer, hub, tls
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Process
from dtctl.agent.records.whole_run import Awaited
from dtctl.agent.run import intents
from dtctl.agent.run.runfiles import RunFiles
from tests.unit.agent.coordinate.slots import on
from tests.unit.agent.coordinate.test_following import VOTERS, VoterLink
from tests.unit.agent.coordinate.world import spec_of

SINCE = time.time() - 60.0


def run_of(tmp_path: Path, host: str, voters: list[Any], run: str = "demo-1", created: float = 1.0) -> RunFiles:
    files = RunFiles(str(tmp_path / "runs" / run / host))
    tasks = {"chief:0": "a", "ps:0": "b", "ps:1": "c", "worker:0": "far"}
    spec: Any = spec_of("async-ps", tasks, voters=voters, run=run)
    spec = {**on(spec, host), "coordinator": VOTERS[0], "created": created}
    files.begin(files.stage(spec, {}, {}, made(Process, **processes.myself())), spec)
    return files


def awaits(files: RunFiles) -> Any:
    known = files.awaited()
    return known and known["hosts"]


# Claims of voters.


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_majority_of_the_voters_ends_and_removes_a_run(count: int, needed: int) -> None:
    voters = [f"v{number}" for number in range(count)]
    claims = EndClaims(voters)
    for number, voter in enumerate(voters[:needed], 1):
        assert not claims.is_removed
        for _ in range(3):
            claims.hear(voter, removed=True)
            claims.hear("a stranger", removed=True)
        assert claims.is_over == claims.is_removed == (number == needed)


def test_a_run_that_is_over_is_not_removed_for_that() -> None:
    claims = EndClaims("abc")
    claims.hear("a", removed=True)
    claims.hear("b", removed=False)
    assert claims.is_over
    assert not claims.is_removed


# The report.


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> dict[str, VoterLink]:
    """The connections to the hosts, by their names."""
    found: dict[str, VoterLink] = {}

    def link(address: str, host: str, *_: Any) -> VoterLink:
        return found.setdefault(host, VoterLink())

    monkeypatch.setattr(dialer, "Dialer", link)
    monkeypatch.setattr(tls, "Identity", lambda *_: None)
    return found


@pytest.mark.parametrize(
    ("own", "voters", "others"), [("far", "abc", "abc"), ("b", "abc", "ac"), ("far", "", "a"), ("a", "", "")]
)
def test_a_host_that_leaves_reports_to_every_host_that_may_wait_for_it(
    tmp_path: Path, links: dict[str, VoterLink], own: str, voters: str, others: str
) -> None:
    files = run_of(tmp_path, own, VOTERS if voters else [])
    farewell = Farewell(files, files.spec(), 100.0)
    assert set(links) == set(others)
    for number, host in enumerate(others):
        assert not farewell.step(101.0)
        links[host].waiting.append({"type": "connected"})
        farewell.step(101.0)
        assert links[host].sent == ["leave"]
        links[host].waiting.append({"type": "over", "removed": True} if number else {"type": "refused", "text": ""})
    assert farewell.step(101.0)


def test_a_host_that_leaves_does_not_wait_for_ever_for_one_that_it_cannot_reach(
    tmp_path: Path, links: dict[str, VoterLink]
) -> None:
    files = run_of(tmp_path, "far", VOTERS)
    farewell = Farewell(files, files.spec(), 100.0)
    gone = {"type": "gone", "reason": "no route to host", "last_received": 100.0}
    links["a"].waiting += [{"type": "connected"}, gone]
    assert not farewell.step(100.0 + LEAVE_S - 0.1)
    assert farewell.due() == 100.0 + LEAVE_S
    assert farewell.step(100.0 + LEAVE_S)


def test_a_host_without_credentials_leaves_without_a_report(tmp_path: Path) -> None:
    files = run_of(tmp_path, "far", VOTERS)
    assert Farewell(files, files.spec(), 100.0).step(100.0)


# The wait.


@pytest.mark.parametrize("is_removed", [True, False])
def test_the_wait_for_a_host_ends_with_its_report_and_the_others_go_on(tmp_path: Path, is_removed: bool) -> None:
    files = run_of(tmp_path, "a", VOTERS)
    files.write_awaited(made(Awaited, since=SINCE, hosts=["b", "far"], is_removed=is_removed))
    assert superseded.is_awaited_after_removal(str(tmp_path), "a", "demo-1", "b") is is_removed
    superseded.note_left(str(tmp_path), "a", "demo-1", "c")
    assert awaits(files) == ["b", "far"], "nobody waits for c"
    superseded.note_left(str(tmp_path), "a", "demo-1", "b")
    assert files.awaited() == made(Awaited, since=SINCE, hosts=["far"], is_removed=is_removed)
    assert not superseded.is_awaited_after_removal(str(tmp_path), "a", "demo-1", "b")


def test_leftovers_of_a_removed_run_go_with_the_last_host_without_a_waiting_agent(tmp_path: Path) -> None:
    files = run_of(tmp_path, "a", VOTERS)
    files.write_awaited(made(Awaited, since=SINCE, hosts=["b", "far"], is_removed=True))
    superseded.note_left(str(tmp_path), "a", "demo-1", "b")
    assert awaits(files) == ["far"]
    superseded.note_left(str(tmp_path), "a", "demo-1", "far")
    assert not Path(files.directory).exists()


@pytest.mark.parametrize("content", [None, "{", '{"since": "x"}'])
def test_a_report_about_a_run_of_which_nothing_is_known_changes_nothing(tmp_path: Path, content: str | None) -> None:
    files = run_of(tmp_path, "a", VOTERS)
    path = Path(files.path("awaited.json"))
    if content is not None:
        path.write_text(content)
    for run in ("demo-1", "demo-7", "../demo-1"):
        superseded.note_left(str(tmp_path), "a", run, "b")
        assert not superseded.is_awaited_after_removal(str(tmp_path), "a", run, "b")
    assert (path.read_text() if path.exists() else None) == content


class Hub:
    """In place of the real one, with what a test has it receive."""

    received: list[tuple[str, Any]]
    words: Any

    def __init__(self, address: str, port: int, identity: Any, superseded: Any, words: Any, now: float, **_: Any):
        Hub.received, Hub.words = [], staticmethod(words)

    def step(self, now: float) -> list[tuple[str, Any]]:
        received, Hub.received = Hub.received, []
        return received

    def close(self) -> None:
        pass


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """On a, for b and far."""
    monkeypatch.setattr(hub, "Hub", Hub)
    monkeypatch.setattr(tls, "Identity", lambda *_: None)
    files = run_of(tmp_path, "a", VOTERS)
    files.write_awaited(made(Awaited, since=SINCE, hosts=["b", "far"], is_removed=True))
    made_ = Waiting(files, files.awaited())  # type: ignore[arg-type]
    made_._step(100.0)
    return made_


def test_a_host_is_waited_for_until_it_has_reported_that_it_has_left(waiting: Waiting) -> None:
    stopped = {"state": {"tasks": {"worker:0": {"state": "stopped"}}}, "events": 0, "intents": {}}
    words, _ = Hub.words({**stopped, "run": "demo-1", "host": "far"})
    assert words[-1]["removed"], "it is ordered to remove the run"
    assert words[-1]["mending"] is words[-1]["recovering"] is False, "an older version reads the former name"
    for now in (100.1, 200.0, 10_000.0):
        Hub.received = [("far", {"type": "superseded", "run": "demo-1"})]
        waiting._step(now)
        assert waiting._left == {"b", "far"}, "it has been told, and may still have something"
    Hub.received = [("c", {"type": "left", "run": "demo-1"}), ("far", {"type": "left", "run": "demo-0"})]
    waiting._step(10_001.0)
    assert waiting._left == {"b", "far"}
    Hub.received = [("far", {"type": "left", "run": "demo-1"})]
    waiting._step(10_002.0)
    assert waiting._left == {"b"}
    assert awaits(waiting._files) == ["b"], "an agent that is started again knows it"


def test_what_a_newer_runs_agent_has_heard_ends_the_wait(waiting: Waiting) -> None:
    superseded.note_left(waiting._files.root, "a", "demo-1", "b")
    waiting._step(101.0)
    assert waiting._left == {"far"}
    reader = wake.listen(waiting._files.wake_path)
    superseded.note_left(waiting._files.root, "a", "demo-1", "far")
    assert os.read(reader, 10), "it is woken up"
    os.close(reader)
    waiting.run(lambda: None)
    assert not Path(waiting._files.directory).exists()


def test_nobody_waits_longer_than_a_day(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: SINCE + intents.AWAIT_S)
    waiting.run(lambda: None)
    assert not Path(waiting._files.directory).exists()

"""The ballot of a voter on a disk without room."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate.view import first_view
from dtctl.agent.coordinate.voting import NO_ROOM_S, Voter
from dtctl.agent.host import paths, processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Process
from dtctl.agent.records.spec import CoordinatorAddress, Spec
from dtctl.agent.records.whole_run import Ballot
from dtctl.agent.run import ballots
from dtctl.agent.run.runfiles import RunFiles
from tests.unit.agent.coordinate.slots import on
from tests.unit.agent.coordinate.world import spec_of

HOSTS = ("a", "b", "c")
OWN = "a"


def ballot(term: int, coordinator: str | None = None, voted: str | None = None) -> Ballot:
    return made(Ballot, term=term, voted=voted, coordinator=coordinator, last=coordinator)


@pytest.fixture
def spec() -> Spec:
    spec = on(spec_of("async-ps", {"chief:0": "a", "worker:0": "b", "worker:1": "c"}), OWN)
    voters = [made(CoordinatorAddress, host=host, address="127.0.0.1", port=1) for host in HOSTS]
    return {**spec, "voters": voters}


@pytest.fixture
def files(tmp_path: Path, spec: Spec) -> RunFiles:
    files = RunFiles(str(tmp_path / "runs" / "demo-1" / OWN))
    files.begin(files.stage(spec, {}, {}, made(Process, **processes.myself())), spec)
    return files


class Disk:
    """Of one who writes files; it is full as long as `is_full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        write = paths.write_text

        def write_text(path: str, text: str) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(path, text)

        monkeypatch.setattr(paths, "write_text", write_text)
        monkeypatch.setattr(paths, "write_json", lambda path, value: write_text(path, paths._readable(value)))
        monkeypatch.setattr(paths, "has_room", lambda _: not self.is_full)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def sent(voter: Voter, now: float) -> list[Any]:
    found: list[Any] = []
    voter.step(now, lambda host, message: found.append((host, message)))
    return found


def test_a_voter_starts_again_and_votes_on_a_full_disk(files: RunFiles, spec: Spec, disk: Disk) -> None:
    Voter(files, spec, 0.0)
    disk.is_full = True
    again = Voter(files, spec, 0.0)
    assert again.leads, "it was the coordinator before"
    again.receive("b", {"type": "canvass", "term": 2, "trial": False, "memo": [0, 0]}, 1.0)
    ((host, vote),) = sent(again, 1.0)
    assert (host, vote["type"], vote["granted"]) == ("b", "vote", True)
    assert Path(files.path("reserve")).exists(), "it is for a stop"
    restarted = Voter(files, spec, 0.0)
    assert restarted.place == (2, "b")
    restarted.receive("c", {"type": "canvass", "term": 2, "trial": False, "memo": [0, 0]}, 1.0)
    assert [message["granted"] for _, message in sent(restarted, 1.0)] == [False], "it has voted in this term"
    disk.is_full = False
    files.write_ballot(ballot(3, "c"))
    assert files.ballot() == paths.read_record(files.path(ballots.NAME), Ballot) == ballot(3, "c")


def test_a_voter_that_begins_on_a_full_disk_leaves_it_to_the_others_to_be_elected(
    files: RunFiles, spec: Spec, disk: Disk
) -> None:
    Voter(files, spec, 0.0)
    assert Voter(files, spec, 100.0).due() <= 100.0, "a coordinator whose agent was killed goes on at once"
    disk.is_full = True
    again = Voter(files, spec, 100.0)
    assert again.due() == 100.0 + NO_ROOM_S
    again.election.step(100.0 + NO_ROOM_S)
    assert again.election.is_candidate, "nobody else was elected"


def test_the_newest_ballot_counts_and_is_never_written_over(files: RunFiles, disk: Disk) -> None:
    files.write_ballot(ballot(1, "a", "a"))
    disk.is_full = True
    for newest in (ballot(2, voted="b"), ballot(2, "b", "b"), ballot(3, "c"), ballot(5, voted="a"), ballot(9, "b")):
        before = files.ballot()
        files.write_ballot(newest)
        assert files.ballot() == newest
        found = ballots.in_slots(files.directory)
        slots = Path(files.path(ballots.SLOTS))
        torn = bytearray(slots.read_bytes())
        at = found.index(newest) * ballots.SLOT_BYTES
        torn[at + 20 : at + 30] = b"\0" * 10
        whole = slots.read_bytes()
        slots.write_bytes(torn)
        assert files.ballot() == before, "a power failure while it is written leaves the one before"
        slots.write_bytes(whole)


def test_without_slots_the_reserve_is_used_and_then_nothing_is_left(files: RunFiles, disk: Disk) -> None:
    """In the run of an older version."""
    Path(files.path(ballots.SLOTS)).unlink()
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        files.write_ballot(ballot(2, "b"))
    assert not Path(files.path("reserve")).exists()
    assert files.ballot() is None


def test_a_damaged_ballot_leaves_no_vote_in_a_term_that_a_slot_has(files: RunFiles, spec: Spec, disk: Disk) -> None:
    disk.is_full = True
    files.write_ballot(ballot(7, "b"))
    disk.is_full = False
    Path(files.path(ballots.NAME)).write_text("{")
    assert Voter(files, spec, 0.0).place == (8, OWN)


def test_one_that_is_elected_on_a_full_disk_begins_with_the_memo(files: RunFiles, spec: Spec, disk: Disk) -> None:
    view = first_view(spec, 5.0)
    paths.write_json(files.path("memo.json"), {"version": [1, 4], "view": view})
    disk.is_full = True
    voter = Voter(files, spec, 0.0)
    voter.take_over()
    assert voter.inherited == view

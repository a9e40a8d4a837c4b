"""A distributed checkpoint of PyTorch whose shards lie on two hosts without a shared directory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import formats, reading, verifying
from dtctl.agent.host.budget import Budget
from dtctl.agent.records.checkpoints import CheckpointReport
from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.checkpoints.records import FetchRequest
from dtctl.agent.rooms.checkpoints.single import existing, send_directory
from dtctl.errors import DtctlError
from dtctl.operations.checkpoints import Checkpoints, chosen, every, missing_elsewhere
from dtctl.render.checkpoints import show_checkpoints
from dtctl.rooms.checkpoints import upkeep
from dtctl.rooms.checkpoints.pull import pull
from tests.checkpoint_files import distributed, write
from tests.unit.coordinated import Agents, record
from tests.unit.fakes import FakeSession, FakeTransport

FIRST, SECOND = "step-500/__0_0.distcp", "step-500/__1_0.distcp"


class Hosts(Agents):
    """The hosts a and b answer as agents do, each of its own directory, which both call /out."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        files = dict(distributed())
        write(directory / "a", {name: content for name, content in files.items() if name != SECOND})
        write(directory / "b", {SECOND: files[SECOND]})
        self.files = files

    def found(self) -> list[Checkpoints]:
        return [Checkpoints(host, self._report(host)) for host in ("a", "b")]

    def _report(self, host: str) -> CheckpointReport:
        (report,) = reading.report([str(self.directory / host)])
        return checked(CheckpointReport, {**report, "dir": "/out"})

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        place = str(self.directory / session.host.name)
        if fields["type"] == "verify":
            return [{"type": "result", "run": "digits-1", "verified": [self._verified(place, fields["wanted"][0])]}]
        frames: list[dict[str, Any] | DtctlError] = []
        request = checked(FetchRequest, {**fields, "type": "fetch"})
        sent = send_directory(
            existing(place, fields["of"]["prefix"]),
            request,
            lambda part, data: frames.append({**part, "type": "part", "payload": data}),
        )
        return [*frames, {"type": "result", "run": "digits-1", "files": sent}]

    def _verified(self, place: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        path = existing(place, wanted["prefix"])
        verdict = verifying.verify_format(
            path, formats.of(path), Budget(time.monotonic() + 60, 1000), part=wanted["part"]
        )
        return {
            **{name: wanted[name] for name in ("dir", "prefix")},
            "problems": verdict.problems,
            "unread": verdict.unread,
            "tensors": 0,
            "read_bytes": verdict.read_bytes,
            "seconds": 0.0,
        }


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path / "hosts")


def test_it_is_one_whole_checkpoint_with_the_shards_of_both(hosts: Hosts, capsys: pytest.CaptureFixture[str]) -> None:
    places = hosts.found()
    assert not any(place.report["newest_complete"] for place in places)
    [one] = every(places)
    assert (one.hosts, one.whole, one.scattered) == (("a", "b"), True, True)
    show_checkpoints(places, 0.0, lambda place, each: missing_elsewhere(places, place, each))
    shown = " ".join(capsys.readouterr().out.split())
    assert "incomplete here: 1 shard of 2 on b alone, which a restore here does not see" in shown
    assert "incomplete here: 1 shard; others, and perhaps the metadata, are on a alone" in shown


def test_it_is_verified_by_both_hosts_each_its_own_shards(hosts: Hosts) -> None:
    wanted = list(every(hosts.found()))
    [verified] = upkeep.verify(record(), FakeTransport(hosts), wanted, limit_s=60.0).checked
    assert verified.sound
    content = bytearray(hosts.files[SECOND])
    content[content.index(b"\1" * 64)] ^= 1
    (hosts.directory / "b" / SECOND).write_bytes(content)
    [verified] = upkeep.verify(record(), FakeTransport(hosts), wanted, limit_s=60.0).checked
    [problem] = verified.report["problems"]
    assert problem.startswith("b: __1_0.distcp: ")


def test_a_pull_brings_all_shards_together(hosts: Hosts, tmp_path: Path) -> None:
    pull(record(), FakeTransport(hosts), chosen(hosts.found(), None), tmp_path / "here", lambda progress: None)
    here = tmp_path / "here/step-500"
    assert {f"step-500/{path.name}": path.read_bytes() for path in here.iterdir()} == hosts.files
    (report,) = reading.report([str(tmp_path / "here")])
    assert report["newest_complete"]


def test_a_pull_of_shards_that_make_no_sound_one_gives_it_no_name(hosts: Hosts, tmp_path: Path) -> None:
    one = chosen(hosts.found(), None)
    os.truncate(hosts.directory / "b" / SECOND, 100)
    with pytest.raises(DtctlError, match=r"step-500 is damaged as a, b hold it: __1_0\.distcp"):
        pull(record(), FakeTransport(hosts), one, tmp_path / "here", lambda progress: None)
    (hosts.directory / "b" / SECOND).write_bytes(hosts.files[SECOND])
    pull(record(), FakeTransport(hosts), one, tmp_path / "here", lambda progress: None)
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["step-500"]


def test_a_shard_that_no_host_has_is_named(hosts: Hosts) -> None:
    (hosts.directory / "b" / SECOND).unlink()
    with pytest.raises(DtctlError, match=r"is not complete: __1_0\.distcp is missing"):
        chosen(hosts.found(), "500")


def test_a_shard_that_is_damaged_counts_as_none(hosts: Hosts) -> None:
    os.truncate(hosts.directory / "b" / SECOND, 100)
    assert not any(one.whole for one in every(hosts.found()))


def test_a_shard_of_an_earlier_larger_run_counts_for_nothing(hosts: Hosts) -> None:
    write(hosts.directory / "b", {"step-500/__7_0.distcp": hosts.files[SECOND]})
    [one] = [one for one in every(hosts.found()) if one.whole]
    assert sorted(one.shards) == [0, 1000]

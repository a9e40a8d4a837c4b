"""How hosts are reached: as the cluster file, the command line and this machine's own memory say, and nobody else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.spec import Inventory
from dtctl.cli import scope
from dtctl.cli.options import Scope
from dtctl.errors import TransportError
from dtctl.model import SshSettings, TaskId
from dtctl.operations.history.record import RunRecord, record_of
from dtctl.operations.history.store import Memory
from dtctl.plan.roster import plan_roster
from tests.unit.coordinated import inventory

TEXT = """
name: digits
hosts: {a: , b: , %s}
jobs: {worker: {hosts: [a, b]}}
trainer: {command: ./train}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "cluster.yaml").write_text(TEXT % "c:")
    (directory / "train").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DTCTL_CONFIG", raising=False)
    monkeypatch.chdir(directory)
    return directory


def started(run: str = "digits-1") -> RunRecord:
    return record_of(plan_roster(Scope().cluster()), run, created=1.0)


def moved(record: RunRecord, to: str) -> RunRecord:
    """The run as its hosts tell it after `replace b TO` by somebody else."""
    told = dataclasses.replace(record, run="digits-2", roster={**record.roster, TaskId("worker", 1): to})
    return record.as_known(checked(Inventory, inventory(told)))


def test_a_run_that_has_moved_to_another_host_of_the_file_is_reached_there(project: Path) -> None:
    known = moved(Scope(user="me").record(), "c")
    assert list(known.hosts) == ["a", "c"] or set(known.hosts) == {"a", "c"}
    assert isinstance(known.route_to("c").reach, SshSettings)


def test_hosts_without_a_task_are_remembered(project: Path) -> None:
    Memory().save(started())
    (project / "cluster.yaml").unlink()
    record = Scope(run="digits-1").record()
    assert set(moved(record, "c").hosts) == {"a", "c"}


def test_a_host_that_was_added_to_the_file_since_is_reached(project: Path) -> None:
    """As the error says that is shown for a host that only the run knows."""
    Memory().save(started())
    with pytest.raises(TransportError, match=r"d is in run digits-2, but not in cluster\.yaml") as refused:
        moved(Scope().record(), "d").route_to("d")
    assert "add d under hosts:" in refused.value.hint
    (project / "cluster.yaml").write_text(TEXT % "c: , d: {ssh: me@10.0.0.9}")
    reached = moved(Scope(identity=Path(__file__)).record(), "d").route_to("d")
    assert isinstance(reached.reach, SshSettings)
    assert (reached.reach.target, reached.reach.identity_file) == ("10.0.0.9", __file__)


def test_a_file_that_is_broken_now_does_not_take_the_run_away(project: Path) -> None:
    Memory().save(started())
    (project / "cluster.yaml").write_text("hosts: [")
    assert set(moved(Scope().record(), "c").hosts) == {"a", "c"}


def test_the_file_is_not_read_where_the_run_is_where_it_was(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Memory().save(started())
    monkeypatch.setattr(Scope, "cluster", lambda *_: pytest.fail("nobody had to know"))
    record = Scope().record()
    assert moved(record, "b").hosts == record.hosts


def test_a_silent_host_is_reported_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    scope._report_silence("gpu-3", 10.0, 30.0)
    assert capsys.readouterr() == ("", "waiting for gpu-3: silent for 10 s, given up after 30 s\n")

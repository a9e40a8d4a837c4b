"""What all hosts tell together: remains of dead runs, what trainers wrote, scalars, and how far a run is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.reasons import said
from dtctl.errors import DtctlError, TransportError
from dtctl.model import TaskId, TaskState
from dtctl.operations.gc import Written, collect, without_duplicates
from dtctl.operations.snapshot import RunProgress, TaskStatus, progress_of
from dtctl.render.machine import document
from dtctl.render.result import show_kept, show_remains, written_line
from dtctl.rooms.metrics.operation import Series, follow_metrics, read_metrics
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.tasks import task_status

NOTHING: dict[str, Any] = {
    "type": "result", "dry_run": True, "survivors": [],
    "processes": [], "runs": [], "bundles": [], "files": [], "freed_bytes": 0,
}  # fmt: skip
SOME = {
    **NOTHING,
    "processes": [{"pid": 4711, "command": "python train.py", "run": "digits-0"}],
    "runs": [{"run": "digits-0", "cluster": "digits", "host": "b", "why": said("ended 9 days ago")}],
    "freed_bytes": 1536,
}


def test_a_process_that_outlives_sigkill_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    left = {**NOTHING, "survivors": [{"pid": 4711, "command": "python train.py", "run": "digits-0"}]}
    found = collect(record(), FakeTransport(lambda *_: [left]), dry_run=True, every_cluster=False)
    show_remains(found, dry_run=False)
    assert "a: process 4711 of digits-0 outlived SIGKILL: python train.py" in capsys.readouterr().out
    assert document.gc(found, dry_run=False)["hosts"][0]["survivors"] == left["survivors"]


def test_every_host_is_asked_and_informed_whether_it_is_serious(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        asked.append((fields["type"], fields["dry_run"], fields["all"]))
        return [SOME if session.host.name == "b" else NOTHING]

    found = collect(record(), FakeTransport(answer, {"d": TransportError("off")}), dry_run=True, every_cluster=False)
    assert asked == [("gc", True, False)] * 3
    assert found.processes == 1
    assert list(found.errors) == ["d"]
    show_remains(found, dry_run=True)
    output = capsys.readouterr()
    assert "1 process, 1 run" in output.out
    assert "1.5 kB" in output.out
    assert "b: process 4711 of digits-0: python train.py" in output.out
    assert "a,c: nothing to remove" in output.out
    assert "nothing has been removed" in output.err


def extra(host: str, id_: str, **fields: Any) -> Any:
    usual = {"cluster": "digits", "id": id_, "path": "/home/ada/.dtctl/work/digits/tree", "files": 1}
    return host, {**usual, "size_bytes": 501_000_000, **fields}


def test_hosts_that_share_a_home_directory_name_it_once() -> None:
    (one,) = without_duplicates([extra("gpu-1", "x"), extra("gpu-2", "x")])
    assert (one.hosts, one.directories) == (("gpu-1", "gpu-2"), 1)
    assert written_line(one) == (
        "kept: 501 MB, with 1 file that trainers of digits wrote: /home/ada/.dtctl/work/digits/tree on gpu-[1-2]"
    )


def test_directories_that_are_alike_are_reported_in_one_line_and_others_not() -> None:
    alike, other = without_duplicates([extra("gpu-1", "x"), extra("gpu-2", "y"), extra("gpu-3", "z", files=2)])
    assert (alike.hosts, alike.directories) == (("gpu-1", "gpu-2"), 2)
    assert "501 MB each, with 1 file " in written_line(alike)
    assert other.hosts == ("gpu-3",)


def test_kept_files_are_shown_with_the_command_that_removes_them(capsys: pytest.CaptureFixture[str]) -> None:
    show_kept(())
    assert capsys.readouterr().err == ""
    show_kept((Written(None, "/tree", 3, 2048, ("a",)),))
    output = capsys.readouterr().err
    assert "2.0 kB, with 3 files that trainers wrote: /tree on a" in output
    assert "dtctl gc --written" in output


def folder(directory: str, identity: str, *steps: int) -> dict[str, Any]:
    values = [str(1.0 / (step + 1)) for step in steps]
    tag = {"tag": "loss", "count": len(steps), "least": "0.5", "most": "1.0", "steps": list(steps)}
    times = [1000.0 + step for step in steps]
    return {
        "dir": directory, "name": "train", "identity": identity, "series": [{**tag, "times": times, "values": values}],
    }  # fmt: skip


def result(*folders: dict[str, Any], run: str = "digits-1") -> dict[str, Any]:
    return {"type": "result", "run": run, "time": 2000.0, "dirs": ["/shared"], "folders": list(folders)}


def test_shared_directory_is_reported_once_and_one_of_the_same_name_twice() -> None:
    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        own = folder("/own", f"{session.host.name}-events", 1)
        return [result(folder("/shared", "7-events", 0, 1), own)]

    transport = FakeTransport(answer)
    found = read_metrics(record(), transport, ["loss"], points=5)
    hosts = sorted(transport.opened)
    assert sorted(one.directory for one in found.series) == [*["/own"] * len(hosts), "/shared"]
    assert [one.host for one in found.series if one.directory == "/shared"] == [record().coordinator]
    assert len(set(hosts)) == len(hosts), "one connection a host"


def test_a_host_with_another_run_is_an_error_and_not_a_curve() -> None:
    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        own = session.host.name == record().coordinator
        return [result(folder("/own", session.host.name, 1), run="digits-1" if own else "digits-0")]

    asked = record().__class__(**{**vars(record()), "run": None})
    found = read_metrics(asked, FakeTransport(answer), [], points=5)
    assert (found.run, [one.host for one in found.series]) == ("digits-1", [asked.coordinator])
    assert all("has another run than digits-1" in error.summary for error in found.errors.values())
    assert len(found.errors) == len(asked.hosts) - 1


def test_followed_points_come_once_and_an_unreachable_host_is_named() -> None:
    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        shared = [
            {"type": "points", "run": "digits-1", "folders": [folder("/s", "7", *steps)]} for steps in ((0, 1), (2,))
        ]
        return [*shared, result()]

    some = record()
    updates = list(follow_metrics(some, FakeTransport(answer), [], points=5))
    points = [point.step for one in updates if isinstance(one, Series) for point in one.points]
    assert points == [0, 1, 2]
    off = next(iter(some.hosts))
    found = read_metrics(some, FakeTransport(answer, {off: TransportError("off")}), [], points=5)
    assert off in found.errors


LEAD = TaskId("chief", 0)


def task(name: str, state: TaskState = TaskState.RUNNING, **fields: Any) -> TaskStatus:
    return task_status(name, state=state, **fields)


def test_a_run_that_has_reported_no_step_has_a_target_alone() -> None:
    assert progress_of([task("ps:0"), task("chief:0")], LEAD, 100) == RunProgress(target=100)


def test_the_furthest_step_counts_and_the_leads_rate_and_loss() -> None:
    tasks = [
        task("chief:0", step=90, step_time=5.0, rate=2.0, loss="0.5"),
        task("worker:0", step=100, step_time=6.0, rate=9.0, loss="0.7"),
    ]
    assert progress_of(tasks, LEAD, 200) == RunProgress(100, 6.0, 200, 2.0, "0.5")


def test_step_and_loss_of_a_worker_fill_in_for_the_lead() -> None:
    tasks = [task("chief:0"), task("worker:0", step=100, step_time=6.0, rate=9.0, loss="0.7")]
    assert progress_of(tasks, LEAD, None) == RunProgress(100, 6.0, None, 9.0, "0.7")


def test_a_loss_without_a_step_is_shown() -> None:
    assert progress_of([task("chief:0", loss="0.5")], LEAD, 9) == RunProgress(target=9, loss="0.5")


def test_the_number_of_steps_in_the_log_is_the_target_unless_the_run_has_one() -> None:
    tasks = [task("chief:0", step=90, steps=500)]
    assert [progress_of(tasks, LEAD, target).target for target in (None, 400)] == [500, 400]


def test_a_position_counts_by_the_number_of_batches_in_the_log() -> None:
    place = {"epoch": 1, "epochs": 5, "batch": 90, "batches": 100, "first_epoch": 1}
    found = progress_of([task("chief:0", step=90, steps=500, position=place, rate=10.0)], LEAD, 20)
    assert (found.position, found.target, found.left_s) == (place, 500, 41.0)


def test_at_equal_steps_the_lead_counts() -> None:
    tasks = [task("worker:0", step=90, step_time=6.0), task("chief:0", step=90, step_time=5.0)]
    for order in (tasks, tasks[::-1]):
        assert progress_of(order, LEAD, None) == RunProgress(90, 5.0)


def test_a_step_is_further_than_none() -> None:
    tasks = [task("chief:0", step=0, step_time=6.0), task("worker:0", step=1, step_time=5.0)]
    assert progress_of(tasks, LEAD, None) == RunProgress(1, 5.0)


def test_without_the_leads_the_rate_and_loss_of_the_furthest_count() -> None:
    for steps in ((0, 1, 0), (10, 30, 20)):
        tasks = [task(f"worker:{n}", step=step, rate=float(n), loss=f"0.{n}") for n, step in enumerate(steps)]
        assert progress_of(tasks, LEAD, None) == RunProgress(max(steps), rate=1.0, loss="0.1")


def test_a_task_that_runs_no_more_has_no_rate() -> None:
    tasks = [task("worker:0", TaskState.BACKOFF, step=100, rate=9.0, loss="nan")]
    assert progress_of(tasks, LEAD, 200) == RunProgress(100, None, 200, None, "nan")


def test_the_time_that_is_left_is_that_of_the_steps_that_are_left() -> None:
    assert RunProgress(100, 0.0, 300, 4.0).left_s == 50.0
    assert RunProgress(301, 0.0, 300, 4.0).left_s == 0.0
    assert RunProgress(100, 0.0, None, 4.0).left_s is None
    assert RunProgress(100, 0.0, 300, None).left_s is None
    assert RunProgress(None, None, 300, 4.0).left_s is None

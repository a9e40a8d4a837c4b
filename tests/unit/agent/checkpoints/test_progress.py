"""What is noticed of a run's checkpoints: where they may lie, and saves in them as signs of progress."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.agent.checkpoints import directories
from dtctl.agent.checkpoints.directories import Run, saved, values
from dtctl.agent.host import processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise.attempt import Attempt
from dtctl.agent.supervise.context import CheckpointSigns, TaskContext
from dtctl.agent.supervise.observation import Observation, note_work
from tests.agent.checkpoints.test_checkpoints import DATA
from tests.unit.agent.supervise import supervised
from tests.waiting import eventually


class Clock:
    """Every reading is one look later."""

    def __init__(self) -> None:
        self.now = 1000.0

    def later(self) -> float:
        self.now += 5.0
        return self.now


def test_every_save_counts(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "chief").mkdir()
    signs = CheckpointSigns([str(tmp_path), str(tmp_path / "not there")])
    assert signs.changes(clock.later()) == 0
    eventually(lambda: signs._seen is not None)
    for count, name in enumerate(["ckpt-1.index", "chief/ckpt-1.index", "chief/ckpt-2.index"], 1):
        (tmp_path / name).touch()
        eventually(lambda count=count: signs.changes(clock.later()) == count)  # type: ignore[misc]
    assert signs.changes(clock.now) == 3


def test_a_directory_that_is_made_later_counts_too(tmp_path: Path) -> None:
    clock = Clock()
    signs = CheckpointSigns([str(tmp_path / "out")])
    signs.changes(clock.later())
    eventually(lambda: signs._seen is not None)
    (tmp_path / "out").mkdir()
    eventually(lambda: signs.changes(clock.later()) == 1)


def observe(
    entry: Entry, attempt: Attempt, *checkpoint_dirs: str, stall_s: float | None = None
) -> tuple[Observation, CheckpointSigns]:
    task = supervised.task("worker:0")
    spec = supervised.spec(task, checkpoint_dirs=list(checkpoint_dirs), recovery=supervised.recovery(stall_s=stall_s))
    context = TaskContext(RunFiles("/run"), spec, {"PATH": "/bin"}, {}, lambda *_: None, lambda _: None)
    return Observation(context, task, entry, attempt, 1000.0), context.checkpoints


def test_a_task_that_saves_is_not_taken_for_hung(tmp_path: Path) -> None:
    attempt = Attempt(str(tmp_path), 1000.0)
    entry = made(Entry, state="running", ready=True, step=1, longest_gap_s=0.1)
    (tmp_path / "out").mkdir()
    now = 1000.0
    observation, signs = observe(entry, attempt, str(tmp_path / "out"), stall_s=100.0)
    watchdog = observation._watchdog
    for save in range(60):
        now += 6.0
        saves = signs._changes
        (tmp_path / "out" / f"ckpt-{save}.index").touch()
        assert observation.update(now, now) is None
        if watchdog.is_quiet(now):
            eventually(lambda: signs._looks._thread is not None and not signs._looks._thread.is_alive())
    assert signs._changes > saves - 1 > 0
    verdict = None
    for _ in range(30):
        now += 6.0
        verdict = verdict or observation.update(now, now)
        eventually(lambda: signs._looks._thread is not None and not signs._looks._thread.is_alive())
    assert verdict is not None
    assert verdict["kind"] == "silent"


def test_a_task_is_idle_since_the_first_time_that_nothing_was_seen_of_it() -> None:
    entry = made(Entry)
    seen = []
    for when, works in enumerate((None, False, False, None, True, False)):
        note_work(entry, works, float(when))
        seen.append(entry["idle_since"])
    assert seen == [None, 1.0, 1.0, 1.0, None, 5.0]


def test_task_that_complains_of_others_is_idle_until_it_logs_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = b"7 (python) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 99 1000 10"
    monkeypatch.setattr(processes, "_read_proc", lambda _, name: stat if name == "stat" else b"")
    monkeypatch.setattr(processes, "find", lambda _: None)
    attempt: Any = SimpleNamespace(directory=str(tmp_path), trainer={"pid": 7}, key="k", start=None)
    entry = made(Entry, state="running", ready=True)
    observation, _ = observe(entry, attempt)
    idle = []
    for now, line in (
        (1000.0, "building the graph"),
        (1006.0, "CreateSession still waiting for response from worker: /job:ps/replica:0/task:0"),
        (1012.0, "CreateSession still waiting for response from worker: /job:ps/replica:0/task:0"),
        (1018.0, "loaded 10 %"),
    ):
        with (tmp_path / "log").open("a") as log:
            log.write(f"{line}\n")
        observation.update(now, now)
        idle.append(entry["idle_since"])
    assert idle == [None, 1006.0, 1006.0, None]


def test_the_steps_of_a_program_that_names_none_are_those_of_its_checkpoints(tmp_path: Path) -> None:
    """Not of one that was there before: the attempt has made none of those."""
    attempt: Any = SimpleNamespace(
        directory=str(tmp_path), trainer=None, key="k", start={"started": NOW, "keeper": None, "pid": None}
    )
    out = tmp_path / "out"
    orbax(out, 100, NOW - 60.0)
    (tmp_path / "log").write_text("global_step/sec: 7.5\n")
    entry = made(Entry, state="running", ready=True)
    observation, signs = observe(entry, attempt, str(out))
    seen = []
    for passed_s in range(0, 320, 5):
        if passed_s in (100, 200, 300):
            orbax(out, 3 * passed_s, NOW + passed_s)
        assert observation.update(1000.0 + passed_s, NOW + passed_s) is None
        eventually(lambda: signs._looks._thread is None or not signs._looks._thread.is_alive())
        seen += [(entry["step"], entry["rate"])] if (entry["step"], entry["rate"]) not in seen else []
    assert seen == [(None, 7.5), (300, 7.5), (600, 7.5), (900, 7.5)]
    assert entry["longest_gap_s"] == pytest.approx(100.0, abs=20.0), "the next attempt has as much time for its first"


def orbax(directory: Path, step: int, at: float) -> None:
    """As versions of Orbax write it that have renamed a directory to commit it."""
    made = directory / str(step)
    made.mkdir(parents=True)
    (made / "_METADATA").write_text("{}")
    for written in (made / "_METADATA", made):
        os.utime(written, (at, at))


NOW = 1_700_000_000.0


def run_of(tree: Path, *args: str, known: tuple[str, ...] = (), name: str = "r-1", created: float = NOW) -> Run:
    """On the lead's host."""
    task = {"id": "worker:0", "argv": ["python", "train.py", *args]}
    spec: Any = {"run": name, "created": created, "checkpoint_dirs": list(known), "lead": "worker:0", "tasks": [task]}
    spec.update(host="a", coordinator={"host": "a"})
    return Run(spec, str(tree), list)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def save(directory: Path, at: float = NOW + 60.0) -> None:
    shutil.copytree(DATA / "tf1_plain", directory)
    for path in directory.iterdir():
        os.utime(path, (at - ("100" in path.name), at - ("100" in path.name)))


def rows(new: Run, *before: Run, marked: tuple[str, ...] = ()) -> list[tuple[str | None, str, bool]]:
    found = saved(new, before, marked)
    return [(one["run"], f"{one['dir']}/{one['checkpoint']['prefix']}", one["seen"]) for one in found]


def test_values_of_a_command_line() -> None:
    argv = ["python", "--train_dir=out", "--steps=5", "--flag", "gs://bucket/x", "--empty=", "/data/x"]
    assert values(argv) == ["python", "out", "5", "/data/x"]


@pytest.mark.parametrize(("directory", "seen"), [("out", True), ("out2", False)], ids=["same is seen", "other is not"])
def test_relative_directory_is_seen_by_the_next_run_that_names_it(tree: Path, directory: str, seen: bool) -> None:
    save(tree / "out")
    new, before = run_of(tree, f"--train_dir={directory}", name="r-2"), run_of(tree, "--train_dir=out")
    assert rows(new, before) == [("r-1", f"{tree}/out/model.ckpt-200", seen)]


def test_unnamed_directory_is_found_only_from_the_same_working_directory(tree: Path) -> None:
    save(tree / "out")
    new = run_of(tree, name="r-2")
    assert rows(new, run_of(tree)) == [("r-1", f"{tree}/out/model.ckpt-200", True)]
    (tree.parent / "other").mkdir()
    moved = run_of(tree.parent / "other", name="r-2")
    assert rows(moved, run_of(tree)) == [("r-1", f"{tree}/out/model.ckpt-200", False)]


def test_another_output_directory_of_the_file_is_reported(tree: Path, tmp_path: Path) -> None:
    save(tmp_path / "a")
    before = run_of(tree, known=(str(tmp_path / "a"),))
    new = run_of(tree, known=(str(tmp_path / "b"),), name="r-2")
    assert rows(new, before) == [("r-1", f"{tmp_path}/a/model.ckpt-200", False)]
    assert rows(new, marked=(str(tmp_path / "a"),)) == [(None, f"{tmp_path}/a/model.ckpt-200", False)]


def test_checkpoint_from_before_the_first_run_is_not_its_own(tree: Path, tmp_path: Path) -> None:
    save(tmp_path / "model", at=NOW - 3600.0)
    assert rows(run_of(tree, name="r-2"), run_of(tree, f"--init_from={tmp_path}/model")) == []


def test_a_link_to_the_same_directory_is_the_same(tree: Path, tmp_path: Path) -> None:
    save(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    [(_, _, seen)] = rows(run_of(tree, f"--out={tmp_path}/link"), run_of(tree, known=(str(tmp_path / "a"),)))
    assert seen


def test_without_a_setting_only_directories_with_a_checkpoint_are_reported(tree: Path, tmp_path: Path) -> None:
    run = run_of(tree, f"--out={tmp_path}/out", "--out=here")
    assert directories.report(run) == []
    save(tmp_path / "out")
    save(tree / "here")
    assert [(one["dir"], one["guessed"]) for one in directories.report(run)] == [
        (str(tree), True),
        (str(tmp_path / "out"), True),
    ]

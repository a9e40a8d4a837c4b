"""Whole screens on terminals of several widths, with long names and many tasks, and in a pipe."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from dtctl.agent.records import gc as gc_records
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import said
from dtctl.agent.rooms.data.records import DataDropped, DataHeld
from dtctl.config.load import load_cluster
from dtctl.errors import Place, Problem
from dtctl.operations.events import Attempted
from dtctl.operations.findings import Checked
from dtctl.operations.gc import GcResult, Written
from dtctl.plan.hosts import DataPlace
from dtctl.plan.run import plan_run
from dtctl.render.checkpoints import show_checkpoints
from dtctl.render.errors import show_doubts, show_warning
from dtctl.render.events import Told, show_entry
from dtctl.render.plan import show_plan, show_whole_tasks
from dtctl.render.result import show_remains
from dtctl.render.status import show_status
from dtctl.rooms.check import Line, Statement
from dtctl.rooms.check.screen import show_checked
from dtctl.rooms.data.operation import PlaceState
from dtctl.rooms.data.screen import show_data_dropped, show_data_examples, show_data_states
from tests.unit.diagnosing import facts, running
from tests.unit.tasks import checkpoint, checkpoint_directory

WIDTHS = (80, 100, 140, 200)
HOSTS = tuple(f"gpu-node-{number:03d}.rack-{number % 7}.cluster.example.org" for number in range(150))
DIRECTORY = "/home/ada/experiments/digits-of-the-second-series/output"
RUN = "digits-of-the-second-experiment-20261130-045823-637a"

CLUSTER = f"""\
name: digits-of-the-second-experiment
hosts:
  "gpu-node-[001-150].cluster.example.org": {{gpus: 2}}
jobs:
  ps: {{hosts: "gpu-node-[001-010].cluster.example.org"}}
  worker: {{hosts: "gpu-node-[001-145].cluster.example.org", tasks_per_host: 2}}
trainer:
  command: [python, train.py]
  args: {{output_dir: "{{output_dir}}", train_steps: 60000, learning_rate_of_the_optimizer: 0.0001, 名前: 二番目の実験}}
  env: {{TF_CPP_MIN_LOG_LEVEL: 2, NOTE_OF_THE_EXPERIMENT: "a sentence with several words in it"}}
dirs: {{output: {DIRECTORY}}}
"""


def plan(directory: Path) -> Callable[[], None]:
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER, encoding="utf-8")
    cluster = load_cluster(file)
    planned = plan_run(cluster, {name: name for name in cluster.hosts}, local_python="python3")

    def show() -> None:
        show_plan(planned)
        show_whole_tasks(planned, [planned.lead])

    return show


def check(_: Path) -> Callable[[], None]:
    shared = Statement("shared", {"where": DIRECTORY, "hosts": HOSTS[:3], "filesystem": "nfs4"})
    tried = Statement("connections", {"reached": 600, "tried": 600, "hosts": HOSTS[:3]})
    versions = Line("tensorflow", {host: "2.21.0" if number % 2 else "2.19.1" for number, host in enumerate(HOSTS)})
    lines = {"network": (tried,), "storage": (shared,), "software": (versions,)}
    return lambda: show_checked(Checked(HOSTS, (), lines, 12.0, {}))


def data(_: Path) -> Callable[[], None]:
    names = [f"train-of-the-second-series-{number:05d}-of-01024.tfrecord" for number in range(3)]
    held = made(DataHeld, dir=DIRECTORY, there=True, files=1024, missing=3, missing_bytes=30, examples=names)
    states = [PlaceState(DataPlace(host, DIRECTORY), held, "incomplete") for host in HOSTS[:3]]
    dropped = made(DataDropped, dir=DIRECTORY, removed_files=1024, freed_bytes=10**9)

    def show() -> None:
        show_data_states(states)
        show_data_examples(states)
        show_data_dropped({host: [dropped] for host in HOSTS[:2]})

    return show


def checkpoints(_: Path) -> Callable[[], None]:
    of_step = [checkpoint(f"model-of-the-second-experiment.ckpt-{step}", step) for step in range(9000, 0, -1000)]
    broken = checkpoint(
        "model-of-the-second-experiment.ckpt-10000", 10000, complete=False, problem="half of it is zero"
    )
    place = checkpoint_directory(HOSTS[0], DIRECTORY, broken, *of_step, incomplete=[broken])
    return lambda: show_checkpoints([place], 10.0)


def gc(_: Path) -> Callable[[], None]:
    left = {"pid": 4711, "command": f"/opt/venv/bin/python train.py --output_dir={DIRECTORY}", "run": RUN}
    run = {"run": RUN, "cluster": "digits", "host": HOSTS[0], "why": said("it ended 9 days ago"), "size_bytes": 10**9}
    found = {
        host: made(
            gc_records.GcResult,
            dry_run=True,
            processes=[left],
            survivors=[],
            runs=[run],
            freed_bytes=10**9,
            bundles=["0" * 64],
            files=["file"],
        )
        for host in HOSTS[:3]
    }
    kept = (Written("digits", DIRECTORY, 123, 10**9, HOSTS[:3]),)
    return lambda: show_remains(GcResult(found, {}, (), kept), dry_run=True)


def status(_: Path) -> Callable[[], None]:
    tasks = [running(f"worker:{n}", HOSTS[n % 150], since=990.0, step=n, rate=12.5, pid=10_000 + n) for n in range(300)]
    whole = facts(*tasks).status
    return lambda: show_status(whole, every=True)


SCREENS = {"plan": plan, "check": check, "data": data, "checkpoints": checkpoints, "gc": gc, "status": status}


def shown(
    screen: Callable[[], None], width: int | None, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines of stdout; `width`: of the terminal, None for a pipe."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        patch.delenv(name, raising=False)
    if width is not None:
        for name, value in {"TTY_COMPATIBLE": "1", "NO_COLOR": "1", "COLUMNS": str(width), "LINES": "40"}.items():
            patch.setenv(name, value)
    screen()
    return capsys.readouterr().out.splitlines()


def words(lines: list[str]) -> set[str]:
    return {word for line in lines for word in re.findall(r"[\w:.]+", line)}


def is_one_word(line: str, width: int) -> bool:
    """Whether the line has a word that fits no terminal, and little more."""
    longest = max(map(cell_len, line.split()))
    return longest > width - 24 and cell_len(line) - longest < 24


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_fits_each_terminal_without_a_broken_word(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = SCREENS[name](tmp_path)
    piped = shown(screen, None, monkeypatch, capsys)
    assert not any(line.endswith(" ") for line in piped), "nothing is padded in a pipe"
    for width in WIDTHS:
        lines = shown(screen, width, monkeypatch, capsys)
        assert not [line for line in lines if cell_len(line) > width and not is_one_word(line, width)]
        assert not [line for line in lines if line.endswith((" ", " \\\\"))], "nothing is padded"
        assert not words(lines) - words(piped), "no word is broken"
        blank = [number for number, line in enumerate(lines) if not line]
        assert len(blank) <= len([line for line in piped if not line]), "no blank line after every row"


@pytest.mark.parametrize("width", WIDTHS)
def test_warnings_and_their_hints_end_between_words(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"TTY_COMPATIBLE": "1", "NO_COLOR": "1", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("dtctl.render.terminal.console.on_terminal", lambda *, stderr=False: True)
    warning = (
        f"this run begins at step 0: an earlier run saved step 3002 in {DIRECTORY} on node-1, and this one does not"
    )
    advice = "to continue from it, stop this run, and let dirs.output name the directory of that run"
    show_warning(warning, hint=advice)
    command = f"pip install {' '.join(['tensorflow>=2.16', 'scikit-learn>=1.3'] * 4)}"
    show_warning("no TensorFlow", hint=command)
    show_doubts([Problem(Place("cluster.yaml", 21, 1), "nothing installs requirements.txt: " + warning, "python:")])
    lines = capsys.readouterr().err.splitlines()
    assert f" hint: {command}" in lines, "a command is left whole, to be copied"
    assert all(cell_len(line) <= width or command in line for line in lines)
    written = [
        warning,
        advice,
        command,
        "no TensorFlow",
        "nothing installs requirements.txt:",
        "warning: hint: python:",
    ]
    assert words(lines) <= words([*written, "cluster.yaml:21:1: warning: hint: python:"])


def test_a_command_goes_on_in_the_next_line_as_a_shell_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(plan(tmp_path), 80, monkeypatch, capsys)
    command = lines[lines.index(next(line for line in lines if line.startswith("  python"))) : -1]
    assert len(command) > 2
    assert all(line.endswith(" \\") for line in command[: command.index(next(x for x in command if x[-1] != "\\"))])


def test_an_event_goes_on_below_its_first_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = tuple(said("the data set of the second experiment is not where trainer.args say that it is, on any host"))
    failed = Attempted("worker:1", "gpu-1", 3, 10.0, 5.0, "failed", why)
    monkeypatch.setattr("dtctl.render.terminal.console.on_terminal", lambda *, stderr=False: True)
    lines = shown(lambda: show_entry(failed, Told()), 80, monkeypatch, capsys)
    assert len(lines) > 1
    assert all(line.startswith(" " * 21) and line[21] != " " for line in lines[1:])
    assert all(len(line) <= 80 for line in lines)

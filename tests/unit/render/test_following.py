"""The lines at the bottom of a terminal while a run is followed; in a pipe nothing of them."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.whole_run import RunView
from dtctl.model import TaskId
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, Verdict
from dtctl.render.following import FollowedRun, bottom_lines, host_lines, run_line
from dtctl.render.terminal import console
from dtctl.render.terminal import moving as module
from dtctl.render.terminal.moving import Drawn, LastLines, moving
from tests.unit.coordinated import viewed
from tests.unit.diagnosing import facts, running


def run(phase: str = "running", *, restarts: int = 0, tasks: int = 2, hosts: int = 2, **fields: object) -> RunStatus:
    some = [
        running(f"worker:{n}", f"gpu-{n % hosts}", since=990.0, step=340, rate=12.5, loss="0.231", **fields)
        for n in range(tasks)
    ]
    some[0] = dataclasses.replace(some[0], entry={**some[0].entry, "attempt": 1 + restarts})
    found = facts(*some).status
    view = checked(RunView, viewed(phase=phase))
    record = dataclasses.replace(found.record, target_step=1000, lead=TaskId("worker", 0))
    return dataclasses.replace(found, record=record, coordination=Coordination(view, found.tasks))


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def screen(columns: int = 80) -> Iterator[Screen]:
    made = Screen()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", str(columns))
        patch.setattr("sys.stdout", made)
        patch.setattr("sys.stderr", made)
        patch.setattr(module, "_drawn", ())
        patch.setattr(module, "_columns", lambda: int(os.environ["COLUMNS"]))
        yield made


def test_the_line_has_step_rate_time_loss_states_and_restarts() -> None:
    line = run_line(run(restarts=2), 200).plain
    assert line.startswith(
        "━━━━━━━━━━━━━━━━ 34% · step 340/1000 · 12.5 steps/s · done in 52s · loss 0.231 · running 2/2"
    )
    assert " · 2 restarts · " in line


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 140, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = run("starting", tasks=300, hosts=100, restarts=3)
    for line in bottom_lines(wide, width):
        assert line.cell_len <= width
    assert run_line(wide, width).plain.count("step 340/1000") == 1


def test_while_a_run_starts_each_host_has_a_line() -> None:
    lines = ["".join(text for text, _ in line) for line in host_lines(run("starting"), 8)]
    assert lines == ["gpu-0  worker:0 running 10s", "gpu-1  worker:1 running 10s"]
    assert host_lines(run("running"), 8) == []
    many = ["".join(text for text, _ in line) for line in host_lines(run("starting", tasks=300, hosts=100), 8)]
    assert len(many) == 8
    assert many[-1].startswith("93 more hosts: worker:[")


def test_output_goes_on_above_the_lines_which_stay() -> None:
    with screen() as shown:
        lines = LastLines(lambda: [Drawn("gpu-1 starting", 14), Drawn("step 3", 6)])
        with moving(lines):
            assert shown.getvalue() == "gpu-1 starting\nstep 3"
            console.say("worker:0 | hello")
            erased = "\r\x1b[2K\x1b[1A\x1b[2K"
            assert shown.getvalue().endswith(f"step 3{erased}worker:0 | hello\ngpu-1 starting\nstep 3")
        assert shown.getvalue().endswith(erased)
        assert not module._drawn


def test_a_terminal_that_became_narrower_is_left_clean() -> None:
    with screen(columns=80) as shown, pytest.MonkeyPatch.context() as patch:
        with moving(LastLines(lambda: [Drawn("x" * 70, 70)])):
            patch.setenv("COLUMNS", "30")
        assert shown.getvalue().endswith("\r\x1b[2K" + "\x1b[1A\x1b[2K" * 2), "it took three rows"


def test_followed_run_shows_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with FollowedRun() as bottom:
        bottom.see(run())
    assert not bottom.shown
    assert capsys.readouterr() == ("", "")


def test_followed_run_shows_the_run_and_is_gone_when_it_has_ended() -> None:
    with screen() as shown, FollowedRun() as bottom:
        bottom.see(run())
        assert "340/1000" in shown.getvalue()
        written = len(shown.getvalue())
        bottom.see(dataclasses.replace(run(), verdict=Verdict(Outcome.SUCCEEDED, ())))
        assert shown.getvalue()[written:] == "\r\x1b[2K"


def test_wide_characters_are_counted_by_their_columns() -> None:
    found = run()
    wide = {task: dataclasses.replace(one, entry={**one.entry, "loss": "漢" * 40}) for task, one in found.tasks.items()}
    assert run_line(dataclasses.replace(found, tasks=wide), 79).cell_len <= 79

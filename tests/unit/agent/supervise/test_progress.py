"""The step that a log tells, read from no more than what is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.agent.supervise.progress import MOST_BYTES, LogProgress, Rate, last_loss, last_step


@pytest.mark.parametrize(
    "line",
    [
        "step 100",
        "step=100",
        "step = 100",
        "step: 100",
        "Step: 100/5000",
        "global_step: 100",
        "global step 100",
        "global_step=100, loss=0.3",
        "INFO:tensorflow:loss = 0.1, step = 100 (0.3 sec)",
        "I0101 12:00:00.1 train.py:7] Step #100",
        '{"step": 100, "loss": 0.5}',
        "worker 3 at step 100.",
        "step 99\nstep 100\n",
    ],
)
def test_a_step_is_found(line: str) -> None:
    assert last_step(line.encode()) == 100


@pytest.mark.parametrize(
    "line",
    [
        "global_step/sec: 7.1",
        "steps/sec 7.1",
        "step_time 100",
        "step_time: 100",
        "steps 100",
        "warmup_step = 100",
        "total step 100",
        "step 7.1",
        "step 100ms",
        "step 50%",
        "footstep 100",
        "per-step 100",
        "next step: train",
        "step 1e5",
        "",
    ],
)
def test_what_is_no_step_is_not_found(line: str) -> None:
    assert last_step(line.encode()) is None


def test_only_whole_lines_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    progress = LogProgress(str(log), adopted=False)
    assert not progress.look()
    log.write_bytes(b"step 10\nstep 1")
    assert progress.look()
    assert progress.step == 10
    assert not progress.look()
    with log.open("ab") as file:
        file.write(b"1\n")
    assert progress.look()
    assert progress.step == 11


def test_a_progress_bar_is_read_up_to_its_last_return(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"step 1\rstep 2\rste")
    progress = LogProgress(str(log), adopted=False)
    assert progress.look()
    assert progress.step == 2


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"step 5\n" + b"x" * 2 * MOST_BYTES + b"\nno more\n")
    progress = LogProgress(str(log), adopted=False)
    assert progress.look()
    assert progress.step is None
    with log.open("ab") as file:
        file.truncate(1 << 40)  # a hole: reading all of it would take minutes
        file.seek(0, 2)
        file.write(b"\nstep 6\n")
    assert progress.look()
    assert progress.step == 6


def test_a_log_that_was_truncated_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"step 5\nand more\n")
    progress = LogProgress(str(log), adopted=False)
    progress.look()
    log.write_bytes(b"step 1\n")
    assert progress.look()
    assert progress.step == 1


def test_what_an_earlier_supervisor_has_seen_is_no_growth(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"step 5\n")
    progress = LogProgress(str(log), adopted=True)
    assert not progress.look()
    assert progress.step == 5


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("step 100  loss 0.041  accuracy 0.97", "0.041"),
        ("INFO:tensorflow:loss = 2.3e-05, step = 200 (0.3 sec)", "2.3e-05"),
        ('{"step": 100, "loss": 0.5}', "0.5"),
        ("Loss: -12", "-12"),
        ("loss=nan", "nan"),
        ("100/100 - 1s - loss: 0.2501 - accuracy: 0.9", "0.2501"),
        ("loss 1.0\nloss 0.5\n", "0.5"),
        ("training loss: 3.", "3."),
        ("val_loss: 0.3", None),
        ("loss_scale 1024", None),
        ("loss 50%", None),
        ("packet loss: none", None),
        ("lossless 3", None),
    ],
)
def test_the_last_loss_is_told_in_its_own_digits(line: str, loss: str | None) -> None:
    assert last_loss(line.encode()) == loss


def test_a_rate_is_over_the_last_minute() -> None:
    rate = Rate()
    assert rate.look(0.0, 10) is None
    assert rate.look(10.0, 110) == 10.0
    assert rate.look(60.0, 160) == 2.5
    assert [rate.look(60.0 + at, 160 + 4 * at) for at in range(10, 71, 10)][-1] == 4.0  # the first ones are forgotten


def test_a_rate_of_few_steps_is_between_the_last_two() -> None:
    rate = Rate()
    rate.look(0.0, 0)
    assert rate.look(600.0, 6000) == 10.0
    assert rate.look(1200.0, 6600) == 1.0


def test_after_a_return_to_a_checkpoint_a_rate_begins_anew() -> None:
    rate = Rate()
    rate.look(0.0, 100)
    rate.look(1.0, 200)
    assert rate.look(2.0, 150) is None
    assert rate.look(3.0, 160) == 10.0

"""The step that a log tells, read from no more than what is new."""

from __future__ import annotations

import json
import time
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.supervise import step_reader
from dtctl.agent.supervise.observation import MARKS, MOST_BYTES, LogProgress, Rate, complaint_after, last_complaint
from dtctl.agent.supervise.step_reader import StepReader
from tests.fuzz import cases
from tests.unit.agent.progress_lines import PROGRESS_LINES, ProgressLine

LINES = [*chain(*json.loads(Path(__file__).with_name("log_lines.json").read_text()).values())]
"""Program, line, step and loss: copied from documentation, examples and issues; numbers and paths are shortened."""


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
    assert step_reader.read(line.encode()).step == 100


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
def test_other_numbers_are_no_steps(line: str) -> None:
    assert step_reader.read(line.encode()).step is None


@pytest.mark.parametrize(("line", "step", "loss"), [each[1:] for each in LINES], ids=[each[0] for each in LINES])
def test_step_and_loss_of_public_programs(line: str, step: int | None, loss: str | None) -> None:
    found = step_reader.read(line.encode())
    assert (found.step, found.loss) == (step, loss)


@pytest.mark.parametrize("line", PROGRESS_LINES, ids=[one.text[:60] for one in PROGRESS_LINES])
def test_progress_is_read_as_programs_print_it(line: ProgressLine) -> None:
    found = StepReader().read((line.text + "\n").encode())
    assert (found.step, found.total, found.loss, found.rate) == (line.step, line.total, line.loss, line.rate)
    place = found.position
    assert (place and (place.epoch, place.epochs, place.at, place.of)) == line.position
    if line.step is None:
        assert found.saved == line.saved


def test_at_least_three_hundred_lines_of_progress_are_tried() -> None:
    assert len(PROGRESS_LINES) >= 300


@pytest.mark.parametrize(
    ("outputs", "steps"),
    [
        (["Epoch: [1][50/100]", "Epoch: [1][100/100]", "Epoch: [2][50/100]"], [50, 100, 150]),
        (["Epoch: [0][ 0/100]", "Epoch: [0][50/100]", "Epoch: [3][50/100]"], [None, 50, 350]),
        (["Epoch 1/3\n 50/100 [==>...] - loss: 0.5", "Epoch 2/3", " 50/100 [==>...] - loss: 0.4"], [50, 50, 150]),
        ([f" {n}%|##  | {n}/100 [00:05<01:10,  9.1it/s]" for n in (50, 100, 50, 99)], [50, 100, 150, 199]),
        (["Epoch 1, batch 40 loss 0.5", "Epoch 1, batch 80 loss 0.4", "Epoch 2, batch 40 loss 0.3"], [40, 80, 120]),
        (["Epoch 1, loss: 0.5", "Epoch 2, loss: 0.4"], [1, 2]),
        ([f"[GPU0] Epoch {n} | Batchsize: 32 | Steps: 32" for n in (0, 1, 9)], [32, 64, 320]),
        (
            [
                *("\titers: 100, epoch: 1 | loss: 0.5", "Epoch: 1, Steps: 264 | Train Loss: 0.4 Vali Loss: 0.5"),
                "\titers: 100, epoch: 2 | loss: 0.3",
            ],
            [100, 264, 364],
        ),
        (["Epoch: [1][50/999999999999]", "Epoch: [9999999][50/999999999999]"], [50, None]),
        (["Epoch: [1][50/100]", "Test: [20/30]", "Sanity Checking: 100%|##| 2/2 [00:00<?, ?it/s]"], [50, 50, 50]),
        ([" 50%|##  | 50/100 [00:05<01:10]", " 50%|##  | 5/10 [00:05<01:10]"], [50, 50]),
        (["Epoch: [1][50/100]", "step 7", "Epoch: [1][60/100]"], [50, 7, 7]),
        (
            ["Starting training loop from step 0", "Saved checkpoint at step 500", "Saved checkpoint at step 900"],
            [None, 500, 900],
        ),
        (["step 510", "Saved checkpoint at step 500", "Saved checkpoint at step 520"], [510, 510, 520]),
    ],
)
def test_positions_and_saves_are_counted_as_steps(tmp_path: Path, outputs: list[str], steps: list[int | None]) -> None:
    log = tmp_path / "log"
    log.touch()
    progress = LogProgress(str(log), adopted=False)
    found = []
    for output in outputs:
        with log.open("a") as file:
            file.write(output + "\n")
        progress.update()
        found.append(progress.step)
    assert found == steps


def test_the_first_epoch_is_remembered_across_attempts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Epoch: [3][50/100]\n")
    assert [_step_of(log, first) for first in (0, 1)] == [350, 250]


def _step_of(log: Path, first_epoch: int) -> int | None:
    progress = LogProgress(str(log), adopted=False, first_epoch=first_epoch)
    progress.update()
    return progress.step


@pytest.mark.parametrize(
    ("text", "steps"), [("step 5/90", 90), ("Epoch 2/9: 50%|##| 50/100 [00:01<00:01]", 900), ("step 5", None)]
)
def test_the_number_of_all_steps_is_read_from_the_log(tmp_path: Path, text: str, steps: int | None) -> None:
    log = tmp_path / "log"
    log.write_text(text + "\n")
    progress = LogProgress(str(log), adopted=False)
    progress.update()
    assert progress.steps == steps


def test_a_bar_that_is_drawn_by_backspaces_is_read_before_its_line_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"Epoch 1/3\n 50/100 [==>...] - loss: 0.5" + b"\b" * 30)
    progress = LogProgress(str(log), adopted=False)
    progress.update()
    assert (progress.step, progress.loss) == (50, "0.5")


TABLE = (
    "Done warm up\nStep\tImg/sec\ttotal_loss\n1\timages/sec: 135.5 +/- 0.0 (jitter = 0.0)\t8.169\n"
    "10\timages/sec: 133.2 +/- 2.3 (jitter = 7.3)\t7.593\n"
)


@pytest.mark.parametrize(
    ("text", "step", "loss"),
    [
        (TABLE, 10, "7.593"),
        (TABLE.replace("\t", "   "), 10, "7.593"),
        ("| Step | Training Loss | Validation Loss |\n| 500 | 0.31 | 0.42 |\n", 500, "0.31"),
        ("epoch,step,loss,lr\n0,100,0.5,0.1\n", 100, "0.5"),
        ("Step\tImg/sec\ttotal_loss\n100 images were read\n", None, None),
        ("Step\tImg/sec\ttotal_loss\n", None, None),
        (TABLE + "step 11\n", 11, None),
        ("step 11\n" + TABLE, 10, "7.593"),
        ("10\timages/sec: 133.2 +/- 2.3 (jitter = 7.3)\t7.593\n", None, None),
        (TABLE + "total images/sec: 133.81\n", 10, "7.593"),
        ("step,loss\n5,0.1\n", 5, "0.1"),
        ("Step\tImg/sec\ttotal_loss\nold\tnew\t3\n", None, None),
        ("step,loss\n" + "9" * 15 + ",1\n", int("9" * 15), "1"),
        ("step,loss\n" + "9" * 16 + ",1\n", None, None),
        ("12 | step | x\n3 | 4 | 5\n", None, None),
        ("step,step\n3,4\n", None, None),
        ("step\t\n5\n", None, None),
        ("m2,step,x\n1,5,0\n", 5, None),
        ("filler\n" * 300 + TABLE, 10, "7.593"),
        ("step  step  " * 500 + "\n5\t6\n", None, None),
    ],
)
def test_rows_below_a_header_are_read(text: str, step: int | None, loss: str | None) -> None:
    found = step_reader.read(text.encode())
    assert (found.step, found.loss) == (step, loss)


ROW = b"20\timages/sec: 133.6 +/- 1.4 (jitter = 5.5)\t7.696\n"


def test_the_line_of_a_step_begins_after_a_return() -> None:
    assert step_reader.read(b"bar 5/10\rstep 5\n").line == b"step 5"
    assert step_reader.read(b"nothing\n").line == b""


def test_a_header_is_remembered() -> None:
    reader = StepReader()
    assert reader.read(b"Step\tImg/sec\ttotal_loss\n").step is None
    found = reader.read(ROW)
    assert (found.step, found.loss) == (20, "7.696")
    assert found.line == ROW.strip()


def test_the_line_that_a_step_was_read_from_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"step 99\n Training step 500, eval at step 1000 \nsomething else\n")
    progress = LogProgress(str(log), adopted=False)
    progress.update()
    assert (progress.step, progress.step_line) == (500, b"Training step 500, eval at step 1000")


@pytest.mark.parametrize(
    "line",
    [
        "step 1 ",
        "eval step 1 ",
        "step  step  ",
        "loss ",
        "val loss 1 ",
        "step,",
        "|step ",
        "epoch 1 ",
        "1/2 ",
        "%|#|1/2 ",
        "saved ",
    ],
)
def test_a_hostile_line_is_read_at_once(line: str) -> None:
    began = time.process_time()
    StepReader().read((line * MOST_BYTES)[:MOST_BYTES].encode())
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("adopted", "updates"),
    [
        (False, [(b"", False, None), (b"step 10\nstep 1", True, 10), (b"", False, 10), (b"1\n", True, 11)]),
        (False, [(b"step 1\rstep 2\rste", True, 2)]),
        (True, [(b"step 5\n", False, 5)]),
        (True, [(TABLE.encode() + b"x" * 3 * MOST_BYTES + b"\n", False, None), (ROW, True, 20)]),
    ],
    ids=["whole lines", "a bar up to its last return", "what an earlier supervisor saw", "a header from before it"],
)
def test_each_update_finds_what_was_written_since_the_last(
    tmp_path: Path, adopted: bool, updates: list[tuple[bytes, bool, int | None]]
) -> None:
    """`updates`: what is written before each, whether the log has grown, and the step."""
    log = tmp_path / "log"
    progress: LogProgress | None = None
    for written, grew, step in updates:
        if written:
            with log.open("ab") as file:
                file.write(written)
        progress = progress or LogProgress(str(log), adopted=adopted)
        assert (progress.update(), progress.step) == (grew, step)


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"step 5\n" + b"x" * 2 * MOST_BYTES + b"\nno more\n")
    progress = LogProgress(str(log), adopted=False)
    assert progress.update()
    assert progress.step is None
    with log.open("ab") as file:
        file.truncate(1 << 40)  # a hole: reading all of it would take minutes
        file.seek(0, 2)
        file.write(b"\nstep 6\n")
    assert progress.update()
    assert progress.step == 6


def test_a_log_that_was_truncated_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"step 5\nand more\n")
    progress = LogProgress(str(log), adopted=False)
    progress.update()
    log.write_bytes(b"step 1\n")
    assert progress.update()
    assert progress.step == 1


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
def test_the_last_loss_is_reported_in_its_own_digits(line: str, loss: str | None) -> None:
    assert step_reader.read(line.encode()).loss == loss


def test_a_rate_is_over_the_last_minute() -> None:
    rate = Rate()
    assert rate.update(0.0, 10) is None
    assert rate.update(10.0, 110) == 10.0
    assert rate.update(60.0, 160) == 2.5
    assert [rate.update(60.0 + at, 160 + 4 * at) for at in range(10, 71, 10)][-1] == 4.0  # the first ones are forgotten


def test_a_rate_of_few_steps_is_between_the_last_two() -> None:
    rate = Rate()
    rate.update(0.0, 0)
    assert rate.update(600.0, 6000) == 10.0
    assert rate.update(1200.0, 6600) == 1.0


def test_a_rate_that_no_entry_can_hold_is_unknown() -> None:
    rate = Rate()
    rate.update(0.0, 0)
    assert rate.update(0.001, 10**15) is None


def test_rate_restarts_after_a_return_to_a_checkpoint() -> None:
    rate = Rate()
    rate.update(0.0, 100)
    rate.update(1.0, 200)
    assert rate.update(2.0, 150) is None
    assert rate.update(3.0, 160) == 10.0


STILL = (
    b"2026-11-22 10:02:11.123456: I tensorflow/core/distributed_runtime/master.cc:278] "
    b"CreateSession still waiting for response from worker: /job:ps/replica:0/task:1\n"
)


def test_the_last_complaint_and_its_context_are_found() -> None:
    data = b"step 1\n" + STILL.replace(b"task:1", b"task:0") + STILL + b"step 2\n"
    line, after = last_complaint(data)
    assert line == STILL.strip()
    assert after == b"\nstep 2\n"


def test_a_log_without_a_complaint_has_none() -> None:
    assert last_complaint(b"step 1 loss 0.5\nWARNING: slow\n") == (b"", b"")


def test_when_and_where_it_was_written_is_left_out() -> None:
    for head in (b"INFO:tensorflow:", b":", b"E1122 10:02:11.123456    99 chan.cc:12] "):
        complaint = complaint_after(None, head + b"Waiting for model to be ready. Ready_for_local_init_op: x", 5.0)
        assert complaint is not None
        assert complaint["text"].startswith("Waiting for model to be ready")
    complaint = complaint_after(None, STILL.strip(), 5.0)
    assert complaint is not None
    assert complaint["text"] == "CreateSession still waiting for response from worker: /job:ps/replica:0/task:1"


def test_complaints_that_differ_in_numbers_are_one() -> None:
    first = complaint_after(None, STILL.strip(), 5.0)
    later = complaint_after(first, STILL.replace(b"task:1", b"task:2").strip(), 15.0)
    assert later is not None
    assert (later["since"], later["last"], later["text"][-1]) == (5.0, 15.0, "2")
    other = complaint_after(later, b"Connection refused", 20.0)
    assert other is not None
    assert other["since"] == 20.0
    assert complaint_after(other, b"", 30.0) is other
    again = complaint_after(other, b"Connection refused", 9000.0)
    assert again is not None
    assert again["since"] == 9000.0


@cases
@given(st.binary(max_size=300), st.sampled_from(MARKS), st.binary(max_size=300))
def test_whatever_stands_around_it_the_line_has_the_mark(before: bytes, mark: bytes, after: bytes) -> None:
    line, rest = last_complaint(before + mark + after)
    assert any(one in line for one in MARKS)
    assert b"\n" not in line
    complaint = complaint_after(None, line, 1.0)
    assert complaint is not None
    assert len(complaint["text"]) <= 400
    assert (before + mark + after).endswith(rest)

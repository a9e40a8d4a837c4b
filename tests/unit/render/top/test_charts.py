"""Charts and the end of a log in `dtctl top`, where the terminal has room for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.model import TaskId
from dtctl.operations.client.streams import Feed
from dtctl.rooms.metrics.operation import Point
from dtctl.rooms.top.charts import Series, charts
from dtctl.rooms.top.model import Choice, Histories, Line
from dtctl.rooms.top.page import page, wrapped
from dtctl.rooms.top.screens import LogText
from dtctl.rooms.top.tail import SETTLED_S, Tail
from tests.unit.render.top.runs import joined, snapshot, task, training
from tests.unit.tasks import log_lines_of

LOSS = [(float(step), 5.0 / (step + 1)) for step in range(100)]
POINTS = [Point(step, 10.0 * step, 5.0 / (step + 1)) for step in range(100)]


def test_charts_stand_beside_each_other_with_their_axes() -> None:
    lines = [joined(line) for line in charts([Series("loss", LOSS, "0.04"), Series("steps/s", LOSS)], 79, 10)]
    assert len(lines) == 10
    assert lines[0].split() == ["loss", "0.04", "steps/s"], "the figures of the whole screen, or none"
    assert "└" in lines[8]
    assert lines[9].split() == ["0", "99", "0", "99"]
    assert max(map(len, lines)) <= 79
    assert charts([Series("loss", LOSS)], 79, 7) == []
    assert charts([Series("loss", LOSS[:1])], 79, 10) == []
    assert all(line.isascii() for line in map(joined, charts([Series("loss", LOSS)], 79, 10, fine=False)))


def test_a_loss_over_three_decades_is_drawn_on_a_log_scale() -> None:
    falling = [(float(step), 10.0 ** (-step / 20)) for step in range(100)]
    lines = [joined(line) for line in charts([Series("loss", falling), Series("steps/s", falling)], 79, 10)]
    assert lines[0].split() == ["loss", "log", "scale", "steps/s"], "a rate is compared with 0"
    assert "log scale" not in joined(charts([Series("loss", LOSS)], 79, 10)[0])


def test_the_figures_of_charts_are_those_of_the_first_line() -> None:
    found = snapshot(training("worker:0", 100, rate=12.5, loss="0.25"))
    top = [joined(line) for line in page(found, Histories(), POINTS, Choice(), (99, 29)).top]
    assert "loss 0.25" in top[0]
    title = next(line for line in top[1:] if line.startswith("loss"))
    assert title.split()[:2] == ["loss", "0.25"]
    assert title.split()[-2:] == ["steps/s", "12.5"]


@pytest.mark.parametrize("size", [(79, 23), (99, 29), (139, 39), (199, 49)])
def test_a_screen_of_two_tasks_uses_its_height(size: tuple[int, int]) -> None:
    found = snapshot(training("worker:0"), training("worker:1"))
    shown = page(found, Histories(), POINTS, Choice(), size)
    used = len(shown.top) + 1 + len(shown.rows) + shown.tail_rows
    assert used == size[1]
    assert 6 <= sum("│" in joined(line) for line in shown.top) <= 10
    assert shown.tail_rows >= 4


def test_many_tasks_leave_no_room_for_charts() -> None:
    found = snapshot(*(training(f"worker:{n}") for n in range(40)))
    shown = page(found, Histories(), POINTS, Choice(), (79, 23))
    assert shown.tail_rows == 0
    assert not any("│" in joined(line) for line in shown.top)


def test_a_command_is_never_broken() -> None:
    line: Line = [
        ("a long text that has to be broken somewhere", ""),
        ("   dtctl logs worker:1 --all-attempts", "cyan"),
    ]
    assert [joined(one) for one in wrapped(line, 40)][-1] == "  dtctl logs worker:1 --all-attempts"


class Scripted(Feed):
    def __init__(self, *events: object) -> None:
        self.events = list(events)
        self.closed = False

    def take(self) -> list[Any]:
        taken, self.events = self.events, []
        return taken

    def close(self, within_s: float = 1.0) -> None:
        self.closed = True


def test_the_end_of_the_chosen_log_is_shown_once_the_choice_is_settled() -> None:
    opened: list[tuple[TaskId, Scripted]] = []

    def open_log(record: Any, of: TaskId) -> Feed:
        opened.append((of, Scripted(log_lines_of(str(of), b"one\ntwo\nthree\n"), ValueError("gone"))))
        return opened[-1][1]

    tail, record, first, second = Tail(open_log), SimpleNamespace(), TaskId("worker", 0), TaskId("worker", 1)
    tail.poll(record, first, 0.0)  # type: ignore[arg-type]
    tail.poll(record, second, 0.1)  # type: ignore[arg-type]
    tail.poll(record, second, 0.2)  # type: ignore[arg-type]
    assert opened == []
    assert tail.poll(record, second, 0.1 + SETTLED_S)  # type: ignore[arg-type]
    assert [of for of, _ in opened] == [second]
    assert [joined(line) for line in tail.lines(3)] == ["worker:1  the end of its log; Enter opens it", "two", "three"]
    tail.poll(record, None, 9.0)  # type: ignore[arg-type]
    assert opened[0][1].closed
    assert tail.lines(3) == []


def test_the_start_of_tensorflow_is_left_out_of_the_end_of_a_log() -> None:
    noise = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    text = LogText()
    text.receive(log_lines_of("worker:0", noise + b"step 1\n" + noise + b"step 2\n"))
    folded, *rest = map(joined, text.lines)
    assert "--raw" in folded
    assert rest == ["step 1", "step 2"]


def test_the_table_has_processor_and_memory() -> None:
    busy = task("worker:0", cpu=1.5, memory_bytes=2_000_000_000)
    shown = page(snapshot(busy), Histories(), (), Choice(), (120, 30))
    head, row = joined(shown.heading), joined(shown.lines()[0])
    assert "CPU" in head
    assert "150%" in row
    assert "2.0 GB" in row

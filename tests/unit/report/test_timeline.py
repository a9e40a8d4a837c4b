"""From the lines of a story to attempts and their states."""

from __future__ import annotations

from dtctl.model import TaskId, TaskState
from dtctl.operations.report.gathering import by_trouble, timeline
from dtctl.render.report.timeline import described
from tests.unit.report.reports import CAUSE, happening, status, story
from tests.unit.tasks import changed, past_attempt, task_status

WORKER = TaskId("worker", 0)


def lines(now: float = 1100.0):  # type: ignore[no-untyped-def]
    return timeline(story().happenings, status().tasks.values(), now, cut=False)


def test_an_attempt_has_its_states_in_order_and_how_it_ended() -> None:
    told = lines()
    (line,) = [one for one in told.tasks if one.task == WORKER]
    assert [(one.number, one.state) for one in line.attempts] == [(1, TaskState.BACKOFF), (2, TaskState.FAILED)]
    first, second = line.attempts
    assert [(bar.state.value, bar.begin, bar.end) for bar in first.bars] == [
        ("starting", 1010.0, 1011.0), ("running", 1011.0, 1062.0), ("backoff", 1062.0, 1068.0),
    ]  # fmt: skip
    assert first.why == second.why == (CAUSE,)
    assert second.bars[-1].begin == second.bars[-1].end == 1100.0
    assert (told.begin, told.end) == (1000.0, 1100.0)
    assert described(line) == "attempt 1 ended after 52s, attempt 2 failed after 32s"


def test_what_goes_on_lasts_until_now() -> None:
    moves = [happening(1.0, "worker:0", "pending", "starting"), happening(3.0, "worker:0", "starting", "running")]
    task = task_status(str(WORKER), "c", attempt=1)
    told = timeline(moves, [task], 50.0, cut=False)
    assert told.tasks[0].attempts[0].bars[-1].end == told.end == 50.0
    assert described(told.tasks[0]) == "attempt 1 running for 49s"


def test_without_a_story_the_tasks_own_history_is_told() -> None:
    task = status().tasks[WORKER]
    told = timeline((), [task], 1200.0, cut=False)
    assert [(one.number, one.state) for one in told.tasks[0].attempts] == [(1, TaskState.FAILED), (2, TaskState.FAILED)]
    waits = task_status(str(WORKER), "c", "pending", since=5.0)
    assert timeline((), [waits], 9.0, cut=False).tasks[0].attempts == ()
    runs = changed(waits, state=TaskState.RUNNING, attempt=1, history=(past_attempt(0, 1, 2, 0, None, False),))
    assert timeline((), [runs], 9.0, cut=False).tasks[0].attempts[-1].end == 9.0


def test_among_many_tasks_those_with_trouble_come_first() -> None:
    told = lines()
    assert by_trouble(told.tasks, WORKER)[0].task == WORKER


def test_no_task_and_no_story_are_a_timeline_too() -> None:
    assert timeline((), (), 7.0, cut=True).tasks == ()

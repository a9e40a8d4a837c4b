"""The story with an attempt in one line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.reasons import because, fact
from dtctl.agent.records.whole_run import StoryLine
from dtctl.operations.events import Attempted, Folding, Happening, folded
from dtctl.render.events import story_line

EXIT = because([fact("exited", code=1), fact("cause", text="KeyError: 'x'")])


def moved(at: float, before: str, after: str, attempt: int = 1, task: str = "worker:0", **fields: Any) -> Happening:
    line = {"time": at, "kind": "task", "host": "gpu-1", "task": task, "attempt": attempt, "from": before, "to": after}
    return Happening.of(checked(StoryLine, {**line, **fields}))


def told(at: float, text: str) -> Happening:
    return Happening.of(checked(StoryLine, {"time": at, "kind": "decision", "reason": text}))


def lines(*story: Happening) -> list[str]:
    return [re.sub(r"^\S+ \S+  ", "", story_line(one)) for one in folded(story)]


def begun(at: float, attempt: int = 1, task: str = "worker:0") -> list[Happening]:
    before = "pending" if attempt == 1 else "backoff"
    return [moved(at, before, "starting", attempt, task), moved(at + 1, "starting", "running", attempt, task)]


def test_an_attempt_is_one_line_from_its_start_to_its_end() -> None:
    story = [
        *begun(10),
        moved(261, "running", "backoff", **EXIT),
        *begun(262, 2),
        moved(270, "running", "succeeded", 2),
    ]
    assert lines(*story) == [
        "worker:0 attempt 1 on gpu-1 ran 4m10s, exit code 1 (KeyError: 'x'), restarted",
        "worker:0 attempt 2 on gpu-1 ran 7s, succeeded",
    ]


def test_what_is_no_attempt_stands_where_it_stood() -> None:
    story = [*begun(10), told(12, "a decision"), moved(20, "running", "backoff", **EXIT), told(19.9, "it is restarted")]
    assert lines(*story) == [
        "a decision",
        "worker:0 attempt 1 on gpu-1 ran 9s, exit code 1 (KeyError: 'x'), to be restarted",
        "it is restarted",
    ]


def test_a_cause_that_is_told_late_stands_before_its_effects() -> None:
    story = [*begun(10), told(12, "before"), told(25, "the gang is restarted"), moved(20, "running", "backoff", **EXIT)]
    assert lines(*story) == [
        "before",
        "worker:0 attempt 1 on gpu-1 ran 9s, exit code 1 (KeyError: 'x'), to be restarted",
        "the gang is restarted",
    ]


def test_an_attempt_that_runs_stands_where_it_began() -> None:
    assert lines(*begun(10), told(12, "a decision"), moved(13, "pending", "starting", 1, "worker:1")) == [
        "worker:0 attempt 1 on gpu-1 runs",
        "a decision",
        "worker:1 attempt 1 on gpu-1 starts",
    ]


@pytest.mark.parametrize(
    ("after", "why", "words"),
    [
        ("failed", EXIT, "ran 9s, exit code 1 (KeyError: 'x'), failed"),
        ("stopped", because([fact("stopped_by", by="me@desk")]), "ran 9s, stopped by me@desk"),
        ("stopped", because([fact("run_succeeded")]), "ran 9s, stopped: the run has succeeded"),
        ("stopped", because([]), "ran 9s, stopped"),
        ("pending", because([fact("restarted_with", task="ps:0"), fact("killed", signal=9)]),
         "ran 9s, restarted with ps:0 (killed by SIGKILL)"),
        ("pending", because([fact("restart")]), "ran 9s, restarted"),
        ("succeeded", because([fact("exited", code=0)]), "ran 9s, succeeded"),
    ],
)  # fmt: skip
def test_each_end_has_its_words(after: str, why: Any, words: str) -> None:
    assert lines(*begun(10), moved(20, "running", after, **why)) == [f"worker:0 attempt 1 on gpu-1 {words}"]


def test_one_that_stalled_ran_until_it_was_ended() -> None:
    stalled = because([fact("stalled", seconds=300.0)])
    story = [*begun(10), moved(311, "running", "stalled", **stalled), moved(312, "stalled", "backoff", **stalled)]
    assert lines(*story) == [
        "worker:0 attempt 1 on gpu-1 ran 5m1s, stalled: no sign of progress for 5 min, to be restarted"
    ]


def test_one_that_never_ran_says_so() -> None:
    why = because([fact("cannot_run", what="python", text="No such file or directory")])
    assert lines(moved(10, "pending", "starting"), moved(11, "starting", "failed", **why)) == [
        "worker:0 attempt 1 on gpu-1 did not run, cannot run python: No such file or directory, failed"
    ]


def test_an_attempt_whose_end_and_the_next_one_were_seen_at_once_has_ended() -> None:
    again = moved(20, "running", "starting", 2, **because([fact("restart")]))
    assert lines(*begun(10), again, moved(21, "starting", "running", 2), *begun(15, task="worker:1")) == [
        "worker:1 attempt 1 on gpu-1 runs",
        "worker:0 attempt 1 on gpu-1 ran 9s, restarted",
        "worker:0 attempt 2 on gpu-1 runs",
    ]


def test_the_end_of_a_wait_is_no_attempt_and_is_told_as_it_is() -> None:
    story = [*begun(10), moved(20, "running", "backoff", **EXIT), moved(25, "backoff", "failed", **EXIT)]
    assert lines(*story)[1:] == ["worker:0 on gpu-1 backoff -> failed: exit code 1 (KeyError: 'x')"]
    assert lines(moved(10, "pending", "stopped")) == ["worker:0 on gpu-1 pending -> stopped"]


def test_that_a_task_was_asked_to_end_is_told_with_its_end_and_damage_by_itself() -> None:
    ending, damage = because([fact("ending")]), because([fact("said", text="state.json was damaged")])
    story = [*begun(10), moved(19, "running", "running", **ending), moved(19, "running", "running", **damage)]
    assert lines(*story, moved(20, "running", "stopped")) == [
        "worker:0 on gpu-1 running: state.json was damaged",
        "worker:0 attempt 1 on gpu-1 ran 9s, stopped",
    ]


def test_who_follows_sees_an_attempt_when_it_ends() -> None:
    folding = Folding()
    seen = [list(folding.take(one)) for one in [*begun(10), moved(20, "running", "backoff", **EXIT)]]
    assert seen[:2] == [[], []]
    (entry,) = seen[2]
    assert isinstance(entry, Attempted)
    assert story_line(entry).endswith(", to be restarted")
    assert folding.rest() == []

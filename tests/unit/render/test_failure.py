"""A failure is told once in full: the sentence, its circumstances, the excerpt; elsewhere in a few words."""

from __future__ import annotations

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.model import TaskState
from dtctl.operations.failures import failure_of
from dtctl.operations.snapshot import Outcome, RunStatus, TaskStatus, Verdict
from dtctl.render.failure import brief, brief_cause, circumstances, excerpt, failure_sentence, in_a_cell
from dtctl.render.findings import failure_lines, problem_lines
from dtctl.render.result import show_ended
from dtctl.render.status import headline
from tests.unit.agent.test_traceback import LOG
from tests.unit.diagnosing import ended, facts, running
from tests.unit.ended_logs import LOGS
from tests.unit.tasks import changed, past_attempt

CAUSE = "ValueError: bad shape"
WHY = [fact("exited", code=1), fact("cause", text=CAUSE), fact("same_way", count=3)]
PAST = tuple(past_attempt(n, 900.0 + n, 901.0 + n, 1, None, asked=False, cause=CAUSE) for n in (1, 2, 3))


def failed(task: TaskStatus, *others: TaskStatus) -> RunStatus:
    verdict = Verdict(Outcome.FAILED, (fact("task_failed", task=str(task.id)), *task.why), task.id)
    return facts(task, *others, verdict=verdict).status


def of_python() -> RunStatus:
    task = changed(ended("worker:0", LOG), why=WHY, history=PAST)
    peer = changed(running("worker:1", "gpu-b"), state=TaskState.STOPPED, history=PAST[:1])
    return failed(task, peer)


def test_an_exception_is_told_with_its_place_and_how_often_it_came() -> None:
    failure = failure_of(of_python())
    assert failure is not None
    assert failure_sentence(failure) == "your program raised ValueError: bad shape, src/model.py:7"
    assert circumstances(failure).startswith("3 times, worker:[0-1] on gpu-a,gpu-b, the last at ")


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (
            ended("worker:0", LOGS["argparse"], code=2),
            "your program ended with exit code 2: unrecognized arguments: --step_s=0.2",
        ),
        (ended("worker:0", "step 3\n", code=3), "your program ended with exit code 3"),
        (changed(ended("worker:0", "step 3\n"), code=None, signal=9), "your program was killed by SIGKILL"),
    ],
)
def test_another_end_is_told_by_its_exit(task: TaskStatus, sentence: str) -> None:
    failure = failure_of(failed(task))
    assert failure is not None
    assert failure_sentence(failure) == sentence


def test_the_message_of_an_exception_stands_once_on_each_screen(capsys: pytest.CaptureFixture[str]) -> None:
    status = of_python()
    show_ended(status)
    text = capsys.readouterr().err
    assert text.count("bad shape") == 2, "the sentence, and the last line of the traceback"
    assert "keras/src" not in text
    assert "  [... 3 frames of keras, tensorflow, Python]" in text
    assert "dtctl logs worker:0 -n all    shows the whole log" in text
    shown = "\n".join(["".join(words for words, _ in headline(status)), *problem_lines(status)])
    assert shown.count("bad shape") == 1
    assert shown.count("ValueError") == 2


def test_what_is_known_of_an_error_is_told_below_it() -> None:
    status = failed(ended("worker:0", LOGS["argparse"], code=2))
    failure = failure_of(status)
    assert failure is not None
    lines = failure_lines(failure, status)
    assert lines[0] == "your program ended with exit code 2: unrecognized arguments: --step_s=0.2"
    assert "unrecognised" not in "\n".join(lines)


def test_the_excerpt_begins_at_the_traceback() -> None:
    lines = excerpt(LOG)
    assert lines[:3] == [
        "[... 2 earlier lines]",
        "Traceback (most recent call last):",
        '  File "train.py", line 16, in <module>',
    ]
    assert lines[-1] == CAUSE
    assert excerpt("a\nb\n\n") == ["a", "b"]
    assert excerpt("".join(f"step {n}\n" for n in range(30)))[:2] == ["[... 20 earlier lines]", "step 20"]
    frames = "".join(f'  File "train.py", line {n}, in f{n}\n    f{n}()\n' for n in range(50))
    long = excerpt(f"Traceback (most recent call last):\n{frames}{CAUSE}\n")
    assert len(long) == 20
    assert "lines]" in long[10]
    assert long[-1] == CAUSE


def test_a_cell_has_few_words() -> None:
    assert in_a_cell(WHY) == "exit code 1 (ValueError)"
    assert brief(WHY) == "exit code 1 (ValueError); gave up after 3 identical failures"
    assert brief(WHY, {CAUSE}) == "exit code 1 (the same ValueError); gave up after 3 identical failures"
    assert brief_cause("unrecognized arguments: --step_s=0.2") == "unrecognized arguments: --step_s=0.2"
    assert brief_cause("word " * 30) == f"{'word ' * 12}..."

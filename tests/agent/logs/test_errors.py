"""Of a log only what tells of errors: tracebacks as a whole, and last words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtctl.agent.host.secrets import Masks
from dtctl.agent.logs.finding import ErrorFinder, lines_of
from tests.agent.logs.run import Run, text
from tests.waiting import eventually

STEPS = "".join(f"INFO:tensorflow:global_step {step}, loss = 0.5\n" for step in range(1000, 1030))

PLAIN = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import sklearn
ModuleNotFoundError: No module named 'sklearn'
"""
CHAINED = """\
Traceback (most recent call last):
  File "session.py", line 1377, in _do_call
    return fn(*args)
tensorflow.python.framework.errors_impl.NotFoundError: Key beta1_power not found in checkpoint
\t [[{{node save/RestoreV2}}]]

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
tensorflow.python.framework.errors_impl.NotFoundError: Restoring from checkpoint failed. This is most likely due to \
a Variable name or other graph key that is missing from the checkpoint. Original error:

Key beta1_power not found in checkpoint
\t [[node save/RestoreV2 (defined at train.py:4) ]]
"""
GRAPH = """\
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    model.fit(data)
tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node 'dense/MatMul' defined at (most recent call last):
    File "train.py", line 9, in <module>
Node: 'dense/MatMul'
Matrix size-incompatible: In[0]: [32,784], In[1]: [100,10]
\t [[{{node dense/MatMul}}]] [Op:__inference_train_function_529]
"""
RANKED = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 3, in <module>
[rank0]:     loss.backward()
[rank0]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
"""
FATAL = """\
Fatal Python error: Segmentation fault

Thread 0x00007f21 (most recent call first):
  File "train.py", line 7 in <module>
"""
ARGPARSE = "train.py: error: unrecognized arguments: --step_s=0.2\n"
CHECK = (
    "2026-11-22 10:00:00.1: F tensorflow/core/framework/tensor.cc:714] Check failed: dtype() == expected (1 vs. 3)\n"
)
GLOG = "F0000 00:00:1700000000.123456 12345 rpc.cc:51] Check failed: status.ok()\n"
THROWN = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
FLAGS = "FATAL Flags parsing error:\n  Unknown command line flag 'step_s'. Did you mean: steps ?\n"
LOGGED = "ERROR:tensorflow:the input pipeline is empty\n"

ERRORS = {
    "a traceback": PLAIN,
    "chained tracebacks": CHAINED,
    "TensorFlow's graph errors": GRAPH,
    "a traceback with a prefix": RANKED,
    "a fatal error of Python": FATAL,
    "argparse": ARGPARSE,
    "a check": CHECK,
    "glog": GLOG,
    "a C++ exception": THROWN,
    "absl": FLAGS,
    "logging": LOGGED,
}

IGNORED = """\
Exception ignored in: <function Session.__del__ at 0x7f>
Traceback (most recent call last):
  File "session.py", line 3, in __del__
    self.close()
TypeError: 'NoneType' object is not callable
"""
HARMLESS = {
    "steps": STEPS,
    "what ends nothing": IGNORED,
    "no GPU": "2026-11-22 10:00:00.1: E external/local_xla/cuda_driver.cc:152] failed call to cuInit: UNKNOWN ERROR\n",
    "words": "error rate 0.02\nnot found yet\nepoch 3: no errors\n",
}


def excerpt(log: str, size: int = 1 << 20) -> str:
    """By marks of pieces of about so many bytes."""
    finder = ErrorFinder(Masks([]))
    lines, found = log.encode().splitlines(keepends=True), []
    while lines:
        piece = [lines.pop(0)]
        while lines and len(b"".join(piece)) < size:
            piece.append(lines.pop(0))
        data = b"".join(piece)
        marks = finder.marks(data)
        assert marks is None or len(marks) == len(lines_of(data))
        found += [line for line, mark in zip(piece, marks or [], strict=False) if mark]
    return b"".join(found).decode()


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_reported_as_a_whole_and_nothing_else(name: str) -> None:
    assert excerpt(STEPS + ERRORS[name] + STEPS) == ERRORS[name]
    assert excerpt(ERRORS[name]) == ERRORS[name]
    assert excerpt(STEPS + ERRORS[name] + STEPS + ERRORS[name]) == ERRORS[name] * 2


@pytest.mark.parametrize("name", ERRORS)
def test_pieces_of_one_line_lose_only_empty_lines(name: str) -> None:
    def full(log: str) -> list[str]:
        return [line for line in log.splitlines() if line]

    assert full(excerpt(STEPS + ERRORS[name] + STEPS, size=1)) == full(ERRORS[name])


@pytest.mark.parametrize("name", HARMLESS)
def test_lines_without_errors_are_not_reported(name: str) -> None:
    assert excerpt(HARMLESS[name]) == ""
    assert excerpt(HARMLESS[name] + PLAIN + HARMLESS[name]) == PLAIN


def test_a_bar_after_an_error_is_no_part_of_it() -> None:
    assert excerpt(LOGGED + "  1/100 [....] - loss: 2.3\n" * 3) == LOGGED


def test_an_error_has_an_end() -> None:
    assert len(excerpt(PLAIN + "  indented\n" * 2000).splitlines()) < 500


def died(run: Run, number: int, **ending: Any) -> None:
    (run.attempt(number) / "exit.json").write_text(json.dumps({"ended": 1.0, **ending}))


def test_errors_of_all_attempts(run: Run) -> None:
    for number in (1, 2):
        run.log((STEPS + PLAIN.replace("sklearn", f"m{number}")).encode(), number)
        died(run, number, code=1)
    run.log(STEPS.encode(), 3)
    found = text(run.serve(errors=True, all_attempts=True, lines=100)).decode()
    assert found == PLAIN.replace("sklearn", "m1") + PLAIN.replace("sklearn", "m2")
    assert text(run.serve(errors=True, all_attempts=True, lines=1)).decode() == PLAIN.replace("sklearn", "m2")
    assert text(run.serve(errors=True)) == b""


def test_an_attempt_without_an_error_shows_its_last_lines(run: Run) -> None:
    run.log(STEPS.encode())
    last = "".join(STEPS.splitlines(keepends=True)[-10:]).encode()
    assert text(run.serve(errors=True, lines=100)) == b""
    died(run, 1, signal=9)
    assert text(run.serve(errors=True, lines=100)) == last
    assert text(run.serve(errors=True)) == last
    died(run, 1, code=0)
    assert text(run.serve(errors=True, lines=100)) == b""


def test_a_stopped_attempt_shows_no_last_lines(run: Run) -> None:
    run.log(STEPS.encode())
    died(run, 1, signal=15)
    state = run.state()
    state["tasks"]["worker:0"]["history"] = [
        {
            "attempt": 1,
            "started": 1.0,
            "ended": 2.0,
            "asked": True,
            "code": None,
            "signal": 15,
            "cause": "",
            "step": 1,
            "step_time": None,
            "first_step": None,
            "first_step_time": None,
            "shortage": False,
            "short_of_memory": False,
            "hung": False,
            "why": [],
            "early": False,
        }
    ]
    run.state = lambda: state  # type: ignore[method-assign]
    assert text(run.serve(errors=True, lines=100)) == b""


def test_errors_come_while_they_are_written(run: Run) -> None:
    run.log(STEPS.encode())
    with run.follow(errors=True, lines=10) as following:
        for line in PLAIN.splitlines(keepends=True):
            run.log(line.encode())
        eventually(lambda: following.text() == PLAIN.encode())
        run.log(STEPS.encode())
        died(run, 1, signal=9)
        run.end()
        eventually(following.ended)
    assert following.text() == (PLAIN + "".join(STEPS.splitlines(keepends=True)[-10:])).encode()


def test_errors_have_lines_around_them(run: Run) -> None:
    run.log(b"before 2\nbefore 1\n" + ARGPARSE.encode() + b"after 1\nafter 2\n")
    assert text(run.serve(errors=True, context=1)) == b"before 1\n" + ARGPARSE.encode() + b"after 1\n"

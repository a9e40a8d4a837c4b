"""What a program died of, by the end of its log."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.run.cause import (
    MOST,
    cause,
    cause_of_end,
    complains,
    ends_in_exception,
    is_location,
    is_substance,
    is_vague,
    kind_of_error,
    loses_status,
    names_taken_port,
    script_of,
    taken_port,
)
from dtctl.rooms.diagnose.signatures import IN_LOGS
from tests.fuzz import cases
from tests.unit.ended_logs import ENDED_LOGS, FRAMES

CUDA_NOISE = (
    "2026-11-22 10:02:11.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:485] Unable to register "
    "cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered\n"
    "2026-11-22 10:02:12.654321: E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] failed call to "
    "cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)\n"
)
VAGUE = "tensorflow.python.framework.errors_impl.InternalError: Graph execution error:\n"
NODE = "\t [[{{node a}}]]\n"
DIED = [
    *((one.log, one.expected["cause"]) for one in ENDED_LOGS if "cause" in one.expected),
    ("step 1\rstep 2\rstep 3\n" + FRAMES + "OSError: [Errno 5] I/O error\n", "OSError: [Errno 5] I/O error"),
    (FRAMES + VAGUE + NODE * 59 + "OOM when allocating 1 GB\n", "InternalError: OOM when allocating 1 GB"),
    (FRAMES + VAGUE + NODE * 60 + "OOM when allocating 1 GB\n", "InternalError: Graph execution error:"),
    (FRAMES + "ValueError: bad\n" + "step\n" * 12, "ValueError: bad"),
]
LIVED = [
    "",
    "step 1 loss 2.0\nstep 2 loss 1.5\n",
    CUDA_NOISE,
    FRAMES + "ValueError: caught\n" + "".join(f"step {step}\n" for step in range(30)),
    FRAMES + "ValueError: caught\n" + "step\n" * 13,
    FRAMES + "KeyboardInterrupt\nTraceback (most recent call last):",  # the rest was not written
    FRAMES + "it is not known of what\n",
    "loading\nready: yes\ndone\n",
]


@pytest.mark.parametrize(("log", "text"), DIED)
def test_the_cause_is_read_from_the_last_lines(log: str, text: str) -> None:
    assert cause(log) == text
    assert cause(CUDA_NOISE + "step 7\n" * 100 + log) == text


@pytest.mark.parametrize("log", LIVED)
def test_a_log_without_an_error_has_no_cause(log: str) -> None:
    assert cause(log) == ""


@pytest.mark.parametrize(
    "message",
    [
        "TensorFlow finds 0 GPUs here, not 2",
        "/data/mnist: there is nothing to train on",
        "--batch_size=100 cannot be dealt out evenly to 3 devices",
        "'lr' is not a key of config.json",
    ],
)
def test_a_message_at_exit_is_the_cause(message: str) -> None:
    log = f"loading\nstep 1 loss 2.0\n{message}\n\n"
    assert cause_of_end(log, 1) == message
    assert cause_of_end(log, 3) == ""
    assert cause(log) == ""
    assert cause_of_end(FRAMES + "ValueError: bad\n" + log, 1) == "ValueError: bad"


@pytest.mark.parametrize("log", [*LIVED[:3], LIVED[-1], "a.py:3: UserWarning: old\n", "[1,0] it is\n", "ended\n"])
def test_an_ordinary_last_line_is_no_cause(log: str) -> None:
    assert cause_of_end(log, 1) == ""


def test_a_long_message_is_cut() -> None:
    found = cause(FRAMES + "ValueError: " + "x" * 1000 + "\n")
    assert len(found) == MOST
    assert found.endswith("...")
    fits = "ValueError: " + "x" * (MOST - 12)
    assert cause(FRAMES + fits) == fits
    assert cause(FRAMES + fits + "x") == fits[:-3] + "..."


@cases
@given(st.text(alphabet=st.sampled_from("abE :\n\t./'()[]0123TracebkErofil"), max_size=400))
def test_any_log_has_a_cause_or_none(log: str) -> None:
    found = cause(FRAMES + log)
    assert "\n" not in found
    assert len(found) <= MOST


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        ("train.py: error: unrecognized arguments: --x", True),
        ("bash: ./run.sh: Permission denied", True),
        ("ValueError: bad", True),
        ("keras.errors.OopsException", True),
        ("step 10 loss 0.1", False),
        ("ValueError was not raised", False),
        ("2024-01-01 10:00:00.1: E tensorflow/x.cc:1] failed call to cuInit: UNKNOWN ERROR (303)", False),
    ],
)
def test_error_line_without_context_is_recognised(line: str, tells: bool) -> None:
    assert complains(line) is tells


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Detected at node 'save' defined at", (True, False, False)),
        ("    return fn(*args)", (True, False, False)),
        ("Key beta1_power not found in checkpoint", (False, True, False)),
        ("OOM when allocating tensor with shape[9]", (False, True, False)),
        ("tensorflow.errors.InternalError: Graph execution error:", (False, False, True)),
        ("RuntimeError", (False, False, True)),
        ("ValueError: bad", (False, False, False)),
        ("it was: late", (False, False, False)),
    ],
)
def test_what_a_line_of_a_long_message_is_for_is_known(line: str, says: tuple[bool, bool, bool]) -> None:
    assert (is_location(line), is_substance(line), is_vague(line)) == says


LINES = [
    tuple(line.split("\t", 1))
    for line in (Path(__file__).parent / "data" / "last_lines.txt").read_text().splitlines()
    if not line.startswith("#")
]
EXCEPTION = re.compile(r"[\w.]+(?:: .*|)\Z")


def test_at_least_two_hundred_real_errors_are_tried() -> None:
    assert len(LINES) >= 200


@pytest.mark.parametrize(("kind", "line"), LINES)
def test_an_error_is_classified(kind: str, line: str) -> None:
    has_traceback = EXCEPTION.match(line) and not line.startswith(("error:", "ERROR:", "FATAL:"))
    found = cause_of_end((FRAMES if has_traceback else "step 1\n") + line + "\n", 1)
    assert (kind_of_error(found), bool(found)) == (kind, True), found


@pytest.mark.parametrize(
    ("log", "port"),
    [
        ("OSError: [Errno 98] Address already in use (while attempting to bind on address ('127.0.0.1', 8899))", 8899),
        (
            "OSError: [Errno 98] error while attempting to bind on address ('::', 8000, 0, 0): address already in use",
            8000,
        ),
        (
            "E add_port.cc:83] Failed to add port to server: No address added out of total 1 resolved for '[::]:2223'",
            2223,
        ),
        (
            "E add_port.cc:83] No address added out of total 1 resolved for '0.0.0.0:2223'\nUnknownError: Could not",
            2223,
        ),
        ("The server socket has failed to listen on any local network address. port: 29500, name: EADDRINUSE", 29500),
        ("The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", 29500),
        ("Error: listen EADDRINUSE: address already in use :::3000", 3000),
        ("ERROR: TensorBoard could not bind to port 6006, it was already in use", 6006),
        ("Address already in use\nPort 5000 is in use by another program.", None),
        ("OSError: [Errno 98] Address already in use", None),
        ("2026-11-22 10:02:11.1: I server listens on 10.0.0.1:2222\nOSError: [Errno 98] Address already in use", None),
    ],
)
def test_the_port_that_is_taken_is_the_one_that_the_log_names(log: str, port: int | None) -> None:
    assert taken_port(f"step 1\n{log}\n") == port


@pytest.mark.parametrize(("text", "kind"), [("", "own"), ("MyTypeError: connection", "own"), ("Timeouts", "own")])
def test_unrecognised_errors_are_the_programs(text: str, kind: str) -> None:
    assert kind_of_error(text) == kind


@pytest.mark.parametrize(
    ("log", "ends"),
    [
        (FRAMES + "ValueError: bad\n", True),
        (FRAMES + "ValueError: bad\n2026-11-29 12:00:00.1: W tensorflow/core: closing\n", True),
        (FRAMES + "x.InvalidArgumentError: Graph execution error:\n\nDetected at node 'x'\nwords of its own\n", True),
        (FRAMES + "ValueError: bad\ntrained\n", False),
        (FRAMES + "ValueError: bad\nstep 7 loss 0.1\n", False),
        ("ValueError: bad\n", False),
        ("trained\n", False),
        ("", False),
    ],
)
def test_an_exception_that_was_caught_is_followed_by_other_output(log: str, ends: bool) -> None:
    assert ends_in_exception(log) is ends


@pytest.mark.parametrize(
    ("command", "loses"),
    [
        (["bash", "-c", "python train.py | tee log"], True),
        (["/bin/sh", "-ec", "python train.py 2>&1 |tee log", "--job_name=ps"], True),
        (["bash", "-o", "pipefail", "-c", "python train.py | tee log"], False),
        (["bash", "-c", "set -o pipefail; python train.py | tee log"], False),
        (["bash", "-c", "python train.py | tee log; exit ${PIPESTATUS[0]}"], False),
        (["bash", "-c", "python train.py || exit 3"], False),
        (["bash", "-c", "python train.py --note 'a | b' # | c"], False),
        (["bash", "train.sh", "a|b"], False),
        (["python", "-c", "a | b"], False),
        (["bash", "-c"], False),
        ([], False),
    ],
)
def test_a_shell_reports_the_status_of_the_last_program_of_a_pipe(command: list[str], loses: bool) -> None:
    assert loses_status(command) is loses


PIPED = "#!/bin/bash\ncd code\n"


@pytest.mark.parametrize(
    ("script", "loses"),
    [
        (f"{PIPED}python train.py 2>&1 | tee log\n", True),
        (f"{PIPED}python train.py \\\n  --rate 1 \\\n  | tee log\n\n# the end\n", True),
        (f"{PIPED}set -o pipefail\npython train.py | tee log\n", False),
        (f"{PIPED}ls | wc -l\npython train.py\n", False),
        (f"{PIPED}exec python train.py --note 'a | b'\n", False),
        ("#!/usr/bin/env python3\na = 1 | 2\n", False),
        ("", False),
    ],
)
def test_a_script_that_ends_in_a_pipe_reports_the_status_of_its_last_program(script: str, loses: bool) -> None:
    assert loses_status(["./run.sh", "--job_name=ps"], script) is loses


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["bash", "run.sh", "--job_name=ps"], "run.sh"),
        (["/bin/bash", "-eu", "-o", "pipefail", "bin/run.sh"], "bin/run.sh"),
        (["./run.sh"], "./run.sh"),
        (["bash", "-c", "python train.py"], ""),
        (["bash"], ""),
        (["python", "train.py"], ""),
        ([], ""),
    ],
)
def test_the_script_of_a_command_is_known(command: list[str], script: str) -> None:
    assert script_of(command) == script


WORKER = "Traceback (most recent call last):\nValueError: no data\n"
LAUNCHER = (
    "Traceback (most recent call last):\n"
    + "  frame\n" * 100_000
    + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
)


@pytest.mark.parametrize(("above", "found"), [("", "ChildFailedError"), (WORKER, "ValueError: no data")])
def test_the_exception_above_a_long_traceback_is_found_at_little_cost(above: str, found: str) -> None:
    began = time.process_time()
    assert cause(above + LAUNCHER) == found
    assert time.process_time() - began < 3.0, "it would take 20 s to copy the lines above for each line"


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("OSError: [Errno 98] Address already in use", True),
        ("UnknownError: Could not start gRPC server", True),
        ("Error: listen EADDRINUSE: address already in use :::2222", True),
        ("RuntimeError: CUDA error: all CUDA-capable devices are in use", False),
        ("OSError: [Errno 28] No space left on device", False),
    ],
)
def test_a_taken_port_is_known_by_the_cause(text: str, taken: bool) -> None:
    assert names_taken_port(text) is taken
    row = next(row for row in IN_LOGS if row.name == "port_taken")
    assert (re.search(row.pattern, text) is not None) is taken, "`diagnose` says the same"

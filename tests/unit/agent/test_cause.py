"""What a program died of, by the end of its log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.run.cause import (
    MOST,
    cause,
    cause_of_end,
    complains,
    is_location,
    is_substance,
    is_vague,
    kind_of_error,
)
from tests.fuzz import cases

FRAMES = """\
Traceback (most recent call last):
  File "/home/train/x/train.py", line 12, in <module>
    main()
    ^^^^^^
"""
CUDA_NOISE = (
    "2026-11-22 10:02:11.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:485] Unable to register "
    "cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered\n"
    "2026-11-22 10:02:12.654321: E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] failed call to "
    "cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)\n"
)
RESTORE = (
    FRAMES
    + """\
tensorflow.python.framework.errors_impl.NotFoundError: Graph execution error:

Detected at node 'save/RestoreV2' defined at (most recent call last):
    File "/home/train/x/train.py", line 80, in main
Node: 'save/RestoreV2'
Key beta1_power not found in checkpoint
\t [[{{node save/RestoreV2}}]]

Original stack trace for 'save/RestoreV2':

During handling of the above exception, another exception occurred:

"""
    + FRAMES
    + """\
tensorflow.python.framework.errors_impl.NotFoundError: Restoring from checkpoint failed. This is most likely due to \
a Variable name or other graph key that is missing from the checkpoint.

Graph execution error:

Detected at node 'save/RestoreV2' defined at (most recent call last):
Key beta1_power not found in checkpoint
\t [[{{node save/RestoreV2}}]]
"""
)
SAVE = (
    FRAMES
    + """\
tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:

Detected at node 'save/SaveV2' defined at (most recent call last):
    File "/home/train/x/train.py", line 80, in main
Node: 'save/SaveV2'
From /job:worker/replica:0/task:0:
/out/m.ckpt.data-00000-of-00001.tempstate1327469738; No space left on device
\t [[{{node save/SaveV2}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom to \
RunOptions for current allocation info.

Original stack trace for 'save/SaveV2':
  File "/home/train/x/train.py", line 80, in main
"""
)
SERVER = (
    "2026-11-22 10:02:11.1: E external/com_github_grpc_grpc/src/core/lib/surface/add_port.cc:83] Failed to add port to "
    "server: No address added out of total 1 resolved for '0.0.0.0:21392'\n"
    "E0000 00:00:1700000000.000001    1234 grpc_server_lib.cc:618] UNKNOWN: Could not start gRPC server\n"
    + FRAMES
    + "tensorflow.python.framework.errors_impl.UnknownError: Could not start gRPC server\n"
)
ARGPARSE = (
    "usage: train.py [-h] [--ps_hosts PS_HOSTS]\n                [--steps STEPS]\n"
    "train.py: error: unrecognized arguments: --step_s=0.2\n"
)
ABSL = (
    "FATAL Flags parsing error:\n  Unknown command line flag 'ps_host'. Did you mean: ps_hosts ?\nPass --helpshort.\n"
)
CHAINED = (
    FRAMES
    + "KeyError: 'lr'\n\nThe above exception was the direct cause of the following exception:\n\n"
    + FRAMES
    + "ValueError: the configuration has no learning rate\n"
)
SHUTDOWN = (
    FRAMES
    + "ValueError: bad\nException ignored in: <function Context.__del__ at 0x7f>\n"
    + FRAMES
    + "TypeError: 'NoneType' object is not callable\n"
)

VAGUE = "tensorflow.python.framework.errors_impl.InternalError: Graph execution error:\n"
NODE = "\t [[{{node a}}]]\n"
THROWN = "terminate called after throwing an instance of 'int'\n"

DIED = [
    (FRAMES + "ValueError: bad value\n", "ValueError: bad value"),
    (FRAMES + "AssertionError\n", "AssertionError"),
    (FRAMES + "my.package.Broken: no more data\n", "Broken: no more data"),
    (FRAMES + "ModuleNotFoundError: No module named 'sklearn'\n", "ModuleNotFoundError: No module named 'sklearn'"),
    (CHAINED, "ValueError: the configuration has no learning rate"),
    (SHUTDOWN, "ValueError: bad"),
    (
        "step 1\rstep 2\rstep 3\n" + FRAMES + "OSError: [Errno 28] No space left on device\n",
        "OSError: [Errno 28] No space left on device",
    ),
    (
        "".join(f"[rank1]: {line}\n" for line in (FRAMES + "RuntimeError: bad\n").splitlines()) + "[rank1]:\n",
        "RuntimeError: bad",
    ),
    (RESTORE, "NotFoundError: Key beta1_power not found in checkpoint"),
    (SERVER, "UnknownError: Could not start gRPC server"),
    (
        FRAMES
        + "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n\nDetected at node\n"
        "OOM when allocating tensor with shape[8192,8192] and type float on /job:worker/task:1\n\t [[node a]]\n",
        "ResourceExhaustedError: OOM when allocating tensor with shape[8192,8192] and type float on /job:worker/task:1",
    ),
    (
        FRAMES
        + "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: copying a param\n",
        "RuntimeError: size mismatch for fc.weight: copying a param",
    ),
    (ARGPARSE, "unrecognized arguments: --step_s=0.2"),
    (ABSL, "Unknown command line flag 'ps_host'. Did you mean: ps_hosts ?"),
    ("  File \"train.py\", line 3\n    if x\n        ^\nSyntaxError: expected ':'\n", "SyntaxError: expected ':'"),
    (
        "F0000 00:00:17.1  99 tensor.cc:852] Check failed: dtype() == expected_dtype (1 vs. 2)\n",
        "Check failed: dtype() == expected_dtype (1 vs. 2) (tensor.cc:852)",
    ),
    (
        "2026-11-22 10:02:11.1: F tensorflow/core/framework/tensor.cc:852] Check failed: a\n*** SIGABRT\n",
        "Check failed: a (tensor.cc:852)",
    ),
    (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
        "std::bad_alloc: std::bad_alloc",
    ),
    ("Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n", "Segmentation fault"),
    ("train.sh: line 3: pyhton: command not found\n", "train.sh: line 3: pyhton: command not found"),
    (
        "./train: error while loading shared libraries: libcudart.so.12: cannot open\n",
        "./train: error while loading shared libraries: libcudart.so.12: cannot open",
    ),
    ("Error: no GPU\n", "Error: no GPU"),
    ("error: no GPU\n", "no GPU"),
    ("ERROR:root:the data are gone\n", "the data are gone"),
    ("error: no GPU\nbye\n", "no GPU"),
    ("Traceback (most recent call last):\nStopIteration\n", "StopIteration"),
    ("Traceback (most recent call last):\n\tin C\nStopIteration\n", "StopIteration"),
    (FRAMES + VAGUE + "\n" + NODE + "the GPU is gone\n" + NODE, "InternalError: the GPU is gone"),
    (FRAMES + "InternalError: From /job:worker/task:0:\nit is gone\nfor good\n", "InternalError: it is gone"),
    (FRAMES + VAGUE + NODE * 59 + "OOM when allocating 1 GB\n", "InternalError: OOM when allocating 1 GB"),
    (
        SAVE,
        "ResourceExhaustedError: /out/m.ckpt.data-00000-of-00001.tempstate1327469738; No space left on device",
    ),
    (FRAMES + VAGUE + NODE * 60 + "OOM when allocating 1 GB\n", "InternalError: Graph execution error:"),
    ("step 3\nFATAL Flags parsing error:\n", "FATAL Flags parsing error:"),
    (THROWN, "int"),
    (THROWN + "  what():  it said what(): no\n", "int: it said what(): no"),
    (THROWN + "a\n  what():  no\n", "int: no"),
    (THROWN + "a\nb\n  what():  of another\n", "int"),
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
def test_the_last_words_say_what_a_program_died_of(log: str, text: str) -> None:
    assert cause(log) == text
    assert cause(CUDA_NOISE + "step 7\n" * 100 + log) == text


@pytest.mark.parametrize("log", LIVED)
def test_a_log_without_last_words_says_nothing(log: str) -> None:
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
def test_who_exits_with_a_message_died_of_what_it_says(message: str) -> None:
    log = f"loading\nstep 1 loss 2.0\n{message}\n\n"
    assert cause_of_end(log, 1) == message
    assert cause_of_end(log, 3) == ""
    assert cause(log) == ""
    assert cause_of_end(FRAMES + "ValueError: bad\n" + log, 1) == "ValueError: bad"


@pytest.mark.parametrize("log", [*LIVED[:3], LIVED[-1], "a.py:3: UserWarning: old\n", "[1,0] it is\n", "ended\n"])
def test_who_exits_after_a_usual_line_has_given_no_reason(log: str) -> None:
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
def test_no_log_is_too_odd(log: str) -> None:
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
def test_a_line_that_tells_of_an_error_by_itself_is_known(line: str, tells: bool) -> None:
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


def test_there_are_two_hundred_of_them() -> None:
    assert len(LINES) >= 200


@pytest.mark.parametrize(("kind", "line"), LINES)
def test_an_error_is_classified(kind: str, line: str) -> None:
    has_traceback = EXCEPTION.match(line) and not line.startswith(("error:", "ERROR:", "FATAL:"))
    found = cause_of_end((FRAMES if has_traceback else "step 1\n") + line + "\n", 1)
    assert (kind_of_error(found), bool(found)) == (kind, True), found


@pytest.mark.parametrize(("text", "kind"), [("", "own"), ("MyTypeError: connection", "own"), ("Timeouts", "own")])
def test_what_no_signature_knows_is_the_programs_own(text: str, kind: str) -> None:
    assert kind_of_error(text) == kind

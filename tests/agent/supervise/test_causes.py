"""What programs really write when they die, and what is told of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.agent.host import AgentHost, Fields, python_task, shell

QUICKLY: Fields = {"max_restarts": 10, "backoff_min_s": 0.05, "backoff_max_s": 0.1, "reset_after_s": 600}
ARGPARSE = "import argparse; argparse.ArgumentParser(prog='train.py').parse_args(['--step_s=0.2'])"
CHAINED = """
try:
    {}["lr"]
except KeyError as error:
    raise ValueError("the configuration has no learning rate") from error
"""
MEMORY = Path("/sys/fs/cgroup/memory")

MISSING = "ModuleNotFoundError: No module named 'no_such_module'"
DEATHS = {
    "raise ValueError('bad value')": "exit code 1 (ValueError: bad value)",
    CHAINED: "exit code 1 (ValueError: the configuration has no learning rate)",
    "import no_such_module": f"exit code 1 ({MISSING}), which is not tried again",
    ARGPARSE: "exit code 2 (unrecognized arguments: --step_s=0.2), which is not tried again",
    "import sys; sys.exit('error: no data below /data')": "exit code 1 (no data below /data)",
    "raise SystemExit('there is nothing to train on')": "exit code 1 (there is nothing to train on)",
    "import faulthandler, os; faulthandler.enable(); os.abort()": "killed by SIGABRT (Aborted)",
    "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)": "killed by SIGSEGV (Segmentation fault)",
    "import os, sys; print('step 1'); sys.stdout.flush(); os._exit(3)": "exit code 3",
}


@pytest.mark.parametrize(("program", "reason"), DEATHS.items(), ids=DEATHS.values())
def test_an_end_is_reported_with_its_cause(host: AgentHost, program: str, reason: str) -> None:
    spec = host.started(python_task("worker:0", program), recovery={**QUICKLY, "max_restarts": 0})
    assert host.wait_state(spec, "worker:0", "failed")["reason"] == reason


def test_a_task_that_fails_the_same_way_three_times_is_not_tried_again(host: AgentHost) -> None:
    spec = host.started(python_task("worker:0", "raise ValueError('bad value')"), recovery={**QUICKLY, "repeat": 3})
    entry = host.wait_state(spec, "worker:0", "failed")
    assert entry["attempt"] == 3
    assert entry["reason"] == (
        "exit code 1 (ValueError: bad value); it has failed the same way 3 times in a row and come no further "
        "(recovery.repeat)"
    )


def test_a_shortage_of_the_machine_is_waited_for_and_no_repetition(host: AgentHost) -> None:
    program = (
        "import os; int(os.environ['DTCTL_ATTEMPT']) > 1 or exec('raise OSError(28, \"No space left on device\")')"
    )
    spec = host.started(python_task("worker:0", program), recovery={**QUICKLY, "repeat": 1})
    entry = host.wait_state(spec, "worker:0", "succeeded")
    assert (entry["attempt"], entry["history"][0]["cause"]) == (2, "OSError: [Errno 28] No space left on device")
    assert entry["history"][1]["started"] - entry["history"][0]["ended"] > 4


@pytest.mark.nightly
@pytest.mark.skipif(not os.access(MEMORY / "cgroup.procs", os.W_OK), reason="no control group for memory can be made")
def test_a_kill_by_a_kernel_without_memory_is_reported_as_that(host: AgentHost) -> None:
    group = MEMORY / f"dtctl-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        eater = f"echo $$ > {group}/cgroup.procs; exec python3 -c 'bytearray(1 << 30)'"
        spec = host.started(shell("worker:0", eater), recovery={**QUICKLY, "max_restarts": 0})
        reason = host.wait_state(spec, "worker:0", "failed")["reason"]
    finally:
        group.rmdir()
    assert reason == "killed by SIGKILL; the host ran out of memory meanwhile, and its kernel killed 1 process"

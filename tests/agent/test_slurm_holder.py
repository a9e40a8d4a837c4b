"""The holder of a node: sessions talk through it, and nothing of them is left when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dtctl.rooms.slurm.transport import HOLDER
from tests.waiting import eventually

SESSION = """\
import os, sys
line = sys.stdin.readline()
if line == "leave\\n" and os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    os.execvp("sleep", ["sleep", "1000"])
sys.stdout.write(line + " ".join(sorted(name for name in os.environ if "SLURM" in name)) + "\\n")
sys.stdout.flush()
sys.exit(7)
"""


def environ() -> dict[str, str]:
    job = str(100_000_000 + os.getpid())
    known = {"SLURM_JOB_ID": job, "SLURMD_NODENAME": "n1", "SLURM_PROCID": "0"}
    return {**os.environ, **known, "MARK": f"held-{job}"}


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-IS", str(HOLDER), "hold", json.dumps(["-ISc", SESSION])]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ())
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"node": "n1", "holds": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
    yield process
    with suppress(OSError):
        process.kill()
    process.communicate()
    eventually(lambda: not held(), what="nothing to be left")


def held() -> list[int]:
    """The processes that a session has left behind."""
    mark = f"MARK={environ()['MARK']}".encode()
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (one / "environ").read_bytes() and b"sleep" in (one / "cmdline").read_bytes():
                found.append(int(one.name))
    return found


def enter(said: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-IS", str(HOLDER), "enter"]
    return subprocess.run(words, input=said, capture_output=True, text=True, env=environ(), timeout=30, check=False)


@pytest.mark.usefixtures("holder")
def test_a_session_has_the_streams_of_its_step_and_its_exit_code() -> None:
    done = enter("hello\n")
    assert (done.returncode, done.stdout.splitlines()[0]) == (7, "hello")


@pytest.mark.usefixtures("holder")
def test_a_session_sees_the_job_and_not_the_step_of_its_holder() -> None:
    names = enter("hello\n").stdout.splitlines()[1].split()
    assert [name for name in names if name != "SLURM_CONF"] == ["SLURMD_NODENAME", "SLURM_JOB_ID"]


def test_what_a_session_leaves_behind_ends_with_the_holder(holder: subprocess.Popen[str]) -> None:
    assert enter("leave\n").returncode == 7
    eventually(lambda: len(held()) == 1, what="the process to be left")
    assert holder.stdin is not None
    holder.stdin.close()
    holder.wait(30)
    assert held() == []


def test_what_a_session_leaves_behind_ends_with_a_holder_that_is_killed(holder: subprocess.Popen[str]) -> None:
    enter("leave\n")
    eventually(lambda: len(held()) == 1, what="the process to be left")
    holder.kill()
    eventually(lambda: not held(), what="the process to be ended")


def test_a_holder_reports_sigterm_and_goes_on(holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGTERM)
    assert holder.stdout is not None
    assert json.loads(holder.stdout.readline()) == {"node": "n1", "signal": "TERM"}
    assert enter("hello\n").returncode == 7


def test_a_node_without_a_holder_is_reported() -> None:
    done = enter("")
    assert (done.returncode, "no holder of this job" in done.stderr) == (125, True)

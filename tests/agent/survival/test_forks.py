"""A process that the agent has forked ends, and never goes on as another one of its parent."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = Path(__file__).resolve().parents[3] / "dtctl/agent"

SCRIPT = """
import contextlib, os, sys
from dtctl.agent.host import daemon

home = os.getpid()
lines = os.fdopen(os.dup(1), "w")
sys.stderr = open("/dev/full", "w")


def fail():
    print("what the disk does not take", file=sys.stderr)
    ENDING


with contextlib.suppress(OSError):  # as a supervisor goes on after an error of its disk
    os.waitpid(daemon.fork(fail), 0)
with contextlib.suppress(OSError):
    daemon.detached(fail)
lines.write("returned " + ("to its caller" if os.getpid() == home else "as a clone") + "\\n")
lines.flush()
sys.stderr = open(os.devnull, "w")
"""


@pytest.mark.parametrize("ending", ["pass", "raise OSError(28, 'full')", "sys.exit()", "raise KeyboardInterrupt"])
def test_a_forked_process_ends_also_where_its_log_is_on_a_full_disk(ending: str) -> None:
    script = SCRIPT.replace("ENDING", ending)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("returned to its caller\n", 0)


@pytest.mark.parametrize(("ending", "code"), [("pass", 7), ("raise OSError(28, 'full')", 7)])
def test_a_forked_process_has_the_exit_code_that_was_asked_for(ending: str, code: int) -> None:
    script = SCRIPT.partition("with contextlib")[0].replace("ENDING", ending)
    script += "lines.write(str(os.WEXITSTATUS(os.waitpid(daemon.fork(fail, 7), 0)[1])))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == str(code)


def test_only_one_function_of_the_agent_forks() -> None:
    forks = {
        path.name
        for path in AGENT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("fork", "forkpty") and ast.unparse(node.value) == "os"
    }
    assert forks == {"daemon.py"}

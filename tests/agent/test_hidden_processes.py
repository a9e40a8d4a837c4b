"""An ordinary account on a host whose /proc is mounted with hidepid=2: nothing is concluded from what it cannot see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dtctl
from tests.unit.privileges import NOBODY

ISLAND = Path(dtctl.__file__).parent.parent

FACTS = """
import glob, json, os, pwd, socket, sys, time
sys.path.insert(0, sys.argv[1])
from dtctl.agent.host import ports, processes
from dtctl.agent.requests import orphans
from dtctl.agent.rooms.check import ssh
from dtctl.agent.vitals import usage
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})  # the modules may be readable for root alone
os.environ["SSH_CONNECTION"] = "10.0.0.9 1 10.0.0.1 22"
own = socket.create_server(("127.0.0.1", 0))
others = usage.Others(time.monotonic())
print(json.dumps({{
    "sees_others": processes.sees_others(),
    "own": ports.holding(own.getsockname()[1])[0],
    "foreign": ports.holding(int(sys.argv[2]))[0],
    "listener": ssh._listener(),
    "limits": ssh._limits(ssh._listener()),
    "foreign_runs": orphans.of_other_accounts(),
    "gpu_user": usage.gpu_user(1, 10),
    "busy": others.busy(time.monotonic(), {{os.getpid()}}),
}}))
"""

BESIDE = """
import socket, subprocess, sys
held = socket.create_server(("127.0.0.1", 0))
words = [sys.executable, "-c", sys.argv[1], sys.argv[2], str(held.getsockname()[1])]
sys.exit(subprocess.run(words).returncode)
"""
"""A process of root that listens, above the ordinary account's."""


def facts(mount: str) -> dict[str, Any]:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("another /proc needs root and unshare")
    script = f'mount -t proc -o {mount} proc /proc && exec "$0" "$@"'
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, sys.executable, "-c", BESIDE]
    done = subprocess.run(
        [*words, FACTS.format(nobody=NOBODY), str(ISLAND)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_with_hidepid_other_accounts_are_unknown_and_own_processes_are_named() -> None:
    found = facts("hidepid=2")
    assert not found["sees_others"]
    assert found["own"].startswith("pid "), "an own process is seen"
    assert found["foreign"] == "a process of root", "the kernel's table of sockets names the user alone"
    assert found["listener"] is None, "a process above is hidden, which may be an sshd with a file of its own"
    assert found["limits"] == [{}, ""]
    assert found["foreign_runs"] == []
    assert (found["gpu_user"]["name"], found["gpu_user"]["user"], found["gpu_user"]["run"]) == ("", "", None)
    assert found["busy"] == []


def test_without_hidepid_the_same_account_sees_who_is_above_it() -> None:
    found = facts("hidepid=0")
    assert found["sees_others"]
    assert found["foreign"] == "a process of root"
    assert found["listener"] == "", "there is no sshd above"
    assert found["gpu_user"]["user"] == "root"

"""Agents that are killed: by one of their two processes, by both, and again and again."""

from __future__ import annotations

import ast
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.host import AgentHost, Fields, kill, shell, task
from tests.hosts.processes import alive, command
from tests.waiting import eventually

WAITS_FOR_A_FILE = "until [ -e $HOME/go ]; do sleep 0.05; done; exit 7"


def named(host: AgentHost, name: str) -> list[int]:
    return [pid for pid in host.processes() if comm(pid) == name]


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def guard(host: AgentHost) -> int:
    """The only one, once there is only one."""
    return eventually(lambda: found[0] if len(found := named(host, "dtctl-guard")) == 1 else 0, what="one guard")


def successor(host: AgentHost, spec: Fields, *before: int) -> int:
    """The supervisor that has taken over from those."""

    def taken_over() -> int:
        pid = host.supervisor(spec)
        return pid if pid not in before and alive(pid) else 0

    return eventually(taken_over, 60, f"a successor of {before}")


def test_a_supervisor_that_is_killed_is_replaced_without_a_controller(host: AgentHost) -> None:
    spec, pid = host.running(task("worker:0", "sleep", "1000"))
    old = host.supervisor(spec)
    watching = guard(host)
    kill(old)
    new = successor(host, spec, old)
    entry = host.state(spec)["tasks"]["worker:0"]
    assert (entry["state"], entry["attempt"], entry["pid"]) == ("running", 1, pid)
    kill(new)
    successor(host, spec, old, new)
    assert guard(host) == watching


def test_what_happened_while_there_was_no_supervisor_is_seen_by_the_next_one(host: AgentHost) -> None:
    spec = host.started(shell("worker:0", WAITS_FOR_A_FILE))
    kill(host.supervisor(spec))
    (host.home / "go").touch()
    assert host.wait_state(spec, "worker:0", "failed")["exit"]["code"] == 7
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_a_guard_that_is_killed_is_replaced_by_its_supervisor(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    first, supervisor = guard(host), host.supervisor(spec)
    kill(first)
    second = eventually(lambda: next((pid for pid in named(host, "dtctl-guard") if pid != first), 0))
    assert host.supervisor(spec) == supervisor
    assert alive(supervisor)
    kill(supervisor)
    successor(host, spec, supervisor)
    assert guard(host) == second
    assert host.ask("stop", tasks=None, grace_s=None, by="")["stopped"] == ["worker:0"]
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def kill_both(host: AgentHost, spec: Fields) -> int:
    """Leaves the keepers alone; the supervisor that there was."""
    supervisor = host.supervisor(spec)
    kill(guard(host))
    kill(supervisor)
    eventually(lambda: not alive(supervisor))
    for late in named(host, "dtctl-guard"):  # of its own last moment
        kill(late)
    return supervisor


def test_a_keeper_revives_an_agent_of_which_nothing_is_left(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"), task("worker:1", "sleep", "1000"))
    new = successor(host, spec, kill_both(host, spec))
    assert guard(host)
    eventually(lambda: named(host, "dtctl-agent") == [new], 60, "the other keeper's agent to give way")
    assert {entry["attempt"] for entry in host.state(spec)["tasks"].values()} == {1}
    for name in ("worker:0", "worker:1"):  # or the agent would be ended with the trainer
        start = host.start_record(spec, name)
        keeper = start["keeper"]["pid"]
        assert Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split() == [str(start["pid"])]
    assert host.ask("stop", tasks=None, grace_s=None, by="")["stopped"] == ["worker:0", "worker:1"]
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_a_trainer_that_ends_while_there_is_no_agent_is_started_again(host: AgentHost) -> None:
    recovery = {"max_restarts": 1, "backoff_min_s": 0.05, "backoff_max_s": 0.2, "reset_after_s": 600}
    spec, pid = host.running(shell("worker:0", "[ $DTCTL_ATTEMPT = 2 ] && sleep 1000; sleep 1000"), recovery=recovery)
    kill_both(host, spec)
    kill(pid)
    assert host.wait_state(spec, "worker:0", "running", attempt=2)["restarts"] == 1


def test_a_supervisor_that_cannot_begin_is_tried_again_until_it_can(host: AgentHost) -> None:
    spec, pid = host.running(task("worker:0", "sleep", "1000"))
    wake, hidden = host.run_directory(spec) / "wake", host.run_directory(spec) / "hidden"
    old = host.supervisor(spec)
    kill(old, signal.SIGSTOP)
    wake.rename(hidden)
    wake.mkdir()
    kill(old)
    log = host.run_directory(spec) / "agent.log"
    eventually(lambda: log.read_text().count("IsADirectoryError") >= 3)
    wake.rmdir()
    hidden.rename(wake)
    host.ask("stop", tasks=None, grace_s=None, by="")
    assert host.supervisor(spec) != old
    assert not alive(pid)


def test_down_ends_a_guard_that_is_frozen(host: AgentHost) -> None:
    host.started(task("worker:0", "sleep", "1000"))
    kill(guard(host), signal.SIGSTOP)
    host.ask("down", grace_s=None, by="ada")
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_there_are_never_two_supervisors_whatever_is_killed(host: AgentHost) -> None:
    spec, pid = host.running(task("worker:0", "sleep", "1000"))
    rng = random.Random(7)
    for _ in range(20):
        victims = named(host, "dtctl-guard") + named(host, "dtctl-agent")
        if victims:
            kill(rng.choice(victims))
        assert host.ask("status")["agent_alive"]
        eventually(lambda: len([pid for pid in named(host, "dtctl-agent") if supervises(pid)]) <= 1)
    entry = host.state(spec)["tasks"]["worker:0"]
    assert (entry["attempt"], entry["pid"]) == (1, pid)
    eventually(lambda: len(named(host, "dtctl-guard")) == len(named(host, "dtctl-agent")) == 1)


def supervises(pid: int) -> bool:
    """Not so a process that waits for the lock, and only for a moment one that a supervisor has forked."""
    try:
        return any(str(path.readlink()).endswith("/wake") for path in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize("agent_python", ["this"], indirect=True)
def test_guard_and_supervisor_are_small(host: AgentHost) -> None:
    spec = host.started(*[task(f"worker:{index}", "sleep", "1000") for index in range(8)])
    shares = {pid: pss_bytes(pid) for pid in (guard(host), host.supervisor(spec))}
    assert sum(shares.values()) < 25e6, {command(pid): share for pid, share in shares.items()}


def pss_bytes(pid: int) -> int:
    """What the process has in memory, of shared pages its share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def test_a_stop_right_after_the_kill_is_not_lost(host: AgentHost) -> None:
    for _ in range(5):
        spec = host.started(task("worker:0", "sleep", "1000"))
        with host.open() as talk:
            kill(host.supervisor(spec))
            result = talk.ask("stop", **host.about({"tasks": None, "grace_s": None, "by": ""}))
        assert result["stopped"] == ["worker:0"]
        assert json.loads((host.run_directory(spec) / "state.json").read_text())["finished"]
        eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


AGENT = Path(__file__).resolve().parents[3] / "dtctl/agent"

SCRIPT = """
import contextlib, os, sys
from dtctl.agent.host import daemon, programs, wake

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

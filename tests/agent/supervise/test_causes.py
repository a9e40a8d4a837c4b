"""What programs really write when they die, and what is reported of it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost, Fields, kill, python_task, shell, task
from tests.reasons import reason_of
from tests.waiting import eventually

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
LIMITED = (
    "import os, resource, threading, time; os.getuid() or os.setuid(65534); "
    "resource.setrlimit(resource.RLIMIT_%s, (%d, %d)); "
)
THREAD = "threading.Thread(target=time.sleep, args=(1,)).start()"
SHORTAGE = ", a shortage on its host"
DEATHS = {
    LIMITED % ("AS", 400 << 20, 400 << 20) + "bytearray(1 << 30)": "exit code 1 (MemoryError); ulimit -v is 409600 kB",
    LIMITED % ("NPROC", 1, 9) + THREAD: f"exit code 1 (RuntimeError: can't start new thread){SHORTAGE}; ulimit -u is 1",
    LIMITED % ("NOFILE", 20, 20)
    + "[os.dup(0) for _ in range(30)]": f"exit code 1 (OSError: [Errno 24] Too many open files){SHORTAGE}; "
    "ulimit -n is 20",
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
    assert reason_of(host.wait_state(spec, "worker:0", "failed")) == reason


BUSY = f"{sys.executable} -c 'while True: pass'"
LARGE = (
    f'{sys.executable} -c "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); '
    "open('x', 'wb').write(b'x' * 9999)\""
)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"ulimit -t 1; exec {BUSY}", "killed by SIGKILL; ulimit -t is 1 s"),
        (f"ulimit -S -t 1; exec {BUSY}", "killed by SIGXCPU; ulimit -t is 1 s"),
        (f"ulimit -f 4; exec {LARGE}", "killed by SIGXFSZ; ulimit -f is 4 kB"),
        ("ulimit -t 60; kill -KILL $$", "killed by SIGKILL"),
    ],
)
def test_a_limit_of_the_account_that_ends_a_trainer_is_named(host: AgentHost, line: str, reason: str) -> None:
    spec = host.started(task("worker:0", "bash", "-c", line), recovery={**QUICKLY, "max_restarts": 0})
    assert reason_of(host.wait_state(spec, "worker:0", "failed")) == reason


RAISES = f"{sys.executable} -c \"print('step 1', flush=True); raise ValueError('bad')\" 2>&1"
LOST = "its shell reported success, as the program's own status was lost in a pipe (set -o pipefail keeps it)"


@pytest.mark.parametrize(
    ("line", "state", "reason"),
    [
        (f"{RAISES} | tee log", "failed", f"exit code 1 (ValueError: bad); {LOST}"),
        (f"set -o pipefail; {RAISES} | tee log", "failed", "exit code 1 (ValueError: bad)"),
        (f"{RAISES} || true", "succeeded", "exit code 0"),
        (f"({RAISES}; echo trained) | tee log", "succeeded", "exit code 0"),
        ("echo 'a | b'", "succeeded", "exit code 0"),
    ],
)
def test_a_pipe_does_not_make_a_success_of_an_exception(host: AgentHost, line: str, state: str, reason: str) -> None:
    spec = host.started(task("worker:0", "bash", "-c", line), recovery={**QUICKLY, "max_restarts": 0})
    assert reason_of(host.wait_state(spec, "worker:0", state)) == reason


def test_a_pipe_in_a_script_does_not_make_a_success_of_an_exception(host: AgentHost) -> None:
    script = host.home / "run.sh"
    script.write_text(f"#!/bin/sh\n{RAISES} | tee log\n")
    script.chmod(0o755)
    for argv in (["sh", "run.sh"], [str(script)]):
        spec = host.started(task("worker:0", *argv), recovery={**QUICKLY, "max_restarts": 0})
        assert reason_of(host.wait_state(spec, "worker:0", "failed")) == f"exit code 1 (ValueError: bad); {LOST}"


def test_the_port_that_the_log_names_is_reported_with_who_holds_it(host: AgentHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        program = f"import socket; socket.create_server(('127.0.0.1', {port}))"
        spec = host.started(python_task("worker:0", program), recovery={**QUICKLY, "max_restarts": 0})
        entry = host.wait_state(spec, "worker:0", "failed")
    [found] = [one for one in entry["why"] if one["kind"] == "port_held"]
    assert found["port"] == port
    assert found["text"].startswith(f"pid {os.getpid()} (")


def test_a_port_that_others_hold_is_no_cause_of_an_error_of_the_program(host: AgentHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    waits = f"while socket.socket().connect_ex(('127.0.0.1', {port})): time.sleep(0.05)"
    program = f"import socket, time\n{waits}\nraise ValueError('bad batch')"
    spec = host.started(python_task("worker:0", program, port=port), recovery={**QUICKLY, "max_restarts": 0})
    with socket.create_server(("127.0.0.1", port)):
        entry = host.wait_state(spec, "worker:0", "failed")
    assert reason_of(entry) == "exit code 1 (ValueError: bad batch)"


@pytest.mark.nightly
@pytest.mark.skipif(not os.access(MEMORY / "cgroup.procs", os.W_OK), reason="no control group for memory can be made")
def test_a_kill_by_a_kernel_without_memory_is_reported_as_that(host: AgentHost) -> None:
    group = MEMORY / f"dtctl-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        eater = f"echo $$ > {group}/cgroup.procs; exec python3 -c 'bytearray(1 << 30)'"
        spec = host.started(shell("worker:0", eater), recovery={**QUICKLY, "max_restarts": 0})
        reason = reason_of(host.wait_state(spec, "worker:0", "failed"))
    finally:
        group.rmdir()
    assert reason == "killed by SIGKILL; the host ran out of memory meanwhile, and its kernel killed 1 process"


GRACE_S = 1.0
FEW_S = 60.0
"""On a machine that is busy; usual are some tenths of a second."""

SWALLOWS = """
import os, signal, time
def swallow():
    signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM caught, and training goes on", flush=True))
def child(name):
    if os.fork() == 0:
        swallow()
        os.setsid()
        if name == "orphan" and os.fork():
            os._exit(0)
        work(name)
def work(name):
    print("ready:", name, flush=True)
    while True:
        time.sleep(0.05)
swallow()
child("other session")
child("orphan")
work("trainer")
"""


@pytest.mark.parametrize("frozen", [False, True], ids=["at work", "frozen"])
def test_trainer_that_ignores_sigterm_is_killed_after_its_grace_period(host: AgentHost, frozen: bool) -> None:
    spec, pid = host.running(python_task("worker:0", SWALLOWS), grace_s=GRACE_S)
    eventually(lambda: host.log(spec, "worker:0").count("ready") == 3)
    if frozen:
        kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    result = host.ask("stop", tasks=None, grace_s=None, why=[{"kind": "stopped_by", "by": "ada"}], by="")
    assert (result["stopped"], result["survivors"]) == (["worker:0"], [])
    assert GRACE_S <= time.monotonic() - began < GRACE_S + FEW_S
    assert "SIGTERM caught" in host.log(spec, "worker:0")
    entry = host.state(spec)["tasks"]["worker:0"]
    assert (entry["exit"]["signal"], entry["left"]) == (signal.SIGKILL, [])
    assert (result["killed"], entry["exit"]["killed_after_s"]) == ({"worker:0": GRACE_S}, GRACE_S)
    assert reason_of(entry) == "killed after 1 s: stopped by ada"
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


@pytest.mark.parametrize("make", ["mkfifo {}", "ln -s /dev/zero {}", "ln -s {home}/victim {}", "mkdir {}"])
@pytest.mark.parametrize("agent_python", ["this"], indirect=True)
def test_a_run_ends_as_it_should_whatever_its_trainer_makes_of_its_files(make_host: MakeHost, make: str) -> None:
    host = make_host()
    (host.home / "victim").write_text("mine\n")
    sleeps = shell("worker:1", "echo fine; sleep 1000")
    spec = host.spec(shell("worker:0", "true"), sleeps, run="r-hostile")
    files = [host.attempt(spec, "worker:0") / name for name in ("log", "times", "stack")]
    files.append(host.run_directory(spec) / "events.jsonl")
    lines = [f"rm -rf {path}; {make.format(path, home=host.home)}" for path in files]
    script = "\n".join([*lines, f"touch {host.home}/made; until [ -e {host.home}/go ]; do sleep 0.05; done"])
    spec["tasks"] = [shell("worker:0", script), sleeps]
    host.up(spec)
    eventually((host.home / "made").exists)
    with host.open() as talk:
        talk.send("logs", **host.about({"tasks": ["worker:0", "worker:1"], "lines": 5}))
        printed = {frame["task"]: frame["payload"] for frame in (talk.receive(), talk.receive())}
        assert b"cannot be read: it is a " in printed["worker:0"]
        assert printed["worker:1"] == b"fine\n"
        talk.await_type("result")
    (host.home / "go").touch()
    host.wait_state(spec, "worker:0", "succeeded")
    assert host.ask("status")["state"]["tasks"]["worker:1"]["state"] == "running"
    host.ask("stop", tasks=None, grace_s=1, by="")
    eventually(lambda: host.state(spec)["finished"])
    assert (host.home / "victim").read_text() == "mine\n"


HOLDS = """
import fcntl, os, sys, time
held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(held, fcntl.LOCK_EX)
open(sys.argv[2], "w").close()
time.sleep(1000)
"""
LOCKS = {
    "held": "python3 -c '{holds}' {path} {made}",
    "a FIFO": "rm -f {path}; mkfifo {path}; touch {made}; sleep 1000",
    "a link": "rm -f {path}; ln -s {home}/victim {path}; touch {made}; sleep 1000",
    "a directory": "rm -f {path}; mkdir {path}; touch {made}; sleep 1000",
}


@pytest.mark.parametrize("what", LOCKS)
@pytest.mark.parametrize("agent_python", ["this"], indirect=True)
def test_a_run_is_stopped_whatever_its_trainer_does_to_the_lock_of_its_intent(make_host: MakeHost, what: str) -> None:
    """A trainer that held the lock kept `stop` and its own agent waiting as long as it ran."""
    host = make_host()
    (host.home / "victim").write_text("mine\n")
    spec = host.spec(shell("worker:0", "true"), run="r-lock", grace_s=1)
    lock, made = host.run_directory(spec) / "intent.lock", host.home / "made"
    script = LOCKS[what].format(path=lock, made=made, home=host.home, holds=HOLDS.strip().replace("'", '"'))
    spec["tasks"] = [shell("worker:0", script)]
    host.up(spec)
    eventually(made.exists)
    result = host.ask("stop", tasks=None, grace_s=1, why=[{"kind": "stopped_by", "by": "ada"}], by="")
    assert (result["stopped"], result["survivors"]) == (["worker:0"], [])
    eventually(lambda: host.state(spec)["finished"])
    assert (host.home / "victim").read_text() == "mine\n"

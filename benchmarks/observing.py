"""The processor time of an agent's measurements (dtctl speed) on a host with 8 tasks, each with threads and peers."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measuring import heading, show
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, State
from dtctl.agent.records.spec import Member
from dtctl.agent.rooms.speed.measuring import SAMPLE_S, Observer
from dtctl.agent.rooms.speed.saving import LOOK_S

ROUNDS = 20
TASKS = 8
THREADS = 100
_TASK = """
import socket, sys, threading, time
own, ports = int(sys.argv[1]), [int(port) for port in sys.argv[2].split(",")]
server = socket.create_server(("127.0.0.1", own), backlog=100)
for _ in range(int(sys.argv[3])): threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
print("listens", flush=True)
sys.stdin.readline()
held = [socket.create_connection(("127.0.0.1", port)) for port in ports]
held += [server.accept()[0] for _ in ports]
print("connected", flush=True)
for one in held: one.setblocking(False)
while True:
    for one in held: one.send(b"x" * 100)
    time.sleep(1)
"""


class _Files:
    def __init__(self, directory: str) -> None:
        self.directory = directory


def run(rounds: int | None = None) -> None:
    """Prints the share of one processor that the samples take, each of 10 s."""
    rounds = rounds or ROUNDS
    first = 20_000 + os.getpid() % 10_000
    ports = [first + number for number in range(TASKS)]
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        words = (sys.executable, "-c", _TASK)
        tasks = []
        for port in ports:
            argv = [*words, str(port), ",".join(str(other) for other in ports if other != port), str(THREADS)]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            tasks.append(stack.enter_context(subprocess.Popen(argv, start_new_session=True, **pipes)))
            stack.callback(tasks[-1].kill)
        for task in tasks:
            assert task.stdout
            task.stdout.readline()
        for task in tasks:
            assert task.stdin
            task.stdin.write("\n")
            task.stdin.flush()
        for task in tasks:
            assert task.stdout
            task.stdout.readline()
        _show(directory, [task.pid for task in tasks], ports, rounds)


def _show(directory: str, pids: list[int], ports: list[int], rounds: int) -> None:
    names = [f"worker:{number}" for number in range(TASKS)]
    roster = [
        made(Member, task=task, host="h1", address=f"127.0.0.1:{port}") for task, port in zip(names, ports, strict=True)
    ]
    spec: Any = {"host": "h1", "tasks": [{"id": task} for task in names], "roster": roster}
    starts = [int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) for pid in pids]
    entries = {
        task: made(Entry, pid=pid, start_time=at, step=1, step_time=2e9)
        for task, pid, at in zip(names, pids, starts, strict=True)
    }
    state = made(State, run="r", host="h1", tasks=entries)
    observer: Any = Observer(_Files(directory), spec)  # type: ignore[arg-type]
    spent = []
    for number in range(rounds + 2):
        began = time.thread_time()
        observer.step(1e6 + 1000.0 * number, 2e9 + SAMPLE_S * number, state)
        spent.append(time.thread_time() - began)
        time.sleep(0.05)
    looks = []
    for number in range(rounds):
        began = time.thread_time()
        observer._saving.look(2e6 + LOOK_S * number, state)
        looks.append(time.thread_time() - began)
    cost = statistics.median(spent[2:]) + statistics.median(looks) * (SAMPLE_S / LOOK_S - 1)
    heading("observing", f"a sample of {TASKS} tasks with {THREADS} threads and {2 * (TASKS - 1)} connections each")
    show(
        "processor time of a sample, and of looks for saves",
        f"{1000 * cost:.1f} ms",
        cost / SAMPLE_S * 100,
        "% of a processor",
        "0.5",
    )

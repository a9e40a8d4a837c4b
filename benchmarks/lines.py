"""The delay from a trainer's output to the screen, and the throughput of `logs -f`."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import DTCTL, heading, measure, show
from benchmarks.servers import Servers, loopback_servers, need

TASKS = 20
HOSTS = 5
ROUNDS = 3
WATCHED_S = 30.0
VOLUME_MB = 50
END = "that was all"

CLOCK = """\
import random, time
while True:
    print("at %.6f of a clock" % time.time(), flush=True)
    time.sleep(random.uniform(0.3, 0.7))
"""
FLOOD = f"""\
import sys, time
line = "step %d  loss 0.041237  accuracy 0.9871  examples/s 10422.3 of a trainer that tells much\\n"
number, size = 0, 0
while size < {VOLUME_MB} << 20:
    text = "".join(line % at for at in range(number, number + 1000))
    number, size = number + 1000, size + len(text)
    sys.stdout.write(text)
print("{END}", flush=True)
time.sleep(3600)
"""


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    need("ssh", "tail")
    with tempfile.TemporaryDirectory() as name, loopback_servers(HOSTS, Path(name), homes=True) as servers:
        with running(servers, CLOCK, TASKS):
            late_ms = sorted(_delays_ms(servers))
        heading("lines", f"{len(late_ms)} lines of {TASKS} tasks on {HOSTS} hosts, from their trainers to the screen")
        for share, goal in ((0.5, "100 ms"), (0.99, "300 ms")):
            show(f"p{share * 100:.0f}", f"{late_ms[int(share * (len(late_ms) - 1))]:.0f} ms", goal=goal)
        with running(servers, FLOOD, 1):
            _carry(_logs("-n", "all"), servers)  # until all is written
            took = {"ssh HOST tail -f": [0.0] * rounds, "dtctl logs -f": [0.0] * rounds}
            for at in range(rounds):
                took["ssh HOST tail -f"][at] = _carry(_tail(servers), servers)
                took["dtctl logs -f"][at] = _carry(_logs("-n", "all"), servers)
        heading(
            "lines",
            f"{VOLUME_MB} MB of one task's log, from the first line to the last, medians of {rounds} alternating runs",
        )
        tail_s = statistics.median(took["ssh HOST tail -f"])
        for what, some in took.items():
            median_s = statistics.median(some)
            show(what, f"{VOLUME_MB / median_s:.1f} MB/s", tail_s / median_s, "tail's", "1" if "dtctl" in what else "")


@contextmanager
def running(servers: Servers, program: str, tasks: int) -> Iterator[None]:
    """Runs this many tasks, spread over the hosts in turn."""
    servers.write_cluster("command: [python3, train.py], dialect: none", workers=tasks)
    (servers.directory / "code" / "train.py").write_text(program)
    measure([*DTCTL, "up", "-q"], cwd=servers.directory, env=servers.env)
    try:
        yield
    finally:
        measure([*DTCTL, "down", "-y"], cwd=servers.directory, env=servers.env)


def _logs(*words: str) -> list[str]:
    return [*DTCTL, "logs", "-f", *words]


def _tail(servers: Servers) -> list[str]:
    login = servers.sshd.users[servers.users[0]]
    (log,) = login.home.glob(".dtctl/runs/*/*/tasks/worker-0/attempt-1/log")
    inside = f"{login.home_inside}/{log.relative_to(login.home)}"
    return ["ssh", "-F", str(servers.ssh_config), servers.addresses[0], f"tail -n +1 -f {inside}"]


def _delays_ms(servers: Servers) -> Iterator[float]:
    """The delays of lines printed within WATCHED_S, from the time at which all hosts are followed."""
    begin = time.time() + 5.0
    with _printing(_logs("-n", "0"), servers) as lines:
        for line in lines:
            now = time.time()
            words = line.decode().split()
            told = float(words[words.index("at") + 1]) if "clock" in words else 0.0
            if now > begin + WATCHED_S:
                return
            if told > begin:
                yield (now - told) * 1000


def _carry(argv: Sequence[str], servers: Servers) -> float:
    """The seconds from the first line here to the last."""
    with _printing(argv, servers) as lines:
        next(lines)
        began = time.monotonic()
        if not any(END.encode() in line for line in lines):
            raise RuntimeError(f"{argv[0]} ended before the log did")
    return time.monotonic() - began


@contextmanager
def _printing(argv: Sequence[str], servers: Servers) -> Iterator[Iterator[bytes]]:
    process = subprocess.Popen(
        argv, cwd=servers.directory, env=servers.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.terminate()
        process.stdout.close()
        process.wait()

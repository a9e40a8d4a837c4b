"""What `dtctl up`, `stop` and `down` take of the client and of all hosts, where `python3 -c pass` over SSH is the unit.

All hosts and the client are one machine here, so what it spends in all is what they spend together.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.machine import Group, counted
from benchmarks.measuring import DTCTL, ROOT, Cost, heading, measure, show
from benchmarks.servers import Servers, loopback_servers

HOSTS = 100
ROUNDS = 3
TRAINER = 'trainer: {code: code, command: [sleep, "3600"], dialect: none}'
COMMANDS = (("up", "-q"), ("status",), ("stop",), ("down", "-y"))
BARE = "python3 -c pass"


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    with (
        tempfile.TemporaryDirectory() as name,
        counted() as group,
        loopback_servers(HOSTS, Path(name), homes=False) as servers,
    ):
        directory = Path(name)
        (directory / "code").mkdir()
        (directory / "code" / "train.py").write_text("print('trained')\n")
        servers.write_cluster(TRAINER)
        dtctl = functools.partial(_dtctl, servers)
        for first in (("push", "-q"), ("up", "-q"), ("down", "-y")):  # the hosts have code and agent from here on
            dtctl(first)
        seen: dict[str, list[tuple[Cost, float]]] = {}
        for _ in range(rounds):
            bare = functools.partial(measure, paramiko(servers, BARE), env=servers.env)
            seen.setdefault(BARE, []).append(_spent(group, bare))
            for words in COMMANDS:
                seen.setdefault(f"dtctl {words[0]}", []).append(_spent(group, functools.partial(dtctl, words)))
    heading("starting", f"{HOSTS} hosts that have the code; the least of {rounds} alternating runs")
    least = {what: _least(some) for what, some in seen.items()}
    unit, unit_s = least[BARE]
    for what, (cost, machine_s) in least.items():
        ours = what == "dtctl up"
        show(what, f"{cost.wall_s:.1f} s", cost.wall_s / unit.wall_s, "python3 -c pass", "1.5" if ours else "")
        client_ms = cost.cpu_s / HOSTS * 1000
        show("  the client's CPU, per host", f"{client_ms:.1f} ms", goal="15 ms" if ours else "")
        machine = f"{machine_s / HOSTS * 1000:.0f} ms"
        show("  all CPU, per host", machine, machine_s / unit_s, "python3 -c pass", "1.5" if ours else "")


def _least(some: list[tuple[Cost, float]]) -> tuple[Cost, float]:
    costs = [cost for cost, _ in some]
    cost = Cost(min(cost.wall_s for cost in costs), min(cost.cpu_s for cost in costs))
    return cost, min(machine_s for _, machine_s in some)


def _spent(group: Group, contender: Callable[[], Cost]) -> tuple[Cost, float]:
    """What it took, and what the whole machine did for it."""
    before = group.cpu_s()
    cost = contender()
    return cost, group.cpu_s() - before


def _dtctl(servers: Servers, words: tuple[str, ...]) -> Cost:
    return measure([*DTCTL, *words], cwd=servers.directory, env=servers.env)


def paramiko(servers: Servers, command: str) -> list[str | Path]:
    """Bare paramiko, which runs the command on every host."""
    sshd, known_hosts = servers.sshd, servers.directory / "known_hosts"
    script = ROOT / "benchmarks" / "paramiko_run.py"
    return [sys.executable, script, command, sshd.user, str(sshd.port), sshd.key, known_hosts, *servers.addresses]

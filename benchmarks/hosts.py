"""What a host more costs: `dtctl up` on a hundred hosts, bare paramiko and clush running `true` on the same ones."""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import DTCTL, ROOT, Cost, alternate, heading, measure, show
from benchmarks.servers import Servers, loopback_servers, need

HOSTS = 100
ROUNDS = 3
TRAINER = 'trainer: {code: code, command: [sleep, "3600"], dialect: none}'


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    need("clush", "ssh")
    with tempfile.TemporaryDirectory() as name, loopback_servers(HOSTS, Path(name), homes=False) as servers:
        directory = Path(name)
        (directory / "code").mkdir()
        (directory / "code" / "train.py").write_text("print('trained')\n")
        servers.write_cluster(TRAINER)
        dtctl = functools.partial(_dtctl, servers)
        dtctl("push", "-q")
        dtctl("up", "-q")  # the hosts have the code and the agent from here on
        dtctl("down", "-y")

        def up_again() -> Cost:
            cost = dtctl("up", "-q")
            dtctl("down", "-y")
            return cost

        heading(
            "hosts",
            f"{HOSTS} hosts that have the code, medians of {rounds} alternating runs; CPU of the client, per host",
        )
        costs = alternate(
            rounds,
            {
                "paramiko true": functools.partial(measure, _paramiko(servers), env=servers.env),
                "clush true": functools.partial(measure, _clush(servers), env=servers.env),
                "dtctl push": functools.partial(dtctl, "push", "-q"),
                "dtctl up": functools.partial(dtctl, "up", "-q"),
                "dtctl up, again": up_again,
            },
        )
        paramiko, clush = costs["paramiko true"], costs["clush true"]
        for what, cost in costs.items():
            ours = what.startswith("dtctl")
            cpu_ms = f"{cost.cpu_s / HOSTS * 1000:.1f} ms CPU"
            show(what, cpu_ms, cost.cpu_s / paramiko.cpu_s, "paramiko's", "1.5" if ours else "")
            show("", f"{cost.wall_s:.1f} s", cost.wall_s / clush.wall_s, "clush's", "1" if ours else "")


def _dtctl(servers: Servers, *words: str) -> Cost:
    return measure([*DTCTL, *words], cwd=servers.directory, env=servers.env)


def _paramiko(servers: Servers) -> list[str | Path]:
    sshd, known_hosts = servers.sshd, servers.directory / "known_hosts"
    script = ROOT / "benchmarks" / "paramiko_true.py"
    return [sys.executable, script, sshd.user, str(sshd.port), sshd.key, known_hosts, *servers.addresses]


def _clush(servers: Servers) -> list[str]:
    return [
        "clush",
        "-q",
        "-S",
        "-o",
        f"-F {servers.ssh_config}",
        "-w",
        f"127.0.1.[1-{len(servers.addresses)}]",
        "true",
    ]

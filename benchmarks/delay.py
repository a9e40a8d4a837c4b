"""How many round trips a command waits for, where hosts are far: `ssh HOST true` and dtctl, by a line with a delay."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import DTCTL, heading, measure, show
from benchmarks.relay import Relay, relay
from benchmarks.servers import Servers, loopback_servers, need

HOSTS = 4
ROUNDS = 3
ROUND_TRIP_S = 0.6
"""So long that what the commands compute, which is never the same twice, is little beside it."""
GOAL = 2
"""Round trips more than `ssh HOST true`."""

CLUSTER = """\
name: far
ssh: {{port: {port}, identity_file: {key}, known_hosts: known_hosts}}
hosts:
{hosts}
jobs: {{worker: {{hosts: "host-[1-{count}]"}}}}
trainer: {{code: code, command: [sleep, "3600"], dialect: none}}
"""


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    need("ssh")
    seconds: dict[float, dict[str, list[float]]] = {delay_s: defaultdict(list) for delay_s in (0.0, ROUND_TRIP_S / 2)}
    with (
        tempfile.TemporaryDirectory() as name,
        loopback_servers(HOSTS, Path(name), homes=True) as servers,
        relay(servers.sshd.port, 0.0) as line,
    ):
        _write_files(servers, line)
        for _ in range(rounds):
            for delay_s, took in seconds.items():
                line.delay_s = delay_s
                for what, wall_s in _commands(servers, line):
                    took[what].append(wall_s)
    heading("delay", f"{HOSTS} hosts, waits at {ROUND_TRIP_S * 1000:.0f} ms less those at 0 ms, least of {rounds} runs")
    near, far = seconds.values()
    trips = {what: (min(far[what]) - min(near[what])) / ROUND_TRIP_S for what in near}
    bare = next(iter(trips.values()))
    for what, count in trips.items():
        show(what, f"{count:.1f} round trips", goal=f"{bare + GOAL:.1f}" if what.startswith("dtctl") else "")


def _commands(servers: Servers, line: Relay) -> Iterator[tuple[str, float]]:
    """One after the other, in an order in which each finds what it needs; what it is, and the time that it took."""

    def took(*argv: str | Path) -> float:
        return measure(argv, cwd=servers.directory, env=servers.env).wall_s

    def ours(*words: str) -> float:
        return took(*DTCTL, *words)

    for user in servers.users:
        shutil.rmtree(servers.sshd.users[user].home / ".dtctl", ignore_errors=True)
    yield "ssh HOST true", took("ssh", "-F", servers.ssh_config, "-p", str(line.port), servers.addresses[0], "true")
    yield "dtctl up, the first of all", ours("up", "-q")
    yield "dtctl exec true", ours("exec", "--", "true")
    yield "dtctl push, nothing new", ours("push", "-q")
    yield "dtctl status", ours("status")
    yield "dtctl logs", ours("logs")
    yield "dtctl stop", ours("stop")
    yield "dtctl up, code and agent there", ours("up", "-q")
    yield "dtctl down", ours("down", "-y")


def _write_files(servers: Servers, line: Relay) -> None:
    """The cluster, its code, and the hosts' keys at the relay's port."""
    known = servers.directory / "known_hosts"
    names = [f"[{address}]:{line.port}" for address in servers.addresses]
    known.write_text("".join(servers.sshd.known_hosts_text(name) for name in names))
    hosts = [
        f"  host-{number}: {{ssh: {{target: {address}, user: {user}}}, address: 127.0.0.1}}"
        for number, (address, user) in enumerate(zip(servers.addresses, servers.users, strict=True), 1)
    ]
    text = CLUSTER.format(port=line.port, key=servers.sshd.key, hosts="\n".join(hosts), count=len(hosts))
    (servers.directory / "cluster.yaml").write_text(text)
    (servers.directory / "code").mkdir()
    (servers.directory / "code" / "train.py").touch()

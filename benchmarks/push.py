"""Code for ten hosts: `dtctl push` and `rsync -az`, when the hosts have nothing and when nothing has changed."""

from __future__ import annotations

import functools
import random
import shutil
import tempfile
from pathlib import Path

from benchmarks.measuring import DTCTL, Cost, alternate, heading, measure, show
from benchmarks.servers import Servers, loopback_servers, need

HOSTS = 10
FILES = 500
BYTES = 47_000_000
ROUNDS = 3
WORDS = ("import", "self", "return", "def", "inputs", "training", "layers", "activation", "None", "shape=(8, 8)")


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    need("rsync", "ssh", "xargs")
    with tempfile.TemporaryDirectory() as name, loopback_servers(HOSTS, Path(name), homes=True) as servers:
        write_tree(servers.directory / "code")
        servers.write_cluster('trainer: {code: code, command: ["true"]}')
        dtctl = functools.partial(measure, [*DTCTL, "push", "-q"], cwd=servers.directory, env=servers.env)
        rsync = functools.partial(measure, _rsync(servers), env=servers.env)

        def cold(push: functools.partial[Cost]) -> Cost:
            _forget(servers)
            return push()

        costs = alternate(
            rounds,
            {
                "rsync, cold": functools.partial(cold, rsync),
                "rsync, unchanged": rsync,
                "dtctl, cold": functools.partial(cold, dtctl),
                "dtctl, unchanged": dtctl,
            },
        )
        heading("push", f"{BYTES / 1e6:.0f} MB in {FILES} files to {HOSTS} hosts, medians of {rounds} alternating runs")
        for when in ("cold", "unchanged"):
            ours, peers = costs[f"dtctl, {when}"], costs[f"rsync, {when}"]
            show(
                f"dtctl push, rsync -az, {when}",
                f"{ours.wall_s:.1f} s, {peers.wall_s:.1f} s",
                ours.wall_s / peers.wall_s,
                "rsync's",
                "1",
            )
            show("", f"{ours.cpu_s:.1f} s, {peers.cpu_s:.1f} s CPU", ours.cpu_s / peers.cpu_s, "rsync's")


def write_tree(directory: Path) -> None:
    """The same files every time, which compress about as well as code and data together do."""
    noise = random.Random(0)
    for number in range(FILES):
        file = directory / f"package{number % 20}" / f"module{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = BYTES // FILES
        text = " ".join(noise.choices(WORDS, k=size // 15)).encode()
        file.write_bytes(text + noise.randbytes(size - len(text)))


def _rsync(servers: Servers) -> list[str]:
    """All hosts at once, as an administrator would with xargs."""
    each = f"rsync -az --delete -e 'ssh -F {servers.ssh_config}' {servers.directory}/code/ {{}}:code/"
    return ["sh", "-c", f"printf '%s\\n' {' '.join(servers.addresses)} | xargs -P {HOSTS} -I {{}} {each}"]


def _forget(servers: Servers) -> None:
    """As if neither side had ever pushed."""
    shutil.rmtree(servers.directory / ".local", ignore_errors=True)
    shutil.rmtree(servers.directory / ".cache", ignore_errors=True)
    for user in servers.sshd.users.values():
        for left in user.home.iterdir():
            if left.is_dir():
                shutil.rmtree(left)

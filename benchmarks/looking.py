"""What a look at a large run takes: `dtctl status` by one connection, and bare `ssh HOST python3 -c pass`."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from benchmarks.lines import running
from benchmarks.measuring import DTCTL, alternate, heading, measure, show
from benchmarks.servers import loopback_servers, need

HOSTS = 50
TASKS = 100
ROUNDS = 7
PROGRAM = "import time\ntime.sleep(86400)\n"


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    need("ssh")
    with tempfile.TemporaryDirectory() as name, loopback_servers(HOSTS, Path(name), homes=True) as servers:
        with running(servers, PROGRAM, TASKS):
            look = functools.partial(measure, cwd=servers.directory, env=servers.env)
            ssh = ["ssh", "-F", str(servers.ssh_config), servers.addresses[0], "python3", "-c", "pass"]
            look([*DTCTL, "status"])
            costs = alternate(
                rounds,
                {
                    "ssh HOST python3 -c pass": functools.partial(look, ssh),
                    "dtctl status": functools.partial(look, [*DTCTL, "status"]),
                },
            )
        heading("looking", f"{TASKS} tasks on {HOSTS} hosts, medians of {rounds} alternating runs")
        bare = costs["ssh HOST python3 -c pass"]
        for what, cost in costs.items():
            ours = what.startswith("dtctl")
            show(what, f"{cost.wall_s * 1000:.0f} ms", cost.wall_s / bare.wall_s, "ssh's", "1.5" if ours else "")
            show("", f"{cost.cpu_s * 1000:.0f} ms CPU", cost.cpu_s / bare.cpu_s, "ssh's")

"""The same cluster on this one machine: every host local, every port its own."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from dtctl.config.placement import FIRST_PORT
from dtctl.errors import PreflightError
from dtctl.model import Local

if TYPE_CHECKING:
    from dtctl.model import Cluster

LOOPBACK = "127.0.0.1"
_LAST_PORT = 32767
"""Above it kernels hand out ports to outgoing connections, so a port that is free now may be taken at the start."""


def on_this_machine(cluster: Cluster, is_free: Callable[[int], bool]) -> Cluster:
    """`cluster` with all its hosts local; a port that is taken, or that two hosts would now share, moves up."""
    taken: set[int] = set()

    def own_port(wanted: int) -> int:
        wanted = wanted or FIRST_PORT
        for port in itertools.chain(range(wanted, _LAST_PORT + 1), (wanted,), range(1024, wanted)):
            if port not in taken and is_free(port):
                taken.add(port)
                return port
        raise PreflightError("no free port is left on this machine")

    hosts = {
        name: dataclasses.replace(host, reach=Local(), address=LOOPBACK, python=None, dirs={})
        for name, host in cluster.hosts.items()
    }
    jobs = {
        name: dataclasses.replace(job, ports=tuple(own_port(port) for port in job.ports))
        for name, job in cluster.jobs.items()
    }
    coordinator_port = own_port(cluster.coordinator_port)
    return dataclasses.replace(cluster, hosts=hosts, jobs=jobs, coordinator_port=coordinator_port)

"""What a cluster file alone says of a start: where its tasks run, and the code that they get."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.operations.up.local_ports import LocalPorts
from dtctl.plan.local import on_this_machine
from dtctl.reach import SshSettings

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.model import Cluster

_PORTS = LocalPorts()


def make_local(cluster: Cluster) -> Cluster:
    """The cluster on this machine, on ports that are free here now."""
    return on_this_machine(cluster, _PORTS.is_free)


def scan_code(cluster: Cluster) -> Bundle:
    """The cluster's code, without the files that hold secrets or keys."""
    from dtctl.bundle import scan

    over_ssh = [host.reach for host in cluster.hosts.values() if isinstance(host.reach, SshSettings)]
    keys = [settings.identity_file for settings in over_ssh if settings.identity_file]
    env_file = [cluster.trainer.env_file] if cluster.trainer.env_file else []
    return scan(
        cluster.trainer.code,
        cluster=cluster.name,
        secret_files=[*env_file, *(Path(key).expanduser() for key in set(keys))],
    )

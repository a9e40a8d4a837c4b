"""Clusters for tests of what is above the file: values, as if a file had been read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtctl.config.cluster import Cluster, Job, Launch, Trainer
from dtctl.model import Host, SshSettings

COMMAND = ("python", "train.py")


def ssh_host(name: str, **settings: Any) -> Host:
    return Host(name=name, reach=SshSettings(target=name), **settings)


def job(name: str, hosts: list[str], ports: list[int], **settings: Any) -> Job:
    launch = settings.pop("launch", Launch(command=COMMAND))
    return Job(name=name, hosts=tuple(hosts), ports=tuple(ports), launch=launch, **settings)


def cluster(*jobs: Job, hosts: list[Host] | None = None, **settings: Any) -> Cluster:
    """Two ps and two workers on four hosts, unless said otherwise."""
    jobs = jobs or (job("ps", ["a", "b"], [2222, 2222]), job("worker", ["c", "d"], [2222, 2222]))
    names = dict.fromkeys(host for one in jobs for host in one.hosts)
    hosts = hosts if hosts is not None else [ssh_host(name) for name in names]
    settings = {"name": "digits", "file": Path("/p/cluster.yaml"), "trainer": Trainer(code=Path("/p")), **settings}
    return Cluster(hosts={host.name: host for host in hosts}, jobs={one.name: one for one in jobs}, **settings)

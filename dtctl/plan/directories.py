"""Where the directories of a cluster lie on its hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dtctl.agent.records.marks import HOME
from dtctl.strategies import KVSTORE_JOBS, PS

if TYPE_CHECKING:
    from dtctl.model import Cluster, Host

Directories = Mapping[str, str]
"""data, output, work, log: paths on one host, with marks."""


def on_host(path: str, cluster: str) -> str:
    """`path` made absolute: ~ is the user's home there, and a relative path lies under ~/dtctl/CLUSTER."""
    if path.startswith("/"):
        return path
    if path == "~" or path.startswith("~/"):
        return HOME + path[1:]
    return f"{HOME}/dtctl/{cluster}/{path.removeprefix('./')}".removesuffix("/.")


def directories(cluster: Cluster, host: Host) -> Directories:
    return {name: on_host(path, cluster.name) for name, path in {**cluster.dirs, **host.dirs}.items()}


def checkpoint_directories(cluster: Cluster, dirs: Directories) -> tuple[str, ...]:
    if cluster.checkpoint_dir is not None:
        return (on_host(cluster.checkpoint_dir, cluster.name),)
    return (dirs["output"],) if "output" in dirs else ()


def output_directories(dirs: Directories, checkpoint_dirs: Iterable[str]) -> tuple[str, ...]:
    """What a run writes and is continued from."""
    return tuple(sorted({*checkpoint_dirs, *(dirs[name] for name in ("output",) if name in dirs)}))


def brought_along(cluster: Cluster, host: Host, dirs: Directories) -> tuple[str, ...]:
    """Directories that have to be there before a run: data, unless it lies below ~/dtctl/CLUSTER. A ps reads none."""
    reads = any(host.name in job.hosts for name, job in cluster.jobs.items() if name not in (PS, *KVSTORE_JOBS))
    own = on_host(".", cluster.name) + "/"
    return (dirs["data"],) if reads and "data" in dirs and not dirs["data"].startswith(own) else ()

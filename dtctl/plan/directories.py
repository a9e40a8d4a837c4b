"""Where the directories of a cluster lie on its hosts."""

from __future__ import annotations

from collections.abc import Mapping

from dtctl.model import Cluster
from dtctl.plan.marks import HOME


def on_host(path: str, cluster: str) -> str:
    """`path` made absolute: ~ is the user's home there, and a relative path lies under ~/dtctl/CLUSTER."""
    if path.startswith("/"):
        return path
    if path == "~" or path.startswith("~/"):
        return HOME + path[1:]
    return f"{HOME}/dtctl/{cluster}/{path.removeprefix('./')}".removesuffix("/.")


def directories(cluster: Cluster) -> Mapping[str, str]:
    return {name: on_host(path, cluster.name) for name, path in cluster.dirs.items()}


def checkpoint_directories(cluster: Cluster, dirs: Mapping[str, str]) -> tuple[str, ...]:
    if cluster.checkpoint_dir is not None:
        return (on_host(cluster.checkpoint_dir, cluster.name),)
    return (dirs["output"],) if "output" in dirs else ()

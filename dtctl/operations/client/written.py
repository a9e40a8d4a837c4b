"""What trainers wrote into their working directories, and which nobody removes unasked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.agent.records import answers as records


@dataclass(frozen=True)
class Written:
    """In one directory, or in directories of this path on several hosts that are alike."""

    cluster: str | None
    """None: it does not tell any more."""
    path: str
    files: int
    size_bytes: int
    """In each directory."""
    hosts: tuple[str, ...]
    directories: int = 1
    """How many there are: hosts that share their home directory have one."""


def told_once(told: Iterable[tuple[str, records.Written]]) -> tuple[Written, ...]:
    """By directory; hosts that share one have named it all."""
    hosts: dict[tuple[str | None, str, int, int], dict[str, str]] = {}
    for host, one in told:
        alike = (one["cluster"], one["path"], one["files"], one["size_bytes"])
        hosts.setdefault(alike, {})[host] = one["id"]
    return tuple(
        Written(cluster, path, files, size_bytes, tuple(ids), len(set(ids.values())))
        for (cluster, path, files, size_bytes), ids in hosts.items()
    )

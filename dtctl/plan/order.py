"""Who needs whom at the start of a run: stages, each after those that it needs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from dtctl.errors import PreflightError
from dtctl.ways import circle, parties, waits

if TYPE_CHECKING:
    from dtctl.model import Cluster, TaskId


@dataclass(frozen=True)
class Stage:
    """Tasks that need every task of the stages at the indexes `after` to be ready."""

    name: str
    tasks: tuple[TaskId, ...]
    after: tuple[int, ...] = ()
    held: bool = False
    """They start when those are ready; else at once, and wait by themselves."""


def stages(cluster: Cluster) -> tuple[Stage, ...]:
    """A stage for each party of the run, behind those that it waits for."""
    waiting, members = waits(cluster), parties(cluster)
    if ring := circle(waiting):
        raise PreflightError(f"{' and '.join(ring)} wait for each other", hint="change their depends_on")
    index = {name: number for number, name in enumerate(TopologicalSorter(waiting).static_order())}
    return tuple(
        Stage(
            name,
            members[name],
            tuple(sorted(index[other] for other in waiting[name])),
            held=bool(waiting[name]) and cluster.jobs[members[name][0].job].depends_on is not None,
        )
        for name in index
    )

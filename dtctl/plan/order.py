"""In which order the tasks of a run start: stages, each after those that it needs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter

from dtctl.errors import PreflightError
from dtctl.model import Cluster, TaskId
from dtctl.ways import circle, parties, waits


@dataclass(frozen=True)
class Stage:
    """Tasks that start together once every task of the stages at the indexes `after` is ready."""

    name: str
    tasks: tuple[TaskId, ...]
    after: tuple[int, ...] = ()


def stages(cluster: Cluster) -> tuple[Stage, ...]:
    """A stage for each party of the run, behind those that it waits for."""
    waiting, members = waits(cluster), parties(cluster)
    if ring := circle(waiting):
        raise PreflightError(f"{' and '.join(ring)} wait for each other", hint="change their depends_on")
    index = {name: number for number, name in enumerate(TopologicalSorter(waiting).static_order())}
    return tuple(Stage(name, members[name], tuple(sorted(index[other] for other in waiting[name]))) for name in index)

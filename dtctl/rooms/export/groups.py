"""Which tasks of a job are pods of one kind: those that differ in their index alone, and equal ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.model import TaskId, grouped
from dtctl.plan import RunPlan, TaskPlan
from dtctl.rooms.export.pods import Template, fitting, on_pods, shared, template_of


@dataclass(frozen=True)
class Group:
    name: str
    """The name of its pods' job."""
    tasks: tuple[TaskPlan, ...]
    template: Template

    @property
    def is_whole(self) -> bool:
        """Whether a pod's index is that of its task."""
        return [task.id.index for task in self.tasks] == list(range(len(self.tasks)))

    @property
    def index(self) -> str | None:
        """The index of its only task, where that is not the pod's."""
        return None if self.is_whole else str(self.tasks[0].id.index)


Address = Callable[[str, int], str]
"""The address of a pod by the name of its group and its index there."""


def grouped_plan(cluster: Cluster, address: Address) -> tuple[RunPlan, list[Group]]:
    """The plan of a cluster with a pod for each task, and its tasks in groups.

    Groups are made from a plan with other addresses: those of the last one have the names of the groups.
    """
    places: dict[TaskId, tuple[str, int]] = {}
    first = on_pods(cluster, lambda task: address(fitting(task.job), task.index))
    for job, tasks in grouped((task.id.job, task) for task in first.tasks).items():
        for group in partition(tasks):
            start = group[0].id.index
            name = fitting(job) if start == 0 else f"{fitting(job)}-{start}"
            places.update({task.id: (name, at) for at, task in enumerate(group)})
    plan = on_pods(cluster, lambda task: address(*places[task]))
    named = grouped((places[task.id][0], task) for task in plan.tasks)
    templates = {name: template_of(tasks) for name, tasks in named.items()}
    assert None not in templates.values(), "addresses differ in nothing but the index"
    return plan, [Group(name, tuple(named[name]), found) for name, found in templates.items() if found is not None]


def partition(tasks: Sequence[TaskPlan]) -> list[list[TaskPlan]]:
    """The first tasks that differ in their index alone, and then groups of equal ones, in the order of the tasks."""
    count = next(n for n in range(len(tasks), 0, -1) if template_of(tasks[:n]) is not None)
    rest: list[list[TaskPlan]] = []
    for task in tasks[count:]:
        group = next((one for one in rest if _equal(one[0], task)), None)
        if group is None:
            rest.append([task])
        else:
            group.append(task)
    return [list(tasks[:count]), *rest]


def _equal(one: TaskPlan, other: TaskPlan) -> bool:
    same = one.argv == other.argv and one.env == other.env and len(one.gpus or ()) == len(other.gpus or ())
    return same and one.decides == other.decides


def differences(tasks: Sequence[TaskPlan], *, without: Sequence[str] = ()) -> Iterator[str]:
    """What differs among tasks of a job, other than by their index, in words."""
    first = tasks[0]
    gpus = sorted({len(task.gpus or ()) for task in tasks})
    if len(gpus) > 1:
        yield f"gpus ({', '.join(map(str, gpus))})"
    if len({len(task.argv) for task in tasks}) > 1:
        yield "the number of words of the command"
    else:
        for at, word in enumerate(first.argv):
            if shared([task.argv[at] for task in tasks]) is None:
                yield f"the word {word.partition('=')[0]} of the command"
    names = dict.fromkeys(name for task in tasks for name in task.env if name not in without)
    for name in names:
        values = [task.env.get(name) for task in tasks]
        if None in values or shared([value or "" for value in values]) is None:
            yield f"the variable {name}"

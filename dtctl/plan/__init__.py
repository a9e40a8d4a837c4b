"""The parts of a plan: the roles of tasks in the runs of a cluster, and the tasks that each spare can take. Pure.

Where a spare may take tasks, marks stand for the addresses that may change during the run.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from dtctl.agent.host.secrets import hide_variable, hide_words
from dtctl.agent.records.values import CODE, HOME, MARK, PATH, PYTHON, address_mark
from dtctl.config.cluster import Cluster
from dtctl.config.strategies import PS, WORKER, Role, Scope, Strategy, role_of, scope_of, serves, strategy_of
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import CHOSEN_PORT, LEAD_JOBS, SuccessRule, TaskId
from dtctl.plan.hosts import Directories, Gpus, visible_gpus

if TYPE_CHECKING:
    from dtctl.agent.records.spec import CoordinatorAddress, Stage


@dataclass(frozen=True)
class RosterEntry:
    """The role of a task in its run: its host, and the effect of its end, loss and success on the others."""

    id: TaskId
    host: str
    role: Role
    scope: Scope
    vital: bool
    """Whether its final failure fails the run."""
    decides: bool
    """Its success is, with that of the others that decide, the run's."""
    serves: bool
    """Whether it never ends by itself: it is stopped after the tasks that it serves."""


@dataclass(frozen=True)
class TaskPlan(RosterEntry):
    """One trainer process: its address, arguments and environment. Strings may hold marks (agent.records.marks)."""

    address: str
    """host:port, as the other tasks reach it."""
    port: int
    gpus: tuple[int, ...] | None
    """Indexes of the host's GPUs that the task sees; None: the host's GPUs are not declared, and none are hidden."""
    argv: tuple[str, ...]
    placed: int
    """How many of its last arguments give the task its place in the cluster."""
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    keep_proxy: bool
    ready: Literal["listening", "started"]
    """When those that wait for it may start: its port listens, or it runs."""


@dataclass(frozen=True)
class Roster:
    """The roles of all tasks in the runs of a cluster: the part of a plan that needs no connections."""

    cluster: Cluster
    tasks: tuple[RosterEntry, ...]
    """The tasks, in the order of the file."""
    lead: TaskId
    success: SuccessRule
    strategy: Strategy

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that have a task, in the order of the file."""
        used = {task.host for task in self.tasks}
        return tuple(name for name in self.cluster.hosts if name in used)

    @property
    def members(self) -> tuple[str, ...]:
        """All hosts of the runs, including those without tasks: spares and arbiters."""
        return *self.hosts, *self.cluster.standby, *self.cluster.arbiters


@dataclass(frozen=True)
class RunPlan(Roster):
    """Everything that one `dtctl up` would start."""

    tasks: tuple[TaskPlan, ...]
    stages: tuple[Stage, ...]
    """The stages of the start, each after the stages that it waits for."""
    coordinator: CoordinatorAddress
    voters: tuple[CoordinatorAddress, ...]
    """Hosts that elect another coordinator when this one is gone; empty where they are too few."""
    needs_checkpoint: bool
    """A ps that is lost takes parameters with it that only a complete checkpoint can bring back."""
    settle_s: float
    target_step: int | None
    dirs: Mapping[str, Directories]
    """The directories by host."""
    checkpoint_dirs: Mapping[str, tuple[str, ...]]
    """The directories of checkpoints on each host, with marks; none if checkpoints are in a storage URL."""

    marked: Mapping[str, tuple[TaskPlan, ...]]
    """Host -> its tasks with marks in place of addresses; empty where no task can move."""
    slots: Mapping[str, Mapping[str, tuple[TaskPlan, ...]]]
    """Spare -> host -> that one's tasks as they would be on the spare, with marks; those that it can take."""
    addresses: Mapping[str, str]
    """Host -> how the others reach it, without a port."""

    def on_host(self, host: str) -> tuple[TaskPlan, ...]:
        return tuple(task for task in self.tasks if task.host == host)

    def may_run(self, host: str) -> tuple[TaskPlan, ...]:
        """The tasks that may run on a host: its own, and for a spare those that it could take; an arbiter has none."""
        return tuple(itertools.chain(self.on_host(host), *self.slots.get(host, {}).values()))


_SHOWN = {HOME: "~", CODE: "{code}", PATH: "$PATH", PYTHON: "python"}


def shown(text: str) -> str:
    """`text` for a person: the marks as the words that stand for them in a plan."""
    for mark, words in _SHOWN.items():
        text = text.replace(mark, words)
    return text


def shown_path(path: str) -> str:
    """A path with marks (`~`, `$HOME`) as a person would type it."""
    return path.replace(HOME, "~").replace(PYTHON, "Python of trainer.environment")


def shown_words(words: Iterable[str]) -> list[str]:
    """The words of a command for a person, without secrets."""
    return [shown(word) for word in hide_words(words)]


def shown_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables for a person, without secrets."""
    return {name: shown(hide_variable(name, value)) for name, value in variables.items()}


def plan_roster(cluster: Cluster) -> Roster:
    """The first half of every plan, and all that is known of a run that another machine has started."""
    strategy, rule = strategy_of(cluster), success_rule(cluster)
    return Roster(
        cluster, tuple(_part(cluster, task, strategy, rule) for task in cluster.tasks()), cluster.lead, rule, strategy
    )


def _part(cluster: Cluster, task: TaskId, strategy: Strategy, rule: SuccessRule) -> RosterEntry:
    role = role_of(task, cluster.lead)
    return RosterEntry(
        id=task,
        host=cluster.host_of(task).name,
        role=role,
        scope=scope_of(role, strategy, cluster.recovery),
        vital=role != "evaluator",
        decides=decides(task, cluster.lead, rule),
        serves=serves(role, strategy),
    )


_STEP_FLAG = re.compile(
    r"(?:--?|(?=[\w.]+=))(?:train(?:er|ing)?\.)?"
    r"(?:target[-_]steps?|(?:num[-_]|max[-_]|total[-_])?train(?:ing)?[-_](?:steps|iters)|"
    r"(?:max|total)[-_](?:steps|iters)|total[-_]timesteps)(?:=(?P<value>.*))?"
)
"""The names of TensorFlow, Hugging Face, Lightning (`--trainer.max_steps`), Megatron-LM, and Hydra (`NAME=VALUE`)."""


def success_rule(cluster: Cluster) -> SuccessRule:
    """The lead decides where parameters live on ps; collectives need every worker to finish."""
    if cluster.success != "auto":
        return cluster.success
    return "lead" if PS in cluster.jobs or WORKER not in cluster.jobs else "all-workers"


def decides(task: TaskId, lead: TaskId, rule: SuccessRule) -> bool:
    """Its success is, with that of the others that decide, the run's."""
    return task == lead or (rule == "all-workers" and task.job in (WORKER, *LEAD_JOBS))


def known_target_step(cluster: Cluster) -> int | None:
    """The step that a complete training reaches, as the file or the lead's words say; None: they do not."""
    if cluster.target_step is not None:
        return cluster.target_step
    launch = cluster.jobs[cluster.lead.job].launch
    for argument, following in itertools.pairwise((*launch.command, *launch.args, "")):
        flag = _STEP_FLAG.fullmatch(argument)
        if flag is not None:
            text = following if flag["value"] is None else flag["value"]
            return int(text) if text.isascii() and text.isdecimal() else None
    return None


def restoring_hosts(roster: Roster) -> tuple[str, ...]:
    """The lead's host first, as the lead looks for the newest one.

    With parameters on ps tasks each of those restores its own, from the same files (RestoreV2 runs on the device of
    its variable); where all train alike each restores all.
    """
    lead = next(part.host for part in roster.tasks if part.id == roster.lead)
    return tuple(dict.fromkeys([lead, *(part.host for part in roster.tasks if _restores(part, roster.strategy))]))


def _restores(part: RosterEntry, strategy: Strategy) -> bool:
    if strategy.keeps_parameters_on_ps:
        return part.role == "ps"
    return strategy in (Strategy.COLLECTIVE, Strategy.KVSTORE) and part.role == "worker"


@dataclass(frozen=True)
class Slot:
    """The tasks of a host as they would be on a spare."""

    ports: Mapping[TaskId, int]
    gpus: Gpus
    """The GPUs of all tasks of the cluster, as they would be with these tasks on the spare."""


def slots_on(cluster: Cluster, spare: str, gpus: Gpus, taken: Collection[int]) -> Mapping[str, Slot]:
    """Host -> slot of its tasks on the spare; only hosts for whose tasks the spare has enough GPUs.

    `taken`: ports in use there. No two tasks have the same port there, so it can take the tasks of several hosts.
    """
    used = set(taken)
    slots: dict[str, Slot] = {}
    for host in dict.fromkeys(host for job in cluster.jobs.values() for host in job.hosts):
        there = _gpus_there(cluster, host, spare, gpus)
        if there is not None:
            tasks = [task for task in cluster.tasks() if cluster.host_of(task).name == host]
            slots[host] = Slot({task: _free(cluster.jobs[task.job].ports[task.index], used) for task in tasks}, there)
    return slots


def _gpus_there(cluster: Cluster, host: str, spare: str, gpus: Gpus) -> Gpus | None:
    own, other = cluster.hosts[host], cluster.hosts[spare]
    if (own.gpus, own.gpu_numbers) == (other.gpus, other.gpu_numbers):
        return gpus
    try:
        return visible_gpus(exchanged(cluster, host, spare))
    except PreflightError:  # too few
        return None


def exchanged(cluster: Cluster, old: str, new: str) -> Cluster:
    """The values with every `old` replaced by `new`."""
    jobs = {
        name: dataclasses.replace(job, hosts=tuple(new if host == old else host for host in job.hosts))
        for name, job in cluster.jobs.items()
    }
    return dataclasses.replace(cluster, jobs=jobs)


def _free(wanted: int, used: set[int]) -> int:
    """The port itself, or the next one that is not used; the hosts may still have to choose it."""
    if wanted == CHOSEN_PORT:
        return wanted
    port = next(port for port in itertools.chain(range(wanted, 65536), range(1024, wanted)) if port not in used)
    used.add(port)
    return port


_PLACE = re.compile(r"\0HOST\(([\w.-]+)/(\d+)\)(?::\0PORT\(([\w.-]+)/(\d+)\))?|\0PORT\(([\w.-]+)/(\d+)\)")


def marked_spec(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The addresses of all tasks as they stand in the words of a plan until `with_marks` has seen them.

    They split at their last colon, and those of one host have the same beginning, as those of addresses.
    """
    first: dict[str, TaskId] = {}
    for task in cluster.tasks():
        first.setdefault(cluster.host_of(task).name, task)
    return {
        job.name: tuple(
            f"\0HOST({first[host].job}/{first[host].index}):\0PORT({job.name}/{index})"
            for index, host in enumerate(job.hosts)
        )
        for job in cluster.jobs.values()
    }


def with_marks(text: str) -> str:
    """The text with the marks that the agents replace (agent/run/environment.py)."""
    return _PLACE.sub(_mark, text)


def named_by_others(words: Mapping[str, Collection[str]]) -> set[str]:
    """Tasks whose addresses others are started with. `words`: of each task."""
    found: dict[str, frozenset[str]] = {}
    named: set[str] = set()
    for task, texts in words.items():
        for text in filter(has_address, texts):
            if text not in found:
                marks = [mark.group(3) or mark.group(5) for mark in MARK.finditer(text)]
                listed = [word for word in words if word.partition(":")[0] in marks]
                found[text] = frozenset([*(mark for mark in marks if mark and ":" in mark), *listed])
            named |= found[text] - {task}
    return named


def has_address(text: str) -> bool:
    """Whether it has a mark that only the run can replace."""
    return re.search(r"\0(?!HOME|CODE|PATH|PYTHON)", text) is not None


def _mark(found: re.Match[str]) -> str:
    host, host_index, at, at_index, port, port_index = found.groups()
    if at is not None:
        return address_mark(f"{at}:{at_index}")
    if port is not None:
        return address_mark(f"{port}:{port_index}", "PORT")
    return address_mark(f"{host}:{host_index}", "HOST")

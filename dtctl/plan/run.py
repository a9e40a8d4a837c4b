"""Turns a Cluster into a plan of all that `up` would start: each task's address, arguments and environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from graphlib import TopologicalSorter

from dtctl.agent.records.spec import FEWEST_VOTERS, MOST_VOTERS, CoordinatorAddress, Stage, batch_share
from dtctl.agent.records.values import INDEX, PATH, PYTHON, job_mark, paths_of
from dtctl.config.cluster import Cluster, Launch
from dtctl.config.strategies import EVALUATOR, PS, Role, Strategy, circle, parties, resizes, settle_s, trainers, waits
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import CHOSEN_PORT, DIRECTORY_NAMES, Host, TaskId, grouped
from dtctl.plan import (
    Roster,
    RosterEntry,
    RunPlan,
    Slot,
    TaskPlan,
    known_target_step,
    marked_spec,
    plan_roster,
    slots_on,
    with_marks,
)
from dtctl.plan.dialects import (
    VARIABLES,
    ClusterSpec,
    RankLayout,
    TfConfigs,
    fill,
    listed,
    placement_arguments,
    placement_env,
)
from dtctl.plan.hosts import (
    LOOPBACK,
    Directories,
    Gpus,
    checkpoint_places,
    data_place,
    dealt,
    directories,
    join_address,
    on_host,
    visible_gpus,
)


def plan_run(cluster: Cluster, hostnames: Mapping[str, str], *, local_python: str) -> RunPlan:
    """The plan of everything that `up` would start.

    `hostnames` holds the name that SSH connects to for each host without an `address` of its own; `local_python` is the
    interpreter of this machine's trainers where the file names none.
    """
    roster = plan_roster(cluster)
    addresses = {name: _address(host, cluster, hostnames) for name, host in cluster.hosts.items()}
    spec = {
        job.name: tuple(join_address(addresses[host], port) for host, port in zip(job.hosts, job.ports, strict=True))
        for job in cluster.jobs.values()
    }
    gpus = visible_gpus(cluster)
    dirs = {name: directories(cluster, host) for name, host in cluster.hosts.items()}
    planner = _Planner(roster, _Shared(cluster, spec), dirs, local_python)
    tasks = tuple(planner.task(part, gpus, cluster.jobs[part.id.job].ports[part.id.index]) for part in roster.tasks)
    voting = voters(cluster, addresses)
    marked, slots = planner.movable(gpus, voting)
    checkpoint_dirs = {name: tuple(paths_of(checkpoint_places(cluster, each))) for name, each in dirs.items()}
    return RunPlan(
        cluster=cluster,
        tasks=tasks,
        lead=roster.lead,
        success=roster.success,
        strategy=roster.strategy,
        stages=stages(cluster),
        coordinator=voting[0],
        voters=voting if len(voting) >= FEWEST_VOTERS else (),
        needs_checkpoint=roster.strategy.keeps_parameters_on_ps
        and PS in cluster.jobs
        and bool(checkpoint_dirs[voting[0]["host"]])
        and not cluster.recovery.allow_scratch,
        settle_s=settle_s(cluster),
        target_step=known_target_step(cluster),
        dirs=dirs,
        checkpoint_dirs=checkpoint_dirs,
        marked=marked,
        slots=slots,
        addresses=addresses,
    )


def voters(cluster: Cluster, addresses: Mapping[str, str]) -> tuple[CoordinatorAddress, ...]:
    """The lead's host, and others that could coordinate in its place: machines of their own, as far as is known.

    Four survive the loss of no more than three do: then the last spare does not vote, so that it may be gone, too.
    """
    lead, *hosts = dict.fromkeys(cluster.host_of(task).name for task in (cluster.lead, *cluster.tasks()))
    every = [lead, *cluster.arbiters, *hosts, *cluster.standby]
    machines = {addresses[name]: name for name in reversed(every)}
    names = [name for name in every if machines[addresses[name]] == name][:MOST_VOTERS]
    if len(names) % 2 == 0 and names[-1] in cluster.standby:
        del names[-1]
    return tuple(_listener(cluster, name, addresses[name]) for name in names)


def _listener(cluster: Cluster, name: str, address: str) -> CoordinatorAddress:
    """The address on which a voter listens: the coordinator's port, or the next one that no task of the host has."""
    port = cluster.voter_ports.get(name, cluster.coordinator_port)
    tasks = {job.ports[index] for job in cluster.jobs.values() for index, host in enumerate(job.hosts) if host == name}
    while port != CHOSEN_PORT and port in tasks:
        port += 1
    return {"host": name, "address": join_address(address, port), "port": port}


@dataclass(frozen=True)
class _Shared:
    """The values that all tasks share, computed once: each of a thousand tasks has the addresses of all."""

    cluster: Cluster
    spec: ClusterSpec
    resizes: bool = False
    """Lists and numbers are marks: who takes part is known when an attempt begins."""

    @cached_property
    def listed(self) -> ClusterSpec:
        return listed(self.spec) if self.resizes else self.spec

    @cached_property
    def lists(self) -> Mapping[str, str]:
        return {f"{name}_hosts": ",".join(addresses) for name, addresses in self.listed.items()}

    @cached_property
    def trainers(self) -> list[str]:
        return list(map(str, trainers(self.cluster)))

    def numbers(self, task: TaskId) -> Mapping[str, str]:
        """Fields that depend on who takes part."""
        batch, ranks = self.cluster.trainer.global_batch, self.trainers
        if self.resizes:
            own = {} if batch is None else {"batch_per_worker": f"\0BATCH({batch})"}
            return {"task_index": INDEX, "num_tasks": job_mark(task.job, "COUNT"), "num_workers": "\0SIZE", **own}
        own = {} if batch is None else {"batch_per_worker": str(batch_share(batch, str(task), ranks))}
        count = len(self.cluster.jobs[task.job].hosts)
        return {"task_index": str(task.index), "num_tasks": str(count), "num_workers": str(len(ranks)), **own}

    @cached_property
    def flagged(self) -> ClusterSpec:
        """Flags name no evaluator: it reads checkpoints and connects to no task."""
        return {name: addresses for name, addresses in self.listed.items() if name != EVALUATOR}

    @cached_property
    def tf_configs(self) -> TfConfigs:
        return TfConfigs(self.listed, self.cluster.lead, self.cluster.tf_config, self.resizes)

    @cached_property
    def sharers(self) -> tuple[TaskId, ...]:
        return dealt(self.cluster)

    @cached_property
    def ranks(self) -> RankLayout:
        return RankLayout.of(self.cluster, self.spec, resizes=self.resizes)

    @cached_property
    def hosts(self) -> str:
        return ",".join(sorted({a.rpartition(":")[0] for row in self.spec.values() for a in row}))


@dataclass(frozen=True)
class _Planner:
    """Plans the tasks of a roster, where they are and where they could be."""

    roster: Roster
    shared: _Shared
    dirs: Mapping[str, Directories]
    local_python: str

    def task(self, part: RosterEntry, gpus: Gpus, port: int) -> TaskPlan:
        """The plan of one task, on the host of `part`."""
        cluster, shared, task = self.roster.cluster, self.shared, part.id
        job, host, spec, dirs = cluster.jobs[task.job], cluster.hosts[part.host], shared.spec, self.dirs[part.host]
        address, lead = spec[task.job][task.index], spec[self.roster.lead.job][self.roster.lead.index]
        own = gpus[task]
        fields = {
            **shared.lists,
            "job_name": task.job,
            **shared.numbers(task),
            "task": str(task),
            "address": address,
            "host": address.rpartition(":")[0],
            "port": address.rpartition(":")[2],
            "lead_host": lead.rpartition(":")[0],
            "lead_port": lead.rpartition(":")[2],
            "num_gpus": str(len(own or ())),
            "cluster": cluster.name,
            **{f"{name}_dir": dirs[name] for name in DIRECTORY_NAMES if name in dirs},
            **_own_data(cluster, host, task, shared.sharers),
        }
        launch = job.launch
        command = _with_interpreter(launch.command, _interpreter(cluster, host, self.local_python))
        placed = placement_arguments(launch, task, shared.flagged, fields)
        own_arguments = (fill(argument, fields) for argument in (*command, *launch.args))
        return TaskPlan(
            **vars(part),
            address=address,
            port=port,
            gpus=own,
            argv=(*own_arguments, *platform_arguments(launch, fields), *placed),
            placed=len(placed),
            env=_environment(shared, host, task, launch, gpus, fields),
            secrets=cluster.trainer.secrets,
            keep_proxy=cluster.trainer.keep_proxy,
            ready="listening" if _listens(part.role, self.roster.strategy, launch, cluster) else "started",
        )

    def movable(
        self, gpus: Gpus, voting: tuple[CoordinatorAddress, ...]
    ) -> tuple[dict[str, tuple[TaskPlan, ...]], dict[str, dict[str, tuple[TaskPlan, ...]]]]:
        """`marked` and `slots` of RunPlan: tasks of each host and those that each spare can take, with marks."""
        cluster = self.roster.cluster
        if not cluster.standby and not resizes(cluster) and len(voting) < FEWEST_VOTERS:
            return {}, {}  # no host can join later, either
        planner = dataclasses.replace(self, shared=_Shared(cluster, marked_spec(cluster), resizes(cluster)))
        parts = grouped((part.host, part) for part in self.roster.tasks)

        def planned(host: str, on: str, slot: Slot) -> tuple[TaskPlan, ...]:
            moved = (dataclasses.replace(part, host=on) for part in parts[host])
            return tuple(_with_marks(planner.task(part, slot.gpus, slot.ports[part.id])) for part in moved)

        here = Slot({task: cluster.jobs[task.job].ports[task.index] for task in cluster.tasks()}, gpus)
        own = {host: planned(host, host, here) for host in parts}
        slots = {}
        for spare in cluster.standby:
            taken = {voter["port"] for voter in voting if voter["host"] == spare}
            found = slots_on(cluster, spare, gpus, taken)
            slots[spare] = {host: planned(host, spare, slot) for host, slot in found.items()}
        return own, slots


def _with_marks(task: TaskPlan) -> TaskPlan:
    env = {name: with_marks(value) for name, value in task.env.items()}
    return dataclasses.replace(task, argv=tuple(map(with_marks, task.argv)), env=env)


def _own_data(cluster: Cluster, host: Host, task: TaskId, sharers: tuple[TaskId, ...]) -> Mapping[str, str]:
    """The field `data_dir` of a task if files are sharded: each task then has its own directory."""
    place = data_place(cluster, host, task, sharers) if sharers else None
    return {"data_dir": place.directory} if place is not None else {}


def _listens(role: Role, strategy: Strategy, launch: Launch, cluster: Cluster) -> bool:
    """Whether the task is known to open a server of TensorFlow's on its port."""
    if launch.dialect not in ("tensorflow", "flags", "tf_config") or cluster.strategy in ("ddp", "kvstore"):
        return False
    if role == "lead":
        # The lead of these connects to the servers of the others, and has no server itself, or no task to serve.
        return strategy not in (Strategy.IN_GRAPH, Strategy.PS_STRATEGY, Strategy.SINGLE)
    return role != "evaluator"


def _environment(
    shared: _Shared,
    host: Host,
    task: TaskId,
    launch: Launch,
    gpus: Gpus,
    fields: Mapping[str, str],
) -> Mapping[str, str]:
    """The variables that dtctl sets, overridden by those of the file."""
    # A hung trainer can be asked for its stack through its fault handler.
    env = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    cluster = shared.cluster
    env |= placement_env(launch, task, shared.tf_configs)
    if launch.dialect in VARIABLES:
        env |= VARIABLES[launch.dialect](task, dataclasses.replace(shared.ranks, gpus=gpus))
    env |= platform_env(launch, fields)
    own = gpus[task]
    if own is not None:
        # An empty value would do for CUDA, but some shells and schedulers drop empty variables; -1 is understood too.
        # These are the driver's numbers, by which agents know who uses which GPU; CUDA's own begin with the fastest.
        env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if own else {}
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, own)) or "-1"
    if cluster.trainer.venv is not None:
        venv = on_host(cluster.trainer.venv, cluster.name)
        env |= {"VIRTUAL_ENV": venv, "PATH": f"{venv}/bin:{PATH}"}
    if cluster.trainer.keep_proxy:
        # gRPC would send the traffic between tasks through the proxy, too (grpc/doc/environment_variables.md).
        env["no_grpc_proxy"] = shared.hosts
    return {**env, **{name: fill(value, fields) for name, value in {**launch.env, **host.env}.items()}}


def _interpreter(cluster: Cluster, host: Host, local_python: str) -> str:
    if cluster.trainer.environment is not None:
        return PYTHON
    if python := host.python or cluster.trainer.python:
        return on_host(python, cluster.name) if "/" in python else python
    if cluster.trainer.venv is not None:
        return on_host(cluster.trainer.venv, cluster.name) + "/bin/python"
    return local_python if host.is_local else "python3"


def _with_interpreter(command: tuple[str, ...], python: str) -> tuple[str, ...]:
    """`python` or `python3` at the head of a command means the run's interpreter; any other program stays itself."""
    return (python, *command[1:]) if command[0] in ("python", "python3") else command


def _address(host: Host, cluster: Cluster, hostnames: Mapping[str, str]) -> str:
    if host.address is not None:
        return host.address
    if not host.is_local:
        return hostnames[host.name]
    if all(other.is_local for other in cluster.hosts.values()):
        return LOOPBACK
    raise PreflightError(
        f"host {host.name} is local, but the cluster has hosts elsewhere, which need an address for it",
        hint=f"add an address to it in {cluster.file}, as the others reach this machine",
    )


def platform_arguments(launch: Launch, fields: Mapping[str, str]) -> tuple[str, ...]:
    """The flags of `platform`, without those that the trainer's own arguments set."""
    own = {argument.partition("=")[0] for argument in launch.args}
    names = [name for name in launch.platform if name.islower() and f"--{name}" not in own]
    return tuple(f"--{name}={_value(name, fields)}" for name in names)


def platform_env(launch: Launch, fields: Mapping[str, str]) -> Mapping[str, str]:
    return {name: _value(name.lower(), fields) for name in launch.platform if name.isupper()}


def _value(name: str, fields: Mapping[str, str]) -> str:
    return fields["num_gpus" if name == "num_gpu" else name]


def stages(cluster: Cluster) -> tuple[Stage, ...]:
    """A stage for each party of the run, behind those that it waits for."""
    waiting, members = waits(cluster), parties(cluster)
    if ring := circle(waiting):
        raise PreflightError(f"{' and '.join(ring)} wait for each other", hint="change their depends_on")
    index = {name: number for number, name in enumerate(TopologicalSorter(waiting).static_order())}
    return tuple(
        {
            "name": name,
            "tasks": list(map(str, members[name])),
            "after": sorted(index[other] for other in waiting[name]),
            "held": bool(waiting[name]) and cluster.jobs[members[name][0].job].depends_on is not None,
        }
        for name in index
    )

"""Adds hosts that are new in the cluster file to the live run, as spares: its tasks keep their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from dtctl.agent.records.answers import JoinResult, Prepared
from dtctl.agent.records.kinds import made
from dtctl.agent.records.spec import Inventory, Moved, Spare, hosts_of, inventory_of
from dtctl.agent.run import gang
from dtctl.bundle import FileEntry
from dtctl.config.checks import auto_replace_s
from dtctl.config.cluster import Cluster, Job
from dtctl.config.ranges import fold
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, PreflightError
from dtctl.model import CHOSEN_PORT, Host, TaskId
from dtctl.operations.client import Progress, Report, Request, about, controller_name, reporting_failure
from dtctl.operations.client.plausible import check_inventory
from dtctl.operations.coordinator import ask_run, coordinator_away
from dtctl.operations.credentials import Authority
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.sending import sender
from dtctl.operations.up import readying
from dtctl.operations.up.growing import grown, tasks_of, with_free_ports
from dtctl.operations.up.launch import Start, up_request
from dtctl.plan import RunPlan
from dtctl.plan.spec import digest, spare_of
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Session, Transport
from dtctl.transport.wire import untrue

_ASK_S = 60.0


class Keys(Protocol):
    """The authorities of runs that this machine has started."""

    def authority_of(self, run: str) -> Authority | None: ...


@dataclass(frozen=True)
class Addition:
    """Hosts to add to a live run; `before` is the start by which the run was made, as far as the file still has it."""

    before: Start
    known: JoinResult
    cluster: Cluster
    """That of `before`, with the hosts as spares."""
    hosts: tuple[str, ...]
    """Those that have not joined yet."""
    places: Mapping[str, int]
    """Job -> the number of its tasks in the file, where the run has fewer."""
    grown: Cluster
    """That of `before`, with the tasks that the hosts add."""
    tasks: Mapping[str, tuple[TaskId, ...]]
    """Host -> the tasks that it adds."""


def new_in_file(cluster: Cluster, known: Collection[str]) -> tuple[str, ...]:
    """Hosts that the file gives tasks, or a part as spares, and that are not among the known ones."""
    named = [*(host for job in cluster.jobs.values() for host in job.hosts), *cluster.spares]
    return tuple(host for host in dict.fromkeys(named) if host not in known)


def without_hosts(cluster: Cluster, new: Collection[str], *, listed: bool = False) -> Cluster | None:
    """The cluster as it was before these hosts were written into it; None if it cannot have been without them.

    `listed`: the hosts stay under `hosts:`, where they had neither tasks nor a part before.
    """
    jobs = {name: _without(job, new) for name, job in cluster.jobs.items()}
    if not all(job.hosts for job in jobs.values()) or not set(new).isdisjoint(cluster.arbiters):
        return None
    hosts = {name: host for name, host in cluster.hosts.items() if listed or name not in new}
    spares = tuple(host for host in cluster.spares if host not in new)
    recovery = cluster.recovery if spares else dataclasses.replace(cluster.recovery, replace_s=None)
    return dataclasses.replace(cluster, jobs=jobs, hosts=hosts, spares=spares, recovery=recovery)


def _without(job: Job, new: Collection[str]) -> Job:
    kept = [index for index, host in enumerate(job.hosts) if host not in new]
    replicas = job.replicas if job.replicas is not None and job.replicas < len(kept) else None
    hosts, ports = [job.hosts[index] for index in kept], [job.ports[index] for index in kept]
    return dataclasses.replace(job, hosts=tuple(hosts), ports=tuple(ports), replicas=replicas)


def addition(launch: Start, live: RunRecord, transport: Transport) -> Addition | None:
    """What the file adds to its live run; None if it differs from the run in anything but new hosts.

    Hosts that have joined before are among those that the file adds. Raises PreflightError for a run that no host can
    join.
    """
    cluster = launch.plan.cluster
    if launch.record.is_local or launch.replan is None or not set(live.hosts) & set(launch.record.hosts):
        return None
    known = _ask(live, transport, file=_path_in_code(launch))
    begun_with = set(hosts_of(known["inventory"])) - set(known["inventory"]["moved"]["joined"])
    new = new_in_file(cluster, begun_with)
    candidates = _candidates(cluster, new) if _has_same_code(launch, known) else []
    before = next((one for one in candidates if _digest(launch, one, known["bundle"]) == known["digest"]), None)
    if before is None or not new:
        return None
    joined = set(known["inventory"]["moved"]["joined"]) - set(known["awaited"])
    hosts = tuple(host for host in new if host not in joined)
    if hosts and not (known["movable"] and known["inventory"]["voting"]):
        why = (
            "it has too few hosts to elect a coordinator, without which no spare takes a place"
            if known["movable"]
            else "its tasks were started with fixed addresses"
        )
        raise _refusal(hosts, live, why)
    plan = launch.replan(before)
    record = dataclasses.replace(record_of(plan, launch.record.run, launch.record.created), revision=live.revision)
    start = dataclasses.replace(
        launch, plan=plan, record=record, digest=known["digest"], replace=False, inspect=None, allow_missing=None
    )
    spares = tuple(dict.fromkeys([*before.spares, *new]))
    replace_s = known["replace_s"] or cluster.recovery.replace_s or auto_replace_s(cluster)
    recovery = dataclasses.replace(before.recovery, replace_s=replace_s)
    every = {**before.hosts, **{host: cluster.hosts[host] for host in new}}
    extended = dataclasses.replace(before, hosts=every, spares=spares, recovery=recovery)
    more = grown(cluster, before, known["inventory"], hosts)
    counts = {name: len(job.hosts) for name, job in more.jobs.items()}
    places = {name: len(job.hosts) for name, job in cluster.jobs.items() if len(job.hosts) > counts[name]}
    return Addition(start, known, extended, hosts, places, more, tasks_of(more, hosts))


def _candidates(cluster: Cluster, new: Collection[str]) -> list[Cluster]:
    found = (without_hosts(cluster, new, listed=listed) for listed in (False, True))
    return [one for one in found if one is not None]


def _digest(launch: Start, cluster: Cluster, bundle: str | None) -> str:
    return digest(cluster, bundle, launch.content.wheels)


def _path_in_code(launch: Start) -> str | None:
    """The path of the cluster file among the files that are sent."""
    file, code = launch.plan.cluster.file.absolute(), launch.bundle.root
    path = file.relative_to(code).as_posix() if file.is_relative_to(code) else None
    return path if any(one.path == path for one in launch.bundle.manifest.files) else None


def _has_same_code(launch: Start, known: JoinResult) -> bool:
    """Whether the code is the run's, but for the cluster file, which may be among it."""
    manifest, path, file = launch.bundle.manifest, _path_in_code(launch), known["file"]
    if path is not None and file is not None:
        before = FileEntry(path, file["mode"], file["size"], file["sha256"])
        manifest = dataclasses.replace(
            manifest, files=tuple(before if one.path == path else one for one in manifest.files)
        )
    return manifest.id == known["bundle"]


def _refusal(hosts: Collection[str], live: RunRecord, why: str) -> PreflightError:
    return PreflightError(
        f"{fold(hosts)} cannot join run {live.run}",
        detail=why,
        hint="dtctl up --replace    stops it and starts again with all hosts",
    )


def _ask(
    live: RunRecord,
    transport: Transport,
    joins: Mapping[str, Spare] = {},
    replace_s: float | None = None,
    *,
    file: str | None = None,
) -> JoinResult:
    """Asks the coordinator, or adds hosts. Raises as `ask_run`."""

    def check(host: Host, answer: JoinResult) -> None:
        check_inventory(answer["inventory"], live.cluster, answer["run"])
        hosts = set(hosts_of(answer["inventory"]))
        for place in (answer["coordinator"], *answer["voters"]):
            if place["host"] not in hosts:
                raise untrue(host.name, f"names {place['host']}, which has no part in run {answer['run']}")

    fields = {"joins": joins, "replace_s": replace_s, "file": file, "by": controller_name()}
    wanted = Request("join", JoinResult, lambda _: fields, check, _ASK_S)

    def ask(record: RunRecord, _: Mapping[str, Any]) -> JoinResult:
        host = record.route_to(record.coordinator)
        try:
            with closing(transport.open(host)) as session:
                return wanted.put(record, session)
        except DtctlError as error:
            raise coordinator_away(host.name, error) from error

    return ask_run(live, transport, ask)[1]


class Adding:
    """The conversations with the hosts that join. A failure of one of them does not affect the others, or the run."""

    def __init__(
        self, adding: Addition, live: RunRecord, authority: Authority, transport: Transport, report: Report
    ) -> None:
        assert adding.before.replan is not None
        self._adding = adding
        self._live = live
        self._transport = transport
        self._report = report
        self._plan = _as_in_the_run(adding.before.replan(_with_ports(adding.cluster, adding.known)), adding.known)
        run, inventory = adding.known["run"], adding.known["inventory"]
        begun = record_of(self._plan, run, inventory["created"])
        added = {task: host for host, tasks in adding.tasks.items() for task in tasks}
        record = dataclasses.replace(
            begun,
            roster={**begun.roster, **added},
            replaced=inventory["replaced"],
            revision=adding.before.record.revision,
        )
        self._launch = dataclasses.replace(
            adding.before, plan=self._plan, record=record, authority=authority, wheels=None
        )
        self._grown = self._with_tasks()
        self._spares: dict[str, Spare] = {}
        self._sender = sender(adding.before.bundle, record)
        self.errors: dict[str, DtctlError] = {}

    def _with_tasks(self) -> Start:
        """The start of a run that has the tasks of the hosts, too."""
        assert self._adding.before.replan is not None
        joined = self._adding.known["inventory"]["moved"]["joined"]
        taken = {host: _ports(spare_of(self._plan, host)) for host in self._adding.tasks if host not in joined}
        if not self._adding.tasks:
            return self._launch
        voters = {one["host"]: one["port"] for one in self._adding.known["voters"]}
        every = {host: {*ports, voters.get(host, 0)} for host, ports in taken.items()}
        cluster = with_free_ports(_with_ports(self._adding.grown, self._adding.known), every)
        plan = _as_in_the_run(self._adding.before.replan(cluster), self._adding.known)
        return dataclasses.replace(self._launch, plan=plan)

    def add(self) -> tuple[str, ...]:
        """Prepares the hosts, lets the coordinator add them, and starts their agents. Returns those that joined."""
        sessions: dict[str, Session] = {}
        hosts = [self._plan.cluster.hosts[name] for name in self._adding.hosts]
        try:
            ready = self._each(hosts, lambda host: self._prepare(host, sessions))
            joins = {host.name: self._spares[host.name] for host in ready}
            waiting = self._adding.known["inventory"]["moved"]["joined"]
            if joins.keys() - waiting.keys():
                _ask(self._live, self._transport, joins, self._plan.cluster.recovery.replace_s)
            return tuple(host.name for host in self._each(ready, lambda host: self._start(sessions[host.name])))
        finally:
            for session in sessions.values():
                session.close()
            self._sender.close()

    def _each(self, hosts: Sequence[Host], work: Callable[[Host], object]) -> list[Host]:
        outcomes = fan_out(hosts, reporting_failure(work, self._report))
        self.errors.update(outcomes.errors)
        return [host for host in hosts if host.name in outcomes.results]

    def _prepare(self, host: Host, sessions: dict[str, Session]) -> Prepared:
        self._report(Progress(host.name, "connect"))
        session = sessions[host.name] = self._transport.open(host)
        live = self._adding.known["inventory"]
        asked = up_request(self._launch, host, live["absent"])
        of_the_run = {name: live[name] for name in ("settings", "revision", "hold_s", "replicas")}
        spare = spare_of(self._plan, host.name)
        asked["spec"]["roster"] = gang.with_added(asked["spec"]["roster"], live["moved"])
        if host.name in self._adding.tasks:
            spec = up_request(self._grown, host, live["absent"])["spec"]
            own = {str(task) for task in self._adding.tasks[host.name]}
            spare["tasks"] = [member for member in spec["roster"] if member["task"] in own]
            asked["spec"]["tasks"] = [task for task in spec["tasks"] if task["id"] in own]
        spare = live["moved"]["joined"].get(host.name, spare)
        joined = {**live["moved"]["joined"], host.name: spare}
        moved = made(Moved, joined=joined)
        self._check_same(host, {**asked["spec"], **of_the_run, "tasks": []})
        roster = gang.with_added(asked["spec"]["roster"], moved)
        spares = {**asked["spec"]["spares"], host.name: spare}
        asked["spec"] = {**asked["spec"], **of_the_run, "moved": moved, "roster": roster, "spares": spares}
        self._spares[host.name] = spare
        return readying.prepared(session, asked, self._sender, self._report, self._launch.record)

    def _start(self, session: Session) -> None:
        session.send({"type": "start"})
        readying.started(session, self._report, self._launch.record, self._adding.known["run"])
        readying.kept(session, self._report, self._launch.record, self._adding.known["run"])
        self._report(Progress(session.host.name, "started"))

    def _check_same(self, host: Host, spec: Any) -> None:
        """Raises PreflightError if the file, as read here, gives the run's tasks other addresses than they have."""
        expected = self._adding.known["inventory"]
        moved = {member["task"] for member in expected["roster"] if member["slot"]}
        with about(self._live.coordinator, "reports another run than its own"):
            check_inventory(expected, spec["cluster"], self._adding.known["run"])
        if _comparable(inventory_of(spec), moved) != _comparable(expected, moved):
            raise PreflightError(
                f"{host.name} cannot join: the tasks of {expected['run']} have other addresses there than in this file",
                detail="names of hosts in ~/.ssh/config count as well, where hosts.NAME.address is not set",
                hint="run it where the run was started, or restart: dtctl up --replace",
            )


def _comparable(inventory: Inventory, moved: Collection[str]) -> Mapping[str, object]:
    """What is the same for all hosts of a run, wherever its tasks are."""
    roster = [
        {
            **member,
            "host": member["slot"] or member["host"],
            "slot": None,
            "address": None if member["task"] in moved else member["address"],
        }
        for member in inventory["roster"]
    ]
    names = ("cluster", "run", "lead", "success", "fail_fast", "strategy", "arbiters", "resizes", "min_workers")
    return {**{name: inventory[name] for name in names}, "roster": roster}  # type: ignore[literal-required]


def _ports(spare: Spare) -> set[int]:
    """The ports that tasks would have there."""
    texts = ((address or "").rpartition(":")[2] for address in spare["addresses"].values())
    return {int(text) for text in texts if text.isdecimal()}


def _with_ports(cluster: Cluster, known: JoinResult) -> Cluster:
    """The cluster with the ports that the run's hosts have chosen."""
    members = {TaskId.parse(one["task"]): one for one in known["inventory"]["roster"]}

    def port(task: TaskId, configured: int) -> int:
        member = members.get(task)
        text = (member["address"] or "").rpartition(":")[2] if member is not None else ""
        is_known = member is not None and (configured == CHOSEN_PORT or not member["slot"])
        return int(text) if is_known and text.isdecimal() else configured

    jobs = {
        name: dataclasses.replace(
            job, ports=tuple(port(TaskId(name, index), configured) for index, configured in enumerate(job.ports))
        )
        for name, job in cluster.jobs.items()
    }
    voting = {place["host"]: place["port"] for place in known["voters"]}
    return dataclasses.replace(cluster, jobs=jobs, coordinator_port=known["coordinator"]["port"], voter_ports=voting)


def _as_in_the_run(plan: RunPlan, known: JoinResult) -> RunPlan:
    """The plan with the coordinator and the voters of the run, of which a host that joins later is none."""
    return dataclasses.replace(plan, coordinator=known["coordinator"], voters=tuple(known["voters"]))


def add_hosts(
    adding: Addition, live: RunRecord, transport: Transport, report: Report, keys: Keys
) -> tuple[tuple[str, ...], Mapping[str, DtctlError]]:
    """The hosts that have joined, and why others have not."""
    if not adding.hosts:
        return (), {}
    run = adding.known["run"]
    authority = keys.authority_of(run)
    if authority is None:
        raise PreflightError(
            f"{fold(adding.hosts)} cannot join run {run} from this machine",
            detail="the key with which certificates for its hosts are signed is on the machine that started it",
            hint="dtctl up    on that machine; or here: dtctl up --replace",
        )
    one = Adding(adding, live, authority, transport, report)
    return one.add(), one.errors

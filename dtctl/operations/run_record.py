"""The facts about a run that need no host: where its tasks are and how the hosts are reached.

How a host is reached is never learnt from a host: it is said by the cluster file, the command line, or the record that
this machine made of the run when it started it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.agent.records.spec import Inventory, hosts_of
from dtctl.agent.records.values import urls_of
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.folder import read_regular
from dtctl.model import Host, Local, OtherTransport, Reach, Revision, SshSettings, SuccessRule, TaskId

if TYPE_CHECKING:
    from dtctl.config.cluster import Cluster
    from dtctl.plan import Roster


RECORD_VERSION = 1

AWAY_CONNECT_S = 2.0
"""The time for a connection to a host that its coordinator reports as away."""

_PLAIN = ("cluster", "run", "success", "created", "replaced", "grace_s", "file_sha256", "begun", "outcome", "elected")
"""Fields that are stored in JSON unchanged; records of earlier versions may lack them."""


@dataclass(frozen=True)
class RunRecord:
    """One run, or a cluster file when `run` is None (each host's current run is meant)."""

    cluster: str
    run: str | None
    file: Path | None
    hosts: Mapping[str, Host]
    """Hosts of the run that this machine can reach, also those without a task; in its own records, all of them."""
    roster: Mapping[TaskId, str]
    """Task -> host, in the order of the file."""
    lead: TaskId
    success: SuccessRule
    created: float = 0.0
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Host of the cluster file -> the one that has taken its place in this run."""
    others: Mapping[str, Host] = field(default_factory=dict)
    """Other hosts that this machine can reach: a later run may be on one of them."""
    grace_s: float = 30.0
    addresses: Mapping[TaskId, str] = field(default_factory=dict)
    """The addresses of tasks as a host reports them: hosts may choose the ports."""
    file_sha256: str = ""
    """The digest of the cluster file from which `hosts` and `others` come; empty in records of earlier versions."""
    as_written: Mapping[str, Reach] = field(default_factory=dict)
    """Host -> its route by the cluster file, where the command line of `up` had overridden it."""
    begun: bool = True
    """False until all hosts have started: an `up` that was killed before may have been cancelled."""
    outcome: str = ""
    """The outcome of the run, if known here."""
    target_step: int | None = None
    """The target step, as a host of the run reports it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Keys of the cluster file as the run was started, as trainer.args.rate -> 0.1."""
    overridden: tuple[str, ...] = ()
    """Those of them that `--set` has given."""
    checkpoint_urls: tuple[str, ...] = ()
    event_urls: tuple[str, ...] = ()
    """Storage URLs of the lead's host, as the cluster file has them: what hosts report is not opened here."""
    elected: str | None = None
    """The host that coordinates in place of the lead's, as hosts of the run report it."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Host -> the one that has taken its tasks during the run, as hosts of the run report it; the roster has it so."""
    bad: tuple[str, ...] = ()
    """Hosts that it has left out or replaced for the failures on them, as its coordinator has reported: no run starts
    there before `undrain`.
    """
    arbiters: tuple[str, ...] = ()
    hold_s: float | None = None
    """How long its hosts may miss the coordinator before they hold their tasks still, as a host reports it."""
    voting: int = 0
    """How many hosts elect its coordinator."""
    starts: tuple[float, ...] = ()
    """When runs of its project were started from here, in epoch seconds. It is not stored."""
    revision: Revision | None = None
    """The version of its code; None if that was in no repository, and for a run of an earlier dtctl."""

    @property
    def followed_at(self) -> float | None:
        """When the next run of its project was started from here; None: it is the last, as far as is known."""
        return min((at for at in self.starts if self.created and at > self.created), default=None)

    @property
    def project(self) -> Path | None:
        """The cluster file's directory."""
        return None if self.file is None else self.file.parent

    @property
    def is_local(self) -> bool:
        return bool(self.hosts) and all(host.is_local for host in self.hosts.values())

    @property
    def coordinator(self) -> str:
        """The host that decides for the run: the lead's, or the one that was elected last."""
        return self.elected or self.roster[self.lead]

    @property
    def task_hosts(self) -> tuple[str, ...]:
        """The hosts that have a task now; the others are spares, arbiters, or were replaced."""
        used = set(self.roster.values())
        return tuple(name for name in self.hosts if name in used)

    @property
    def idle_hosts(self) -> tuple[str, ...]:
        return tuple(name for name in self.hosts if name not in self.task_hosts)

    @property
    def unknown_hosts(self) -> tuple[str, ...]:
        """Hosts with tasks to which this machine knows no route."""
        return tuple(name for name in dict.fromkeys(self.roster.values()) if name not in self.hosts)

    def route_to(self, name: str) -> Host:
        """Raises TransportError for a host that only the run knows."""
        if name not in self.hosts:
            file = self.file or "cluster.yaml"
            raise TransportError(
                f"{name} is in run {self.run or self.cluster}, but not in {Path(file).name}",
                detail="how a host is reached is never taken from other hosts",
                hint=f"add {name} under hosts: in {file} to reach it",
            )
        return self.hosts[name]

    def routes_to(self, names: Iterable[str]) -> tuple[list[Host], dict[str, DtctlError]]:
        """The hosts of these names, and for each that only the run knows why it cannot be reached."""
        known: list[Host] = []
        unknown: dict[str, DtctlError] = {}
        for name in names:
            try:
                known.append(self.route_to(name))
            except TransportError as error:
                unknown[name] = error
        return known, unknown

    def with_short_timeouts(self, names: Collection[str]) -> RunRecord:
        """The same run; hosts of these names are given up if they cannot be connected to within AWAY_CONNECT_S.

        The run's coordinator reports these hosts as away: most are down, and others have only lost their link to it.
        """
        hosts = {name: _with_short_timeout(host) if name in names else host for name, host in self.hosts.items()}
        return dataclasses.replace(self, hosts=hosts)

    def as_known(self, inventory: Inventory) -> RunRecord:
        """The run as a host reports it, with this record's routes to its hosts; hosts only report names.

        The cluster file may have changed since, or another machine has started the run.
        """
        roster = {TaskId.parse(member["task"]): member["host"] for member in inventory["roster"]}
        used = set(hosts_of(inventory))
        hosts, others = self.hosts, self.others
        if used != hosts.keys():
            every = {**others, **hosts}
            hosts = {name: host for name, host in every.items() if name in used}
            others = {name: host for name, host in every.items() if name not in used}
        return dataclasses.replace(
            self,
            run=inventory["run"],
            hosts=hosts,
            others=others,
            roster=roster,
            lead=TaskId.parse(inventory["lead"]),
            success=inventory["success"],
            created=inventory["created"],
            replaced=inventory["replaced"],
            addresses={
                TaskId.parse(member["task"]): member["address"] for member in inventory["roster"] if member["address"]
            },
            target_step=inventory["target_step"],
            elected=inventory["elected"] if inventory["elected"] in used else None,
            settings=inventory["settings"],
            overridden=tuple(inventory["overridden"]),
            moved={slot: host for slot, host in inventory["moved"]["slots"].items() if host != slot},
            arbiters=tuple(inventory["arbiters"]),
            hold_s=inventory["hold_s"],
            voting=inventory["voting"],
            revision=Revision(**inventory["revision"]) if inventory["revision"] else None,
        )

    def tasks_on(self, host: str) -> tuple[TaskId, ...]:
        return tuple(task for task, place in self.roster.items() if place == host)

    def names_on(self, host: str) -> frozenset[str]:
        """The names of a host's tasks, as records write them."""
        return frozenset(map(str, self.tasks_on(host)))

    def to_json(self) -> dict[str, Any]:
        """The JSON document for this machine's records."""
        return {
            "version": RECORD_VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            "file": str(self.file) if self.file else None,
            "hosts": [_host_json(host) for host in self.hosts.values()],
            "roster": [[str(task), host] for task, host in self.roster.items()],
            "lead": str(self.lead),
            "others": [_host_json(host) for host in self.others.values()],
            "as_written": {name: _reach_json(reach) for name, reach in self.as_written.items()},
            "bad": list(self.bad),
            "checkpoint_urls": list(self.checkpoint_urls),
            "event_urls": list(self.event_urls),
            "revision": self.revision and dict(vars(self.revision)),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunRecord:
        """Reads the JSON document of this machine's records."""
        hosts = [_host(entry) for entry in data["hosts"]]
        others = [_host(entry) for entry in data.get("others", [])]
        return cls(
            **{name: data[name] for name in _PLAIN if name in data},
            file=Path(data["file"]) if data["file"] else None,
            hosts={host.name: host for host in hosts},
            roster={TaskId.parse(task): host for task, host in data["roster"]},
            lead=TaskId.parse(data["lead"]),
            others={host.name: host for host in others},
            as_written={name: _reach(**reach) for name, reach in data.get("as_written", {}).items()},
            bad=tuple(data.get("bad", ())),
            checkpoint_urls=tuple(urls_of(data.get("checkpoint_urls", ()))),
            event_urls=tuple(urls_of(data.get("event_urls", ()))),
            revision=Revision(**_known(Revision, revision)) if (revision := data.get("revision")) else None,
        )


def _with_short_timeout(host: Host) -> Host:
    if not isinstance(host.reach, SshSettings):
        return host
    timeout_s = min(host.reach.connect_timeout_s, AWAY_CONNECT_S)
    return dataclasses.replace(host, reach=dataclasses.replace(host.reach, connect_timeout_s=timeout_s))


def record_of(plan: Roster, run: str | None = None, created: float = 0.0) -> RunRecord:
    """The record of a plan; without `run` it means the current run of the cluster on each host."""
    from dtctl.plan.hosts import checkpoint_places, directories, event_places  # already imported to make the plan

    hosts = plan.cluster.hosts
    lead = next(task.host for task in plan.tasks if task.id == plan.lead)
    dirs = directories(plan.cluster, hosts[lead])
    return RunRecord(
        cluster=plan.cluster.name,
        run=run,
        file=plan.cluster.file,
        hosts={name: hosts[name] for name in plan.members},
        roster={task.id: task.host for task in plan.tasks},
        lead=plan.lead,
        success=plan.success,
        created=created,
        others={name: host for name, host in hosts.items() if name not in plan.members},
        grace_s=plan.cluster.grace_s,
        file_sha256=plan.cluster.file_sha256,
        as_written=plan.cluster.as_written,
        checkpoint_urls=tuple(urls_of(checkpoint_places(plan.cluster, dirs))),
        event_urls=tuple(urls_of(event_places(plan.cluster, dirs))),
    )


def _host_json(host: Host) -> dict[str, Any]:
    return {**vars(host), "reach": _reach_json(host.reach)}


def _reach_json(reach: Reach) -> dict[str, Any]:
    return {**vars(reach), "transport": reach.transport}


def _host(entry: Mapping[str, Any]) -> Host:
    said = dict(entry)
    if "ssh" in said:  # records of earlier versions have null for this machine
        settings = said.pop("ssh")
        said["reach"] = {"transport": "ssh", **settings} if settings else {"transport": "local"}
    return Host(**_known(Host, {**said, "reach": _reach(**said["reach"])}))


def _reach(transport: str, **settings: Any) -> Reach:
    if transport == Local.transport:
        return Local(**_known(Local, settings))
    if transport == SshSettings.transport:
        return SshSettings(**_known(SshSettings, settings))
    return OtherTransport(transport, **_known(OtherTransport, settings))


def _known(kind: type[Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `kind` has, without those that later versions may have added."""
    return {field.name: said[field.name] for field in dataclasses.fields(kind) if field.name in said}


_LIMIT_BYTES = 1_000_000
"""The size limit of a cluster file, as in dtctl/config/load.py."""


@dataclass(frozen=True)
class FollowedFile:
    """`problem`: why the file cannot be used, and the record is unchanged."""

    record: RunRecord
    problem: DtctlError | None = None


def follow_file(record: RunRecord, load: Callable[[Path], Cluster]) -> FollowedFile:
    """The record with the routes that its file has now. `load` raises DtctlError for a file with mistakes.

    A host that has left the file is reached as before, and so is one that an engine has lent, which may be called like
    one of the file. What `up` was given on its command line counts until the file says something else than it did then.
    """
    file = record.file
    if file is None or record.is_local or _is_as_before(file, record.file_sha256):
        return FollowedFile(record)
    try:
        cluster = load(file)
    except DtctlError as problem:
        return FollowedFile(record, problem)
    known = {**record.others, **record.hosts}
    own = {name: host for name, host in cluster.hosts.items() if not _is_lent(known.get(name), host)}
    reached = {
        name: dataclasses.replace(host, reach=_merged(host.reach, known[name].reach, record.as_written.get(name)))
        if name in known
        else host
        for name, host in own.items()
    }
    return FollowedFile(
        dataclasses.replace(
            record,
            hosts={name: reached.get(name, host) for name, host in record.hosts.items()},
            others={name: host for name, host in {**known, **reached}.items() if name not in record.hosts},
            file_sha256=cluster.file_sha256,
            as_written={name: host.reach for name, host in own.items() if host.reach != reached[name].reach},
        )
    )


def _is_lent(known: Host | None, in_file: Host) -> bool:
    """Whether an engine has lent the known host, and the file only has one of the same name."""
    if known is None or not isinstance(known.reach, OtherTransport):
        return False
    return known.reach.transport != in_file.reach.transport


def _is_as_before(file: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(read_regular(file, _LIMIT_BYTES)).hexdigest() == sha256
    except OSError:
        return False


def _merged(file: Reach, before: Reach, file_before: Reach | None) -> Reach:
    """The file's settings, with what the command line overrode (where `before` differs from `file_before`), unless
    the file has changed since.
    """
    if not (isinstance(file, SshSettings) and isinstance(before, SshSettings) and isinstance(file_before, SshSettings)):
        return file
    kept = {
        name: getattr(before, name)
        for name in (field.name for field in dataclasses.fields(SshSettings))
        if getattr(before, name) != getattr(file_before, name) and getattr(file, name) == getattr(file_before, name)
    }
    return dataclasses.replace(file, **kept)

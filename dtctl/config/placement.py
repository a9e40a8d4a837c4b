"""Assigns a host and a port to each task of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dtctl.config.document import Findings, KeyPath
from dtctl.config.ranges import expand, first_past, fold
from dtctl.dataclass import dataclass
from dtctl.errors import did_you_mean
from dtctl.model import CHOSEN_PORT, Host, TaskId, lead_among

if TYPE_CHECKING:
    from dtctl.config.sections import ClusterFile, JobEntry

FIRST_PORT = 2222
"""The default first port, that of TensorFlow's own examples."""
LAST_PORT = 65535
MOST_TASKS = 10_000
"""The most tasks of one cluster; each gets the addresses of all others."""

Claim = tuple[str, ...]
"""Something that can have one listener on a port: a machine, or an address as other hosts use it."""


def place_tasks(jobs: Mapping[str, JobEntry], hosts: Mapping[str, Host], findings: Findings) -> dict[str, list[str]]:
    """The host of each task, by job, in the order of the indexes."""
    texts = ((name, text, job.tasks_per_host) for name, job in jobs.items() for text in job.hosts)
    if too_many := first_past(MOST_TASKS, texts):
        summary = f"jobs.{too_many} is past the {MOST_TASKS:,} tasks that a cluster can have"
        findings.add(("jobs", too_many), summary, "check the ranges of its hosts and tasks_per_host", at_key=True)
        return {name: [] for name in jobs}
    placed = {
        name: [
            host
            for index, text in enumerate(job.hosts)
            for host in _named_hosts(text, ("jobs", name, "hosts", index), hosts, findings)
            for _ in range(job.tasks_per_host)
        ]
        for name, job in jobs.items()
    }
    for name, job in jobs.items():
        if job.replicas is not None and placed[name] and job.replicas > len(placed[name]):
            summary = f"jobs.{name}.replicas is {job.replicas}, and its hosts have places for {len(placed[name])}"
            findings.add(("jobs", name, "replicas"), summary, f"name more hosts, or take {len(placed[name])} at most")
    return placed


_IDLE = {
    "spares": "a spare has no task; take it out of spares, or out of the job",
    "arbiters": "an arbiter has no task, and spares vote too; take it out of arbiters",
}


def read_idle(
    content: ClusterFile, hosts: Mapping[str, Host], placed: Mapping[str, list[str]], findings: Findings
) -> dict[str, tuple[str, ...]]:
    """The hosts of `spares` and of `arbiters`, each once."""
    use_of = {host: f"jobs.{name} uses" for name, used in placed.items() for host in used}
    found: dict[str, tuple[str, ...]] = {}
    for key, rule in _IDLE.items():
        names: dict[str, None] = {}
        for index, text in enumerate(getattr(content, key)):
            path = (key, index)
            named = list(_named_hosts(text, path, hosts, findings))
            busy = [host for host in named if host in use_of]
            if busy:
                findings.add(path, f"{findings.name(*path)} names {fold(busy)}, which {use_of[busy[0]]}", rule)
            names.update(dict.fromkeys(named))
        found[key] = tuple(names)
        use_of.update(dict.fromkeys(names, f"{key} names"))
    return found


def _named_hosts(text: str, path: KeyPath, hosts: Mapping[str, Host], findings: Findings) -> list[str]:
    """The hosts that `text`, which stands at `path`, names."""
    names: list[str] = []
    with findings.refusals(*path):
        names = expand(text)
    unknown = [host for host in names if host not in hosts]
    if unknown and hosts and not findings.lacks_keys_of("hosts"):  # if there is none, that is reported
        hint = did_you_mean(unknown[0], hosts) or f"hosts has {fold(hosts)}"
        are = "are" if len(unknown) > 1 else "is"
        findings.add(path, f"{findings.name(*path)} names {fold(unknown)}, which {are} not in hosts", hint)
    return [host for host in names if host in hosts]


def give_ports(
    jobs: Mapping[str, JobEntry],
    placed: Mapping[str, list[str]],
    hosts: Mapping[str, Host],
    first: int,
    coordinator: int,
    findings: Findings,
) -> dict[str, list[int]]:
    """The port of each task. What the file sets is reserved first; the others take what is free from `first` on.

    `coordinator` is the coordinator's port, which on the lead's machine no task may have.
    """
    ledger = _Ledger({name: _claims(host) for name, host in hosts.items()}, first)
    if jobs and coordinator != CHOSEN_PORT and (leading := placed[lead_among(jobs).job]):
        ledger.hold(coordinator, _Holder("the coordinator", "coordinator.port", leading[0]))
    ports: dict[str, list[int]] = {}
    for name in sorted(jobs, key=lambda name: jobs[name].port is None):
        own = jobs[name].port
        tasks = [(TaskId(name, index), host) for index, host in enumerate(placed[name])]
        ports[name] = ledger.reserve(own, tasks, findings) if own is not None else ledger.fill(tasks)
        past = next((task for (task, _), port in zip(tasks, ports[name], strict=True) if port > LAST_PORT), None)
        if past is not None:
            summary = f"jobs.{name}: {past} would listen past the last port, {LAST_PORT}"
            findings.add(("jobs", name, "port"), summary, "take a lower port, or more hosts")
    return ports


def _claims(host: Host) -> tuple[Claim, ...]:
    """Two hosts of an inventory are one machine if they are reached in the same way."""
    machine = host.reach.machine
    return (machine,) if host.address is None else (machine, ("address", host.address))


@dataclass(frozen=True)
class _Holder:
    name: str
    setting: str
    """The key of the file that would give it another port."""
    host: str


class _Ledger:
    """The ports in use on each host, each with its owner."""

    def __init__(self, claims: Mapping[str, tuple[Claim, ...]], first: int) -> None:
        self._claims = claims
        self._first = first
        self._holders: dict[tuple[Claim, int], _Holder] = {}
        self._next: dict[Claim, int] = {}

    def reserve(self, first: int, tasks: list[tuple[TaskId, str]], findings: Findings) -> list[int]:
        """Reserves `first` for the job's first task on a machine, and the next ports for its next tasks there."""
        ports = []
        used: dict[Claim, int] = {}
        clashes: dict[str, list[str]] = {}
        for task, host in tasks:
            machine = self._claims[host][0]
            port = first + used.get(machine, 0)
            used[machine] = used.get(machine, 0) + 1
            ports.append(port)
            other = self.hold(port, _Holder(str(task), f"jobs.{task.job}.port", host))
            if other is not None:
                same = "" if other.host == host else f", which is the same machine as {other.host}"
                clash = f"{other.name} and {task} would both listen on port {port} of {host}{same}"
                clashes.setdefault(other.setting, []).append(clash)
        for setting, found in clashes.items():
            job = tasks[0][0].job
            own = f"jobs.{job}.port"
            pairs = "1 more pair" if len(found) == 2 else f"{len(found) - 1} more pairs"
            more = f" (and {pairs} of tasks)" if len(found) > 1 else ""
            hint = f"change {own} or {setting}, or leave one of them out"
            if setting == own:
                hint = f"leave {own} out    then each task gets a port of its own"
            findings.add(("jobs", job, "port"), f"jobs.{job}: {found[0]}{more}", hint)
        return ports

    def fill(self, tasks: list[tuple[TaskId, str]]) -> list[int]:
        if self._first == CHOSEN_PORT:
            return [CHOSEN_PORT] * len(tasks)
        ports = []
        for task, host in tasks:
            claims = self._claims[host]
            port = max(map(self._first_free, claims))
            while any((claim, port) in self._holders for claim in claims):
                port += 1
            self.hold(port, _Holder(str(task), f"jobs.{task.job}.port", host))
            ports.append(port)
        return ports

    def _first_free(self, claim: Claim) -> int:
        port = self._next.get(claim, self._first)
        while (claim, port) in self._holders:
            port += 1
        self._next[claim] = port
        return port

    def hold(self, port: int, holder: _Holder) -> _Holder | None:
        """Notes the listener; returns the one that was there before it."""
        claims = self._claims[holder.host]
        others = [self._holders.get((claim, port)) for claim in claims]
        for claim in claims:
            self._holders.setdefault((claim, port), holder)
        return next((other for other in others if other is not None), None)

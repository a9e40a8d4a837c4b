"""What a source holds of a cluster: machines, jobs and settings, each with the place where it was found. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from dtctl.config.names import split_place
from dtctl.config.placement import MOST_TASKS
from dtctl.dataclass import dataclass
from dtctl.errors import ConfigError, Place, Problem, UsageError, clipped

FORMATS_HINT = "or name another --format"
MOST_PROBLEMS = 50
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Source:
    """A text to read. `name` stands for it in places."""

    name: str
    content: str

    def lines(self) -> list[tuple[Place, str]]:
        return [
            (Place(self.name, number), line.rstrip("\r"))
            for number, line in enumerate(self.content.split("\n"), start=1)
        ]


@dataclass(frozen=True)
class Machine:
    """None leaves the choice to `ssh` of the file and to ~/.ssh/config."""

    name: str
    place: Place
    target: str | None = None
    """What SSH connects to, if not the name."""
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    jump: str | None = None
    gpus: int = 0
    is_local: bool = False
    """It is the machine on which dtctl runs."""


@dataclass(frozen=True)
class FoundJob:
    name: str
    hosts: tuple[str, ...]
    """The host of each task."""
    place: Place
    port: int | None = None
    settings: Mapping[str, tuple[str, Place]] = field(default_factory=dict)
    """Further keys of the job: value as YAML text, and where it was."""


@dataclass(frozen=True)
class Note:
    """Something that was left out, or that has to be filled in. `place` None: it is about the whole source."""

    text: str
    place: Place | None = None


@dataclass(frozen=True)
class Found:
    kind: str
    """The words for the format: an Ansible inventory."""
    machines: tuple[Machine, ...]
    jobs: tuple[FoundJob, ...] = ()
    """None where the source has no jobs: they are made of `groups`, or all machines are workers."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Group -> its hosts, where the format has groups."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Group -> where it begins."""
    name: str | None = None
    settings: Mapping[str, tuple[str, Place]] = field(default_factory=dict)
    """Keys of the top level: value as YAML text, and where it was."""
    trainer: Mapping[str, tuple[str, Place]] = field(default_factory=dict)
    """The same for keys of `trainer`."""
    command: tuple[str, ...] = ()
    command_place: Place | None = None
    to_fill: tuple[Note, ...] = ()
    left_out: tuple[Note, ...] = ()


class Problems:
    """Collects every mistake of a source."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, place: Place, summary: str, hint: str = "") -> None:
        self._found.append(Problem(place, summary, hint))
        if len(self._found) >= MOST_PROBLEMS:
            self.or_raise()

    def or_raise(self) -> None:
        if self._found:
            raise ConfigError(self._found)


def fail(place: Place, summary: str, hint: str = "") -> ConfigError:
    """The error about one mistake, to be raised."""
    return ConfigError([Problem(place, summary, hint)])


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def machine_of(text: str, place: Place, **settings: object) -> Machine:
    """A machine of [USER@]HOST[:PORT]; the port is that of SSH. Raises ConfigError."""
    try:
        user, host, port = split_place(text)
    except UsageError as error:
        raise fail(place, error.summary, error.hint) from error
    name = name_of(host)
    known: dict[str, object] = {"user": user, "port": port, "target": None if name == host else host}
    known.update({key: value for key, value in settings.items() if value is not None})
    return Machine(name, place, **known)  # type: ignore[arg-type]


def name_of(host: str) -> str:
    """A host's name in `hosts`: an IPv6 address cannot be one."""
    return host if _NAME.fullmatch(host) else "host-" + _UNFIT.sub("-", host).strip("-")


def merged(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Each machine once, as it was named first."""
    first: dict[str, Machine] = {}
    for machine in machines:
        first.setdefault(machine.name, machine)
    return tuple(first.values())


_ROLES = {
    "ps": "ps",
    "parameter_server": "ps",
    "param_server": "ps",
    "parameterserver": "ps",
    **{name: name for name in ("worker", "chief", "master", "evaluator")},
}


def role_of_group(group: str) -> str | None:
    """The job that the name of a group means."""
    name = group.lower().replace("-", "_")
    return _ROLES.get(name) or _ROLES.get(name.removesuffix("s"))


def jobs_of_groups(found: Found) -> tuple[FoundJob, ...]:
    """Groups that are called like jobs; if there are none, every machine is a worker."""
    nowhere = found.machines[0].place
    jobs: dict[str, FoundJob] = {}
    for group, hosts in found.groups.items():
        role = role_of_group(group)
        if role and hosts:
            earlier = jobs[role].hosts if role in jobs else ()
            place = jobs[role].place if role in jobs else found.places.get(group, nowhere)
            jobs[role] = FoundJob(role, tuple(dict.fromkeys((*earlier, *hosts))), place)
    order = ("ps", "chief", "master", "worker", "evaluator")
    known = tuple(sorted(jobs.values(), key=lambda job: order.index(job.name)))
    return known or (FoundJob("worker", tuple(machine.name for machine in found.machines), nowhere),)


def check_count(tasks: int, place: Place) -> None:
    if tasks > MOST_TASKS:
        raise fail(place, f"more than {MOST_TASKS:,} tasks, which is more than a cluster can have", "check the numbers")


def first_port(addresses: Sequence[tuple[str, int]]) -> int | None:
    """The `port` of a job whose tasks then listen exactly there; None: no single number says it."""
    following: dict[str, int] = {}
    for host, port in addresses:
        if port != following.setdefault(host, addresses[0][1]):
            return None
        following[host] += 1
    return addresses[0][1] if addresses else None


def jobs_of_addresses(
    cluster: Mapping[str, Sequence[tuple[str, Place]]],
) -> tuple[tuple[Machine, ...], tuple[FoundJob, ...], tuple[Note, ...]]:
    """Machines and jobs of addresses (host:port) by job, with what is to be filled in. Raises ConfigError."""
    machines: list[Machine] = []
    jobs: list[FoundJob] = []
    notes: list[Note] = []
    for job, addresses in cluster.items():
        pairs = [_address(text, place) for text, place in addresses]
        check_count(len(pairs), addresses[0][1])
        for (host, _), (_, place) in zip(pairs, addresses, strict=True):
            machines.append(machine_of(host, place))
        port = first_port(pairs)
        if port is None:
            said = ", ".join(dict.fromkeys(str(number) for _, number in pairs))
            notes.append(Note(f"jobs.{job}.port: the tasks listened on {clipped(said)}; now each host counts from "
                              "`ports` on", addresses[0][1]))  # fmt: skip
        jobs.append(FoundJob(job, tuple(name_of(host) for host, _ in pairs), addresses[0][1], port))
    return local_where_loopback(merged(machines)), tuple(jobs), tuple(notes)


def local_where_loopback(machines: tuple[Machine, ...]) -> tuple[Machine, ...]:
    """The machines; where all are names of the one that reads them, as local ones."""
    if all((machine.target or machine.name) in LOOPBACK for machine in machines):
        return tuple(Machine(one.name, one.place, is_local=True) for one in machines)
    return machines


_ADDRESS = re.compile(r"(?:grpc://)?(?:\[(?P<ip>[^\[\]\s]+)\]|(?P<name>[^:\[\]\s]+)):(?P<port>[0-9]{1,5})")


def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None


def _address(text: str, place: Place) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise fail(place, f"{clipped(text)!r} is no address, expected HOST:PORT", "write, for example, 10.0.0.10:2222")
    host = match["ip"] or match["name"]
    machine_of(f"[{host}]" if ":" in host else host, place)
    return host, int(match["port"])

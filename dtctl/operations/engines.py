"""Engines that lend machines to a run. A room may be one; without any, all runs are on the machines of their files."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from dtctl import rooms
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError, UsageError
from dtctl.folder import read_regular
from dtctl.model import SshSettings

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.bundle.revision import Inspected
    from dtctl.config.cluster import Cluster
    from dtctl.model import Host
    from dtctl.operations.client import Report
    from dtctl.operations.run_record import RunRecord
    from dtctl.plan.spec import EnvironmentContent
    from dtctl.transport.seam import Transport

HERE = "ssh"
"""The value of `on` for the machines of the file."""
_LOGIN = b"login"
_LARGEST = 1_000_000
"""Bytes of a cluster file; a larger one is refused when it is loaded."""


@dataclass(frozen=True)
class Allocation:
    """The machines that an engine lends to a run, or that the run waits for."""

    engine: str
    job: str
    """What the engine calls it."""
    state: str
    """The engine's own word."""
    phase: str
    """`pending`: the run waits for them; `running`: it has them; `ended`: they were given back."""
    ending: bool = False
    """The job is about to end, or to wait again."""
    is_node_failure: bool = False
    """The job has ended because a machine was lost."""
    reason: str = ""
    """Why it waits, in the engine's word."""
    position: int | None = None
    """Its place in the queue, from 1 on; None: unknown."""
    left_s: float | None = None
    """How long the run may keep them; None: without a limit, or unknown."""
    nodes: str = ""
    """Their names, folded as the engine does it."""
    run: str | None = None
    """The run for which the job has them, or waits: a job that is queued again starts another one."""
    log: str = ""
    """What the run's controller has printed, once the job has ended."""


@dataclass(frozen=True)
class Submitted:
    """A run that an engine will start. `record`: as it is written down until then."""

    record: RunRecord
    job: str
    machines: int
    log: str = ""
    """The file that holds what the run's controller prints there."""
    short_of_s: float = 0.0
    """How long the time limit has to be at least, where it is shorter: the run may be stopped as soon as it starts."""


@dataclass(frozen=True)
class JobRequest:
    """A job that would be queued: what the engine is asked for, in its own words."""

    engine: str
    machines: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Lent:
    """What a job starts on the machines that it is given: everything as it is when the run is submitted."""

    run: str
    file: Path
    content: bytes
    """What the cluster file held."""
    bundle: Bundle
    wheels: Bundle | None
    environment: EnvironmentContent
    inspected: Inspected | None
    words: tuple[str, ...] = ()
    """The options of `up` that count when the job starts."""


class Engine(Protocol):
    """Raises DtctlError where the engine refuses or cannot be asked."""

    def place(self, cluster: Cluster) -> Cluster:
        """The cluster on the machines that this process was given; outside of a job, on ones that are not known yet."""
        ...

    def request(self, cluster: Cluster) -> JobRequest:
        """The job that `submit` queues for this cluster, as the file has it."""
        ...

    def lent(self) -> Lent | None:
        """What this process is to start on machines that it was given; None outside of a job. Raises DtctlError where
        that is not as it was submitted.
        """
        ...

    def submit(self, cluster: Cluster, record: RunRecord, lent: Lent, environ: Mapping[str, str]) -> Submitted:
        """Queues a job that starts this run, and keeps what it is made of until then. `cluster`: as the file has it;
        `record`: of the cluster as it is placed.
        """
        ...

    def forget(self, runs: Collection[str]) -> None:
        """Removes what was kept for the jobs of these runs, which have ended."""
        ...

    def allocation(self, record: RunRecord) -> Allocation | None:
        """What a run has of the engine; None for a run on other machines."""
        ...

    def cancel(self, allocation: Allocation) -> None:
        """Takes a job that waits out of the queue."""
        ...


def engine_of(name: str) -> Engine | None:
    """The engine that `on` names; None for the machines of the file. Raises UsageError for one that is not there."""
    if name == HERE:
        return None
    place = rooms.of(name, "engine")
    if place is None:
        raise UsageError(f"this dtctl has no engine {name!r}", hint="--on ssh    starts it on the hosts of the file")
    return cast("Engine", pkgutil.resolve_name(place))


def lent_by(name: str | None) -> Lent | None:
    """What the engine of this name lets this process start; None outside of its jobs."""
    engine = engine_of(name) if name is not None else None
    return engine.lent() if engine is not None else None


def forget(record: RunRecord, runs: Collection[str]) -> None:
    """Removes what the engine of the record has kept for these runs."""
    if (engine := engine_of_record(record)) is not None:
        engine.forget(runs)


OnOutput = Callable[[int, bytes], None]
"""Called with 1 for stdout or 2 for stderr, and the bytes."""


class CarryOut(Protocol):
    """See rooms/slurm/login.py."""

    def __call__(
        self,
        cluster: Cluster,
        login: Host,
        words: Sequence[str],
        bundle: Bundle | None,
        transport: Transport,
        on_output: OnOutput,
        report: Report,
        *,
        removes: bool = False,
    ) -> int: ...


def may_have_login(file: Path) -> bool:
    """Whether this cluster file may name a login node. Most do not, and need not be parsed for this."""
    try:
        return _LOGIN in read_regular(file, _LARGEST)
    except OSError:  # who reads it reports that
        return False


def login_of(cluster: Cluster) -> tuple[Host, CarryOut] | None:
    """The login node on which commands about this cluster are carried out, and what does so; None: they are carried out
    on this machine.
    """
    place = rooms.of(cluster.on, "login")
    if place is None or cluster.slurm.login is None:
        return None
    if cluster.slurm.login not in cluster.hosts:
        raise UsageError(
            f"slurm.login is {cluster.slurm.login!r}, which is none of hosts",
            hint="hosts: {login: {address: login.example.com}}    says how it is reached",
        )
    return cluster.hosts[cluster.slurm.login], cast("CarryOut", pkgutil.resolve_name(place))


def require_here(cluster: Cluster, command: str) -> None:
    """Raises UsageError for what is not carried out on a login node."""
    if (found := login_of(cluster)) is not None:
        raise UsageError(
            f"{command} is not carried out on the login node from here",
            hint=f"ssh {_destination(found[0])}    and type it there, in the directory of {cluster.name} below "
            "~/.local/share/dtctl/projects",
        )


def _destination(host: Host) -> str:
    """What `ssh` is given to log in to the host."""
    if not isinstance(host.reach, SshSettings):
        return host.name
    return f"{host.reach.user}@{host.reach.target}" if host.reach.user else host.reach.target


def require_own_hosts(cluster: Cluster, command: str) -> None:
    """Raises UsageError for a command about the hosts of a file whose runs are on machines of an engine."""
    if cluster.on != HERE:
        raise UsageError(
            f"{command} is about the hosts of the file, which on: {cluster.on} does not use",
            detail="a run gets its machines when its job starts",
            hint="dtctl up    submits the run; --set on=ssh    means the hosts of the file",
        )


def engine_of_record(record: RunRecord) -> Engine | None:
    """The engine that lends the run its machines."""
    kinds: Sequence[str] = list(dict.fromkeys(host.reach.transport for host in record.hosts.values()))
    if len(kinds) != 1 or rooms.of(kinds[0], "engine") is None:
        return None
    return engine_of(kinds[0])


def again(cluster: Cluster) -> str:
    """`dtctl up`, with the engine that its command line has named."""
    words = [f" --on {one.removeprefix('on=')}" for one in cluster.overrides if one.startswith("on=")]
    return "dtctl up" + "".join(words[-1:])


class StillHeld(PreflightError):
    """An earlier run of the file has machines of an engine, or waits for them."""


def still_held(previous: RunRecord, held: Allocation, cluster: Cluster) -> StillHeld:
    """Refuses a start of the cluster, because an earlier run of its file has machines or waits for them."""
    what = "waits for its machines" if held.phase == "pending" else "is live"
    return StillHeld(
        f"run {previous.run} of this file {what}, in job {held.job}",
        hint=f"{again(cluster)} --replace    stops it and starts the new one; dtctl stop    stops it",
    )


def allocation_of(record: RunRecord) -> Allocation | None:
    """What is known of the run's machines; None for those of a file.

    Raises DtctlError if the engine cannot be asked.
    """
    engine = engine_of_record(record)
    return engine.allocation(record) if engine is not None else None

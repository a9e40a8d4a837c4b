"""The user's consent: to the keys of hosts and gateways, to programs that a cluster file would start here, and to what
it would send from here (sending.py).

The last two are allowed by content, as direnv does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from dtctl.agent.records.spec import MAKER_SETTINGS
from dtctl.config.cluster import Cluster, Job
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, PreflightError
from dtctl.folder import make_private, open_regular, read_regular, replace_file
from dtctl.model import Host, SshSettings
from dtctl.operations.environments import environment_content
from dtctl.paths import check_private, state_directory
from dtctl.plan.hosts import on_this_machine
from dtctl.transport.fanout import fan_out

if TYPE_CHECKING:
    from dtctl.transport.connect import Transports
    from dtctl.transport.ssh.known_hosts import HostKey
    from dtctl.transport.ssh.route import Station

_MOST_SCRIPT_BYTES = 1 << 24


@dataclass(frozen=True)
class LocalProgram:
    """A program that a cluster file would start here. The user consents to exactly what is shown of it. What is shown
    of it is what is allowed.
    """

    file: Path
    what: str
    """`hook NAME`, `environment`, `setup`, or the name of a job."""
    argv: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Other keys that affect the program, by name, and the digests of scripts in the cluster file's directory."""
    hosts: tuple[str, ...] = ()
    """Local hosts; a job that moves to another one needs no new consent."""

    @property
    def digest(self) -> str:
        place = self.file.absolute().parent  # the path where it runs, not the target of a link to the file
        said = [*map(os.path.realpath, (self.file, place)), self.what, self.argv, sorted(self.settings.items())]
        return hashlib.sha256(json.dumps(said).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def is_hook(self) -> bool:
        return self.what.startswith("hook ")


def programs_here(cluster: Cluster, *, local: bool = False) -> tuple[LocalProgram, ...]:
    """The programs that the file would start here. `local`: all hosts are this machine, as with `--local`."""
    if local:
        cluster = on_this_machine(cluster, lambda port: True)
    return (*hook_programs(cluster), *_programs_of_local_hosts(cluster))


def programs_of_hosts(cluster: Cluster, overrides: Sequence[str], *, local: bool) -> tuple[LocalProgram, ...]:
    """The programs that the file itself starts, without hooks; `overrides` were typed by the user and need no
    consent.
    """
    return tuple(one for one in programs_here(as_written(cluster, overrides), local=local) if not one.is_hook)


def programs_of_local_hosts(cluster: Cluster, overrides: Sequence[str]) -> tuple[LocalProgram, ...]:
    """The programs of hosts that the file declares to be this machine, whose directories the file names too.

    Who has not allowed them has not allowed either that the file's data or checkpoints are written to these.
    """
    return tuple(_programs_of_local_hosts(as_written(cluster, overrides)))


def as_written(cluster: Cluster, overrides: Sequence[str]) -> Cluster:
    """The cluster without the overrides, if the file is valid without them."""
    if overrides:
        from dtctl.config.load import load_cluster

        try:
            return load_cluster(cluster.file, needs_files=False)
        except DtctlError:
            pass
    return cluster


def allow_command(file: Path, *, local: bool = False) -> str:
    return shlex.join(["dtctl", "allow", *(["--local"] if local else []), str(file.absolute())])


def hook_programs(cluster: Cluster) -> tuple[LocalProgram, ...]:
    place = cluster.file.absolute().parent
    return tuple(
        LocalProgram(cluster.file, f"hook {hook.name}", hook.run, _scripts(place, hook.run))
        for hook in cluster.hooks.values()
        if hook.run
    )


def _scripts(place: Path, argv: Iterable[str]) -> dict[str, str]:
    """The words that name files below the directory of the cluster file, with the digests of their contents."""
    found = {}
    for word in argv:
        try:
            below = (place / word).is_relative_to(place)
            if below and (place / word).is_file():
                found[word] = _content(place / word)
        except (OSError, ValueError):  # it holds a NUL or is too long
            continue
    return found


def _content(script: Path) -> str:
    """The digest of a script; for one that is too large or not readable, its size and time of change."""
    try:
        return f"sha256 {hashlib.sha256(read_regular(script, _MOST_SCRIPT_BYTES)).hexdigest()}"
    except OSError:
        found = script.stat()
        return f"{found.st_size} bytes, changed at {found.st_ctime_ns} ns"


def _programs_of_local_hosts(cluster: Cluster) -> Iterator[LocalProgram]:
    found: dict[str, LocalProgram] = {}
    local = [host for host in cluster.hosts.values() if host.is_local]
    installed = _installed(cluster) if local else {}
    for host in local:
        # A host without a task may take the place of another.
        jobs = [job for job in cluster.jobs.values() if host.name in job.hosts] or cluster.jobs.values()
        for one in (
            *_environment(cluster, host, installed),
            *_setup(cluster, host),
            *(_of_job(cluster, host, job) for job in jobs),
        ):
            before = found.get(one.digest)
            found[one.digest] = dataclasses.replace(one, hosts=(*(before.hosts if before else ()), host.name))
    yield from found.values()


def _installed(cluster: Cluster) -> dict[str, str]:
    """Identifies the packages that are installed; empty if there is nothing to install from."""
    with suppress(PreflightError):
        content = environment_content(cluster)
        wheels = {"environment.wheels": f"sha256 {content.wheels}"} if content.wheels else {}
        return {**{name: f"sha256 {digest}" for name, digest in content.files.items()}, **wheels}
    return {}


def _environment(cluster: Cluster, host: Host, installed: Mapping[str, str]) -> Iterator[LocalProgram]:
    """The programs that create an environment here: installing a package runs its code."""
    said = cluster.trainer.environment
    if said is not None:
        settings = _settings(cluster, host, _maker_settings(cluster, host)) | {**installed}
        if python := host.python or said.python:
            settings["environment.python"] = python
        yield LocalProgram(cluster.file, "environment", said.command, settings)


def _maker_settings(cluster: Cluster, host: Host) -> dict[str, str]:
    """Variables that affect the installation, such as those that name package indexes."""
    given = [job.launch.env for job in cluster.jobs.values() if host.name in job.hosts][:1]
    variables = {**(given[0] if given else {}), **host.env}
    return {name: value for name, value in variables.items() if name.startswith(MAKER_SETTINGS)}


def _setup(cluster: Cluster, host: Host) -> Iterator[LocalProgram]:
    if cluster.trainer.setup:
        yield LocalProgram(cluster.file, "setup", ("sh", "-c", cluster.trainer.setup), _settings(cluster, host, {}))


def _of_job(cluster: Cluster, host: Host, job: Job) -> LocalProgram:
    argv = (*job.launch.command, *job.launch.args, *job.launch.template)
    return LocalProgram(cluster.file, job.name, argv, _settings(cluster, host, {**job.launch.env, **host.env}))


def _settings(cluster: Cluster, host: Host, env: Mapping[str, str]) -> dict[str, str]:
    trainer = cluster.trainer
    said = {
        "code": str(trainer.code),
        "python": host.python or trainer.python,
        "venv": trainer.venv,
        "env_file": str(trainer.env_file) if trainer.env_file else None,
        "secrets": ", ".join(trainer.secrets),
        **{f"dirs.{name}": value for name, value in {**cluster.dirs, **host.dirs}.items()},
        **{f"env.{name}": value for name, value in env.items()},
    }
    return {name: value for name, value in said.items() if value}


class Allowed(Protocol):
    """A cluster file's program or sending that the user can allow. All of it that matters is in its digest."""

    @property
    def file(self) -> Path: ...

    @property
    def digest(self) -> str: ...


A = TypeVar("A", bound=Allowed)


class Consents:
    """The consents of the user of this machine: one file each, named by its digest.

    Raises PreflightError where other users may write to the directory.
    """

    def __init__(self, state: Path | None = None) -> None:
        self._directory = (state or state_directory()) / "allowed"
        check_private(self._directory.parent)
        check_private(self._directory)

    def missing(self, wanted: Iterable[A]) -> tuple[A, ...]:
        return tuple(one for one in wanted if not self._holds(one))

    def allow(self, wanted: Iterable[Allowed]) -> None:
        """Raises PreflightError when it cannot be written."""
        for one in self.missing(wanted):
            try:
                make_private(self._directory)
                replace_file(self._directory / one.digest, os.fsencode(one.file.absolute()) + b"\n")
            except OSError as error:
                raise PreflightError(
                    f"what you allow cannot be remembered in {self._directory}",
                    detail=str(error.strerror or error).lower(),
                ) from error

    def _holds(self, one: Allowed) -> bool:
        try:
            os.close(open_regular(self._directory / one.digest, follow=False))
        except OSError:
            return False
        return True


def may_start(cluster: Cluster, overrides: Sequence[str] | None, *, local: bool) -> bool:
    """Whether a command that only checks may start the file's programs for local hosts.

    They may not on a host that the command line has made local, because no consent was requested for that.
    """
    written = as_written(cluster, overrides or ()).hosts
    known = {name for name, host in written.items() if host.is_local}
    made_local = [name for name, host in cluster.hosts.items() if host.is_local and name not in known]
    return not made_local and not Consents().missing(programs_of_hosts(cluster, overrides or (), local=local))


@dataclass(frozen=True)
class NewKeys:
    """The keys that a host without a pinned key has presented."""

    station: Station
    keys: Sequence[HostKey]


@dataclass(frozen=True)
class KeyScan:
    """One look at the hosts. A host behind a gateway can be looked at when the gateway has been pinned."""

    new: tuple[NewKeys, ...]
    known: tuple[str, ...]
    """Hosts that present a pinned key."""
    errors: Mapping[str, DtctlError]


def look(transport: Transports, hosts: Iterable[Host]) -> KeyScan:
    """Scans the next unknown host on the route to each; known hosts are compared with their pinned keys."""
    stations: dict[str, Station] = {}
    for host in hosts:
        if isinstance(host.reach, SshSettings):
            way = transport.stations(host)
            station = next((one for one in way if not one.keys.pinned()), way[-1])
            stations[station.name] = station
    outcomes = fan_out(stations.values(), lambda station: station.scan())
    unknown = [name for name in outcomes.results if not stations[name].keys.pinned()]
    changed: dict[str, DtctlError] = {}
    for name in outcomes.results.keys() - set(unknown):
        try:
            stations[name].keys.require_trusted(outcomes.results[name])
        except DtctlError as error:
            changed[name] = error
    return KeyScan(
        new=tuple(NewKeys(stations[name], outcomes.results[name]) for name in unknown),
        known=tuple(name for name in outcomes.results if name not in unknown and name not in changed),
        errors={**outcomes.errors, **changed},
    )


def pin(new: Iterable[NewKeys]) -> tuple[Path, ...]:
    """Pins the keys; returns the files that were written."""
    return tuple(dict.fromkeys(one.station.pin(one.keys) for one in new))

"""Data that leaves this machine, and the user's consent to it.

A cluster file may come from elsewhere. What it names within its own directory came with it. Anything else that it
sends, by whatever key, is allowed once, by content (consent.py): directories, files, values of the user's variables.
All that hosts receive of this machine's files is read by `scanned` and sent by a `sender`, which check that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.agent.host.secrets import hide_text
from dtctl.bundle import Bundle
from dtctl.bundle.sender import IN_MEMORY_BYTES, Sender
from dtctl.config.cluster import Cluster
from dtctl.config.outgoing import ENVIRONMENT, Sending, is_around_a_home, why_refused
from dtctl.config.ranges import fold
from dtctl.errors import PreflightError
from dtctl.model import Reach, SshSettings
from dtctl.operations.consent import Consents, allow_command, as_written
from dtctl.operations.environments import environment_wheels
from dtctl.operations.local import read_env_file
from dtctl.operations.run_record import RunRecord

if TYPE_CHECKING:
    from dtctl.bundle.revision import Inspected
    from dtctl.bundle.scanning import ScanReport

CODE = "trainer.code"
DATA = "data.from"
WHEELS = "trainer.environment.wheels"
VALUES = ("trainer.env_file", "trainer.secrets", "hooks")
START = (CODE, WHEELS, *VALUES)
"""The settings whose contents a start sends."""
EVERY = ("trainer", "data", "hooks")


def sendings(cluster: Cluster, keys: Collection[str], environ: Mapping[str, str]) -> tuple[Sending, ...]:
    """The sendings of these settings that need consent; none if all hosts are this machine.

    What the command line names itself needs none, and neither does what lies in the directory of the file.
    """
    if all(host.is_local for host in cluster.hosts.values()):
        return ()
    return tuple(one for one in _all(cluster, environ) if one.key in keys or one.key.partition(".")[0] in keys)


def allowable(cluster: Cluster) -> tuple[Sending, ...]:
    """The sendings that could ever need consent, including values of variables that are not set now."""
    return sendings(cluster, EVERY, dict.fromkeys(_declared(cluster), ""))


def sending_of(cluster: Cluster, key: str) -> Sending | None:
    """The sending of the path that `key` names; None if it needs no consent."""
    return next(iter(sendings(cluster, (key,), {})), None)


def inspect(bundle: Bundle) -> Inspected | None:
    """The revision of the code, and what of it has no content here; None outside of a repository."""
    from dtctl.bundle.revision import inspect as inspect_revision

    return inspect_revision(bundle)


def scan_code(cluster: Cluster) -> Bundle:
    """The cluster's code, without the files that hold secrets or keys, and without its data."""
    over_ssh = [host.reach for host in cluster.hosts.values() if isinstance(host.reach, SshSettings)]
    keys = [settings.identity_file for settings in over_ssh if settings.identity_file]
    env_file = [cluster.trainer.env_file] if cluster.trainer.env_file else []
    return scanned(
        cluster,
        CODE,
        secret_files=[*env_file, *(Path(key).expanduser() for key in set(keys))],
        without=[place for place in (cluster.data.source, cluster.trainer.wheels) if place is not None],
    )


def scan_wheels(cluster: Cluster) -> Bundle | None:
    """The cluster's wheels; None if the file names none. Raises as `environment_wheels`."""
    bundle = environment_wheels(cluster)
    return dataclasses.replace(bundle, sending=sending_of(cluster, WHEELS)) if bundle is not None else None


def scanned(
    cluster: Cluster,
    key: str,
    report: ScanReport | None = None,
    *,
    secret_files: Collection[Path] = (),
    without: Collection[Path] = (),
    read: bool = True,
) -> Bundle:
    """The content of the directory that `key` names; as `scan`, which raises PreflightError and Unread."""
    from dtctl.bundle.scanning import scan

    is_code = key == CODE
    bundle = scan(
        cluster.outgoing[key],
        report,
        cluster=cluster.name if is_code else "",
        secret_files=secret_files,
        without=without,
        data=not is_code,
        read=read,
    )
    return dataclasses.replace(bundle, sending=sending_of(cluster, key))


def sender(bundle: Bundle, record: RunRecord, in_memory_bytes: int = IN_MEMORY_BYTES) -> Sender:
    """Sends the bundle to hosts of the record. Raises PreflightError without the user's consent."""
    if bundle.sending is not None and not record.is_local:
        require([bundle.sending])
    return Sender(bundle, in_memory_bytes)


def require(wanted: Sequence[Sending]) -> None:
    """Raises PreflightError for a sending that the user has not allowed."""
    if missing := Consents().missing(wanted) if wanted else ():
        raise not_allowed(missing)


def not_allowed(missing: Sequence[Sending]) -> PreflightError:
    file = missing[0].file
    return PreflightError(
        f"{file} would send what lies outside of its directory, and you have not allowed it",
        detail="\n".join(sending_lines(missing)),
        hint=f"{allow_command(file)}    allows it, until the file changes that",
    )


def sending_lines(wanted: Iterable[Sending]) -> Iterator[str]:
    for one in wanted:
        doubt = f" ({one.doubt})" if one.doubt else ""
        names = f"{', '.join(one.names)} of " if one.names else ""
        yield f"{one.key}: {names}{one.source}{doubt}, to {hide_text(_shown(one.to))}"


def _shown(to: Mapping[str, str]) -> str:
    names, machines = fold(to), fold(to.values())
    return names if names == machines else f"{names} ({machines})"


def _all(cluster: Cluster, environ: Mapping[str, str]) -> Iterator[Sending]:
    file, own = cluster.file, own_directory(cluster.file)
    to = _destinations(as_written(cluster, cluster.overrides))
    for key, place in cluster.outgoing.items():
        if _is_typed(cluster, key) or (own is not None and place.is_relative_to(own)):
            continue
        names = _declared(cluster) if key == "trainer.env_file" else ()
        if names or key != "trainer.env_file":
            yield Sending(file, key, str(place), to, names, why_refused(place) or "")
    yield from _of_environment(cluster, environ, to)


def _declared(cluster: Cluster) -> tuple[str, ...]:
    """The names of the variables whose values the file sends."""
    of_hooks = (name for hook in cluster.hooks.values() for name in hook.variables)
    return tuple(dict.fromkeys([*cluster.trainer.secrets, *of_hooks]))


def _of_environment(cluster: Cluster, environ: Mapping[str, str], to: Mapping[str, str]) -> Iterator[Sending]:
    """Values of variables that the env_file does not have."""
    env_file, known = cluster.trainer.env_file, dict[str, str]()
    if env_file is not None:
        with suppress(PreflightError):  # whoever needs the file reports the error
            known = read_env_file(env_file)
    secrets = cluster.trainer.secrets
    if not _is_typed(cluster, "trainer.secrets") and _any_of(environ, known, secrets):
        yield Sending(cluster.file, "trainer.secrets", ENVIRONMENT, to, secrets)
    for hook in cluster.hooks.values():
        key = f"hooks.{hook.name}"
        if hook.post and not _is_typed(cluster, key) and _any_of(environ, known, hook.variables):
            yield Sending(cluster.file, key, ENVIRONMENT, {hook.post: hook.post}, hook.variables)


def _any_of(environ: Mapping[str, str], known: Mapping[str, str], names: Iterable[str]) -> bool:
    return any(name in environ and name not in known for name in names)


def own_directory(file: Path) -> Path | None:
    """The resolved directory of a cluster file; None if that is a home directory, or above one."""
    place = file.absolute().parent.resolve()
    return None if is_around_a_home(place) else place


def _is_typed(cluster: Cluster, key: str) -> bool:
    typed = (one.partition("=")[0].strip() for one in cluster.overrides)
    return any(f"{key}.".startswith(f"{one}.") for one in typed)


def _destinations(cluster: Cluster) -> dict[str, str]:
    """The hosts that are not this machine, as the file defines their routes."""
    reaches = {name: cluster.as_written.get(name, host.reach) for name, host in cluster.hosts.items()}
    remote = ((name, reach) for name, reach in reaches.items() if not cluster.hosts[name].is_local)
    return {name: _machine(reach) for name, reach in remote}


def _machine(reach: Reach) -> str:
    if not isinstance(reach, SshSettings):
        return " ".join(reach.machine)
    port = f":{reach.port}" if reach.port not in (None, 22) else ""
    return f"{reach.target}{port}" + (f" through {reach.jump}" if reach.jump else "")

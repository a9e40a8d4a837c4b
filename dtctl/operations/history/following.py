"""How a remembered run's hosts are reached now: as its cluster file says, wherever that can be read and has the host.

The file is parsed only if it has changed since the record was made: parsing takes longer than all else on this side.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.errors import DtctlError
from dtctl.model import Reach, SshSettings
from dtctl.places import read_regular

if TYPE_CHECKING:
    from dtctl.model import Cluster, Host
    from dtctl.operations.history.record import RunRecord

_LIMIT_BYTES = 1_000_000
"""As in dtctl/config/load.py."""


@dataclass(frozen=True)
class IntentFollower:
    """`problem`: why the file says nothing, so that the record stands as it was."""

    record: RunRecord
    problem: DtctlError | None = None


def follow_file(record: RunRecord, load: Callable[[Path], Cluster]) -> IntentFollower:
    """The record with its hosts reached as its file says now. `load` raises DtctlError for a file with mistakes.

    A host that has left the file is reached as before. What `up` was told by its command line counts until the file
    says something else than it did then.
    """
    file = record.file
    if file is None or record.is_local or _is_as_before(file, record.file_sha256):
        return IntentFollower(record)
    try:
        cluster = load(file)
    except DtctlError as problem:
        return IntentFollower(record, problem)
    known = {**record.others, **record.hosts}
    reached = {
        name: dataclasses.replace(host, reach=_merged(host.reach, known[name].reach, record.as_written.get(name)))
        if name in known
        else host
        for name, host in cluster.hosts.items()
    }
    return IntentFollower(
        dataclasses.replace(
            record,
            hosts={name: reached.get(name, host) for name, host in record.hosts.items()},
            others={name: host for name, host in {**known, **reached}.items() if name not in record.hosts},
            file_sha256=cluster.file_sha256,
            as_written=_differing(cluster, reached),
        )
    )


def _is_as_before(file: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(read_regular(file, _LIMIT_BYTES)).hexdigest() == sha256
    except OSError:
        return False


def _merged(file: Reach, before: Reach, file_before: Reach | None) -> Reach:
    """What the command line once said (where `before` differs from `file_before`) over what the file still says."""
    if not (isinstance(file, SshSettings) and isinstance(before, SshSettings) and isinstance(file_before, SshSettings)):
        return file
    kept = {
        name: getattr(before, name)
        for name in (field.name for field in dataclasses.fields(SshSettings))
        if getattr(before, name) != getattr(file_before, name) and getattr(file, name) == getattr(file_before, name)
    }
    return dataclasses.replace(file, **kept)


def _differing(cluster: Cluster, reached: Mapping[str, Host]) -> dict[str, Reach]:
    return {name: host.reach for name, host in cluster.hosts.items() if host.reach != reached[name].reach}

"""A checkpoint is brought to this machine, from one host or from all that hold shards of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtctl.agent.records.checkpoints import FetchResult, FilePart, FileSent
from dtctl.errors import DtctlError
from dtctl.operations.asking.conversation import Progress, Report, about, final, request, said
from dtctl.operations.asking.plausible import check_run, wrong
from dtctl.operations.checkpointing.finding import Found
from dtctl.operations.checkpointing.landing import Landing, not_written
from dtctl.operations.memory.record import RunRecord
from dtctl.transport.seam import Session, Transport

_SHARD = re.compile(r"\.data-([0-9]{5})-of-([0-9]{5})\Z")


@dataclass(frozen=True)
class Pulled:
    """What has arrived."""

    found: Found
    files: tuple[Path, ...]
    size_bytes: int
    sent_bytes: int
    """Less than all where an earlier pull had begun."""


def pull(record: RunRecord, transport: Transport, found: Found, directory: Path, report: Report) -> Pulled:
    """Raises DtctlError; what has arrived by then is kept for the next pull, and nothing of it has its final name."""
    if found.checkpoint.kind == "orbax":
        raise DtctlError(
            f"{found.path} is a checkpoint of Orbax, a directory: dtctl does not copy it",
            hint=f"rsync -a {shlex.quote(f'{found.host}:{found.path}')} .    does, by the host's SSH name",
        )
    landing = Landing(directory, found.name)
    try:
        landing.begin()
        fetching = [_Fetching(record, found, host, landing, report) for host in found.hosts]
        sent = [one for each in fetching for one in each.all_of(transport)]
        _refuse_half(found, [one["name"] for one in sent])
        files = landing.finish([one["name"] for one in sent])
    except OSError as error:
        raise not_written(directory, error) from error
    return Pulled(found, files, sum(one["size"] for one in sent), sum(each.sent_bytes for each in fetching))


class _Fetching:
    """What one host has of it."""

    def __init__(self, record: RunRecord, found: Found, host: str, landing: Landing, report: Report) -> None:
        self._record = record
        self._found = found
        self._host = host
        self._landing = landing
        self._report = report
        self.sent_bytes = 0

    def all_of(self, transport: Transport) -> list[FileSent]:
        self._report(Progress(self._host, "connect"))
        session = transport.open(self._record.way_to(self._host))
        try:
            session.send({**request(self._record, session.host, "fetch"), **self._wanted()})
            for message in said(session, "part", most_bytes=None):
                if message.type == "part":
                    with about(self._host, "sent an invalid `part`"):
                        self._take(message.of(FilePart), message.payload)
            answer = final(session, "fetch", message, FetchResult, self._check)
            self._hold(session, answer["files"])
            return answer["files"]
        finally:
            session.close()

    def _wanted(self) -> dict[str, Any]:
        own = [shard for shard, host in self._found.shards.items() if host == self._host]
        return {
            "of": {"dir": self._found.directory, "prefix": self._found.checkpoint.prefix},
            "shards": own if self._found.scattered else None,
            "index": self._host == self._found.host,
            "have": self._landing.have(),
        }

    def _take(self, part: FilePart, data: bytes) -> None:
        end = part["offset"] + len(data)
        if end > part["total"]:
            raise wrong("total", f"at least {end}", part["total"])
        self._landing.put(part["name"], part["offset"], part["identity"], data)
        self.sent_bytes += len(data)
        self._report(Progress(self._host, "pull", end, part["total"], part["name"]))

    def _check(self, answer: FetchResult) -> None:
        check_run(self._record.cluster, self._record.run, answer["run"])

    def _hold(self, session: Session, files: Iterable[FileSent]) -> None:
        for one in files:
            with about(session.host.name, "sent a file that did not arrive as it was read there"):
                self._landing.check(one["name"], one["size"], one["sha256"])


def _refuse_half(found: Found, names: list[str]) -> None:
    """Raises DtctlError where a file is missing: its trainer may have removed it meanwhile."""
    if found.checkpoint.kind == "keras":
        lacking = [] if found.name in names else [found.name]
    else:
        matches = [match for name in names for match in [_SHARD.search(name)] if match]
        there = {int(match.group(1)) for match in matches if int(match.group(2)) == found.checkpoint.shards}
        lacking = [f"shard {shard}" for shard in range(found.checkpoint.shards) if shard not in there]
        lacking += [] if f"{found.name}.index" in names else ["the index"]
    if lacking:
        raise DtctlError(
            f"{found.path} is not whole any more on {', '.join(found.hosts)}: {', '.join(lacking[:5])} missing",
            hint="dtctl checkpoints    shows what is there now",
        )

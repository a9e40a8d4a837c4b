"""A checkpoint is brought to this machine, from one host or from all that hold shards of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtctl.agent.checkpoints import formats, verifying
from dtctl.agent.records.checkpoints import MOST_SHARDS, FetchResult, FilePart, FileSent
from dtctl.errors import DtctlError
from dtctl.operations.checkpointing.finding import Found
from dtctl.operations.checkpointing.landing import Landing, not_written
from dtctl.operations.client.conversation import Progress, Report, about, final, request, said
from dtctl.operations.client.plausible import check_run, wrong
from dtctl.operations.history.record import RunRecord
from dtctl.transport.seam import Session, Transport


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
    names = _names(found)
    try:
        with closing(Landing(directory, found.name, sorted(names), record.project)) as landing:
            fetching = [
                _Fetching(
                    record, found, host, [name for name, holder in names.items() if holder == host], landing, report
                )
                for host in found.hosts
            ]
            sent = [one for each in fetching for one in each.all_of(transport)]
            _refuse_half(found, names.keys() - {one["name"] for one in sent})
            if found.scattered:
                _refuse_damaged(found, landing.parts)
            files = landing.finish([one["name"] for one in sent])
    except OSError as error:
        raise not_written(directory, error) from error
    return Pulled(found, files, sum(one["size"] for one in sent), sum(each.sent_bytes for each in fetching))


def _names(found: Found) -> dict[str, str]:
    """Name -> the host that is asked for it, the index last. Raises DtctlError for what no checkpoint is called."""
    if found.checkpoint.kind == "keras":
        if not formats.KERAS_NAME.match(found.name):
            raise DtctlError(f"{found.name[:80]!r} is no name that Keras gives to a file")
        return {found.name: found.host}
    shards = found.checkpoint.shards
    if shards > MOST_SHARDS:
        raise DtctlError(f"{found.path} has {shards} shards, and at most {MOST_SHARDS} are fetched")
    holders = [found.shards.get(shard, found.host) for shard in range(shards)]
    names = {f"{found.name}.data-{shard:05d}-of-{shards:05d}": host for shard, host in enumerate(holders)}
    return {**names, f"{found.name}.meta": found.host, f"{found.name}.index": found.host}


class _Fetching:
    """What one host is asked for."""

    def __init__(
        self, record: RunRecord, found: Found, host: str, names: Sequence[str], landing: Landing, report: Report
    ) -> None:
        self._record = record
        self._found = found
        self._host = host
        self._names = names
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
        return {
            "of": {"dir": self._found.directory, "prefix": self._found.checkpoint.prefix},
            "files": self._names,
            "have": self._landing.have(self._names),
        }

    def _take(self, part: FilePart, data: bytes) -> None:
        if part["name"] not in self._names:
            raise wrong("name", "a file that it was asked for", part["name"])
        self._landing.put(part, data)
        self.sent_bytes += len(data)
        self._report(Progress(self._host, "pull", part["offset"] + len(data), part["total"], part["name"]))

    def _check(self, answer: FetchResult) -> None:
        check_run(self._record.cluster, self._record.run, answer["run"])
        for one in answer["files"]:
            if one["name"] not in self._names:
                raise wrong("files", "those that it was asked for", one["name"])

    def _hold(self, session: Session, files: Iterable[FileSent]) -> None:
        for one in files:
            with about(session.host.name, "sent a file that did not arrive as it was read there"):
                self._landing.check(one["name"], one["size"], one["sha256"])


def _refuse_half(found: Found, lacking: Set[str]) -> None:
    """Raises DtctlError where a file is missing: its trainer may have removed it meanwhile."""
    missing = sorted(name for name in lacking if not name.endswith(".meta") or name == found.name)
    if missing:
        raise DtctlError(
            f"{found.path} is not whole any more on {', '.join(found.hosts)}: {', '.join(missing[:5])} missing",
            hint="dtctl checkpoints    shows what is there now",
        )


def _refuse_damaged(found: Found, parts: Path) -> None:
    """Raises DtctlError where what several hosts hold makes no sound checkpoint; no host could read all of it."""
    problems = verifying.verify(str(parts / found.name)).problems
    if problems:
        raise DtctlError(
            f"{found.path} is damaged as {', '.join(found.hosts)} hold it: {problems[0]}",
            detail="\n".join(problems[1:]),
            hint="dtctl checkpoints    shows which others there are",
        )

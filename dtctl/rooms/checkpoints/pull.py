"""Copies a checkpoint to this machine, from one host or from all hosts that hold shards of it."""

from __future__ import annotations

import errno
import os
import shlex
import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from dtctl.agent.checkpoints import formats, reading, state_file, verifying
from dtctl.agent.host.budget import Budget
from dtctl.agent.records.checkpoints import MOST_SHARDS, MOST_STORED
from dtctl.agent.records.kinds import InvalidValue
from dtctl.agent.rooms.checkpoints.records import Arrived, FetchResult, FilePart, FileSent, is_path_inside
from dtctl.agent.rooms.checkpoints.storing import Parts, flat, folder_name, path_of
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.folder import PRIVATE, Folder
from dtctl.operations.checkpoints import Found
from dtctl.operations.client import Progress, Report, about, final, frames_of, request
from dtctl.operations.client.plausible import wrong
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.checkpoints.local import is_name
from dtctl.rooms.storage.checkpoints import Download
from dtctl.transport.seam import Session, Transport

_ARCHIVE_S = 600.0


@dataclass(frozen=True)
class Pulled:
    """The result of a pull."""

    found: Found
    files: tuple[Path, ...]
    size_bytes: int
    sent_bytes: int
    """Less than `size_bytes` if the pull resumed an earlier one."""


def pull(record: RunRecord, transport: Transport, checkpoint: Found, directory: Path, report: Report) -> Pulled:
    """Copies the checkpoint. Raises DtctlError; the next pull resumes with the received part, which has no final name
    yet.
    """
    row = formats.BY_KIND[checkpoint.checkpoint["kind"]]
    names = {} if row.is_directory else _names(checkpoint)
    try:
        with closing(Landing(directory, checkpoint.name, sorted(names), record.project, row)) as landing:
            fetching = _sources(record, transport, checkpoint, names, landing, report)
            sent = [one for each in fetching for one in each.all_of()]
            _refuse_half(checkpoint, names.keys() - {one["name"] for one in sent})
            if row.is_directory:
                landing.assemble([one["name"] for one in sent])
            if checkpoint.scattered or checkpoint.is_url:
                _refuse_damaged(checkpoint, landing.path)
            elif row.kind not in ("tensorflow", "keras"):
                _refuse_other(row, checkpoint, landing.path)
            files = landing.finish([one["name"] for one in sent])
    except OSError as error:
        raise not_written(directory, error) from error
    return Pulled(checkpoint, files, sum(one["size"] for one in sent), sum(each.sent_bytes for each in fetching))


def _sources(
    record: RunRecord, transport: Transport, found: Found, names: Mapping[str, str], landing: Landing, report: Report
) -> Sequence[_Fetching | Download]:
    if found.is_url:
        return [Download(found, landing.have(names), landing.put, report)]
    if landing.row.is_directory:
        of_host = _parts(found, landing.row)
    else:
        of_host = {host: [name for name, holder in names.items() if holder == host] for host in found.hosts}
    return [_Fetching(record, transport, found, host, own, landing, report) for host, own in of_host.items()]


def _parts(found: Found, row: formats.Format) -> dict[str, list[str]]:
    """The shards to fetch from each host; no names: all that it has, as the first one has what is not in shards."""
    shard_of = row.shard_of if isinstance(row, formats.DirectoryFormat) else None
    of_host: dict[str, list[str]] = {host: [] for host in found.hosts}
    for shard, holder in found.shards.items():
        if holder != found.host and shard_of is not None:
            of_host[holder].append(shard_of(shard))
    return of_host


def _names(checkpoint: Found) -> dict[str, str]:
    """Name -> the host that is asked for it, the index last. Raises DtctlError for a name that no checkpoint has."""
    row = formats.BY_KIND[checkpoint.checkpoint["kind"]]
    if row is not formats.TENSORFLOW:
        if formats.of_file(checkpoint.name) is not row:
            raise DtctlError(f"{checkpoint.name[:80]!r} is not a name that {row.title} gives to a file")
        return dict.fromkeys([*row.companions(checkpoint.name), checkpoint.name], checkpoint.host)
    shards = checkpoint.checkpoint["shards"]
    if shards > MOST_SHARDS:
        raise DtctlError(f"{checkpoint.path} has {shards} shards, and at most {MOST_SHARDS} are fetched")
    holders = [checkpoint.shards.get(shard, checkpoint.host) for shard in range(shards)]
    names = {f"{checkpoint.name}.data-{shard:05d}-of-{shards:05d}": host for shard, host in enumerate(holders)}
    return {**names, f"{checkpoint.name}.meta": checkpoint.host, f"{checkpoint.name}.index": checkpoint.host}


@dataclass
class _Fetching:
    """The files to fetch from one host."""

    record: RunRecord
    transport: Transport
    found: Found
    host: str
    names: Sequence[str]
    landing: Landing
    report: Report
    sent_bytes: int = 0

    def all_of(self) -> Sequence[Arrived]:
        self.report(Progress(self.host, "connect"))
        with closing(self.transport.open(self.record.route_to(self.host))) as session:
            session.send({**request(self.record, session.host, "fetch"), **self._wanted()})
            for message in frames_of(session, "part", most_bytes=None):
                if message.type == "part":
                    with about(self.host, "sent an invalid `part`"):
                        self._take(message.of(FilePart), message.payload)
            answer = final(self.record, session, "fetch", message, FetchResult, self._check)
            self._hold(session, answer["files"])
            return answer["files"]

    def _wanted(self) -> dict[str, Any]:
        return {
            "of": {"dir": self.found.directory, "prefix": self.found.checkpoint["prefix"]},
            "before": [self.found.directory],
            "files": self.names,
            "have": self.landing.have(None if self.landing.row.is_directory else self.names),
        }

    def _take(self, part: FilePart, data: bytes) -> None:
        if not self._is_asked_for(part["name"]):
            raise wrong("name", "a file that it was asked for", part["name"])
        self.landing.put(part, data)
        self.sent_bytes += len(data)
        self.report(Progress(self.host, "pull", part["offset"] + len(data), part["total"], part["name"]))

    def _check(self, answer: FetchResult) -> None:
        for one in answer["files"]:
            if not self._is_asked_for(one["name"]):
                raise wrong("files", "those that it was asked for", one["name"])

    def _is_asked_for(self, name: str) -> bool:
        any_file = self.landing.row.is_directory and not self.names
        return is_path_inside(name) if any_file else name in self.names

    def _hold(self, session: Session, files: Iterable[FileSent]) -> None:
        for one in files:
            with about(session.host.name, "sent a file that did not arrive as it was read there"):
                self.landing.check(one["name"], one["size"], one["sha256"])


def _refuse_half(found: Found, lacking: Set[str]) -> None:
    """Raises DtctlError if a file is missing: the trainer may have removed it meanwhile."""
    beside = formats.BY_KIND[found.checkpoint["kind"]].companions(found.name)
    needed = (name for name in lacking if name not in beside)
    missing = sorted(name for name in needed if not name.endswith(".meta") or name == found.name)
    if missing:
        raise DtctlError(
            f"{found.path} is not whole any more on {', '.join(found.hosts)}: {', '.join(missing[:5])} missing",
            hint="dtctl checkpoints    lists the checkpoints now",
        )


def _refuse_damaged(checkpoint: Found, parts: Path) -> None:
    """Raises DtctlError if the parts of several hosts make no intact checkpoint; no host could verify all of it."""
    path, row = str(parts / checkpoint.name), formats.BY_KIND[checkpoint.checkpoint["kind"]]
    if row is formats.TENSORFLOW:
        problems = verifying.verify(path).problems
    else:  # a small archive may expand to years of reading
        budget = Budget(time.monotonic() + _ARCHIVE_S, reading.MOST_NAMES)
        problems = verifying.verify_format(path, row, budget).problems
    if problems:
        raise DtctlError(
            f"{checkpoint.path} is damaged as {', '.join(checkpoint.hosts)} hold it: {problems[0]}",
            detail="\n".join(problems[1:]),
            hint="dtctl checkpoints    shows which others there are",
        )


def _refuse_other(row: formats.Format, checkpoint: Found, parts: Path) -> None:
    """Raises DtctlError if a file has the name of a checkpoint, and is none: a `.pth` file may run code elsewhere."""
    try:
        budget = Budget(time.monotonic() + _ARCHIVE_S, reading.MOST_NAMES)
        problem = row.inspect(str(parts / checkpoint.name), budget).problem
    except formats.Foreign:
        problem = f"it is no checkpoint of {row.title}"
    if problem is not None:
        raise DtctlError(f"{checkpoint.path}, as {checkpoint.host} sent it, is not whole: {problem}")


class Landing:
    """Receives the files of one checkpoint, in any order. Raises DtctlError, OSError."""

    def __init__(
        self,
        directory: Path,
        name: str,
        files: Collection[str],
        project: Path | None = None,
        row: formats.Format = formats.TENSORFLOW,
    ) -> None:
        """Raises DtctlError if a checkpoint of this name exists. `files`: those that may arrive; any of a directory."""
        if not is_name(name):
            raise DtctlError(f"{name[:80]!r} is not a name that dtctl gives to a file here")
        self.name = name
        self.row = row
        self._files = files
        self._totals: dict[str, int] = {}
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(Folder(directory, project, make=0o777))
        self._inner = self._stack.enter_context(self._folder.below(folder_name(name), make=PRIVATE))
        if os.fstat(self._inner.descriptor).st_uid != os.geteuid():
            raise DtctlError(f"{self.path} is not a directory of yours", hint="move it away")
        self._parts = Parts(self._folder.descriptor, self._stack.enter_context(self._inner.readable()), name)
        self._parts.take_back(files)
        if row.is_directory:
            self._parts.take_directory_back(name, flat)
        for file in (name,) if row.is_directory else files:
            if self._folder.find(file) is not None:
                if not self._parts.names():
                    self._parts.clear()
                raise DtctlError(f"{directory / file} already exists", hint="name another directory, or move it away")

    @property
    def path(self) -> Path:
        """The directory that receives the files."""
        return self._inner.path

    def close(self) -> None:
        self._stack.close()

    def have(self, names: Collection[str] | None) -> list[dict[str, object]]:
        """The parts of these files that arrived earlier, for the senders, which send the rest. None: of all files."""
        versions = self._parts.versions
        known = [path_of(name) for name in versions] if names is None else names
        return [
            {"name": name, "size": size, "identity": versions[here]}
            for name in known
            if (here := self._here(name)) in versions and (size := self._parts.size(here))
        ]

    def _here(self, name: str) -> str:
        """The name of a file in the directory in which it arrives. Raises InvalidValue for one of something else."""
        if not (is_path_inside(name) if self.row.is_directory else name in self._files):
            raise wrong("name", f"a file of {self.name}", name)
        return flat(name) if self.row.is_directory else name

    def put(self, part: FilePart, data: bytes) -> None:
        """Raises InvalidValue for a file that is not of this checkpoint, or for an offset that does not continue what
        has arrived.
        """
        name, end = self._here(part["name"]), part["offset"] + len(data)
        if len(self._totals) > MOST_STORED:
            raise wrong("name", f"at most {MOST_STORED} files", part["name"])
        if self._parts.versions.get(name) != part["identity"]:
            self._totals.pop(name, None)
            self._parts.expect({name: part["identity"]})
        if name not in self._totals:
            self._totals[name] = part["total"]
            lacking = sum(total - self._parts.size(one) for one, total in self._totals.items())
            self._inner.refuse_without_room(lacking)
        if part["total"] != self._totals[name] or end > part["total"]:
            raise wrong("total", str(max(end, self._totals[name])), part["total"])
        if part["offset"] != (size := self._parts.size(name)):
            raise wrong("offset", str(size), part["offset"])
        self._parts.append(name, data)

    def check(self, name: str, size: int, sha256: str) -> None:
        """Raises InvalidValue and discards the file if it differs from what the host reports to have sent."""
        if not self._parts.verify(self._here(name), size, sha256):
            raise InvalidValue(f"{name} as it arrived", "another checksum")

    def finish(self, names: Collection[str]) -> tuple[Path, ...]:
        """Renames the files to their final names, the index last, and writes `checkpoint` for TensorFlow if there is
        none.
        """
        if self.row.is_directory:
            return self._finish_directory(names)
        ordered = sorted(set(names), key=lambda name: (name.endswith(".index") or name == self.name, name))
        self._parts.move_into_place(ordered)
        if f"{self.name}.index" in ordered:  # `tf.train.latest_checkpoint` finds it by this file
            with suppress(FileExistsError), self._folder.new(state_file.STATE_FILE) as file:
                file.write(
                    f'model_checkpoint_path: "{self.name}"\nall_model_checkpoint_paths: "{self.name}"\n'.encode()
                )
        self._folder.settle()
        self._parts.clear()
        return tuple(self._folder.path / name for name in ordered)

    def assemble(self, names: Collection[str]) -> None:
        """Puts the files of a checkpoint that is a directory into it, which is not in its place yet."""
        self._parts.assemble_directory(self.name, {flat(name): name for name in sorted(set(names))})

    def _finish_directory(self, names: Collection[str]) -> tuple[Path, ...]:
        self._parts.move_directory_into_place(self.name)
        if self.row.pointer is not None:  # the program finds it by this file
            with suppress(FileExistsError), self._folder.new(self.row.pointer) as file:
                file.write(self.name.encode())
        self._folder.settle()
        self._parts.clear()
        return tuple(self._folder.path / self.name / name for name in sorted(set(names)))


def not_written(directory: Path, error: OSError) -> DtctlError:
    """The error for a file that cannot be written here."""
    why = str(error.strerror or error)
    hint = "what has arrived is kept; name another directory"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"df -h {shlex.quote(str(directory))}    shows the disk; what has arrived is kept, and the same command "
        hint += "brings the rest when there is room; or name another directory"
    return DtctlError(f"{directory} cannot be written: {why[:1].lower()}{why[1:]}", hint=hint)

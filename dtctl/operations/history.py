"""The controller's records of runs that were started here, and of the current one. The hosts' own records take
precedence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError
from dtctl.folder import Folder, make_private, read_regular, replace_file
from dtctl.operations.record_files import (
    LIMIT_BYTES,
    DamagedRecord,
    OtherVersion,
    UnreadRecord,
    fits,
    read_record,
    write_record,
)
from dtctl.operations.run_record import FollowedFile, RunRecord, follow_file
from dtctl.paths import check_private, state_directory

if TYPE_CHECKING:
    from dtctl.bundle import Manifest
    from dtctl.config.cluster import Cluster
    from dtctl.operations.credentials import Authority
    from dtctl.operations.failed_starts import FailedStart
    from dtctl.operations.snapshot import RunStatus


@dataclass(frozen=True)
class CodeRecord:
    """The code of a run, as this machine sent it."""

    diff: str
    """Its difference from its commit, as a unified diff; secrets are masked."""
    files: Mapping[str, str]
    """Path -> the beginning of its SHA-256, or the target of a link; none for a tree of very many files."""
    id: str
    """The SHA-256 of its manifest without the cluster's name (`Manifest.code_id`)."""

    @classmethod
    def of(cls, manifest: Manifest, diff: str) -> CodeRecord:
        every = {**{file.path: file.sha256[:16] for file in manifest.files}, **dict(manifest.links)}
        return cls(diff, every if len(every) <= _MOST_FILES else {}, manifest.code_id)

    def differing(self, manifest: Manifest) -> tuple[str, ...]:
        """The paths whose content is another in this manifest, or that only one of them has."""
        return self.differing_from(CodeRecord.of(manifest, "")) or ()

    def differing_from(self, other: CodeRecord) -> tuple[str, ...] | None:
        """The same of two runs; None if one of them has too many files."""
        if not (self.files and other.files):
            return None
        paths = {*self.files, *other.files}
        return tuple(sorted(path for path in paths if self.files.get(path) != other.files.get(path)))


_MOST_FILES = 50_000
_MOST_CODES = 100
"""The runs whose code is known here; beyond these the oldest runs that have ended are removed."""


_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
"""The form of the names of runs' directories on the hosts (dtctl/agent/host/paths.py)."""
_LONGEST_ID = 1000


class Memory:
    """Stores records below `$XDG_STATE_HOME/dtctl`. Losing it loses no run: the hosts know.

    Whatever names a run here, a command line, a host or a file, is an id by its form before a path is made of it.
    Raises PreflightError where other users may write to the directory: they would choose the hosts that are reached.
    """

    def __init__(self, report: Callable[[str], None] = lambda line: None) -> None:
        """`report` receives the records that were set aside."""
        self._directory = state_directory()
        check_private(self._directory)
        self._runs = self._directory / "runs"
        self._current = self._directory / "current"
        self._places = self._directory / "places"
        self._failed = self._directory / "failed_starts"
        self._report = report
        self._before: str | None = None

    def begin(self, record: RunRecord) -> None:
        """Records a run that is about to start, so that it is found again even if this process is killed.

        Raises DtctlError when that cannot be written.
        """
        assert record.run is not None
        with _translated(f"run {record.run} cannot be remembered in {self._directory}", hint=_way_to(record)):
            write_record(self._file(record.run, make=True), dataclasses.replace(record, begun=False))

    def save(self, record: RunRecord) -> None:
        """Records a run and makes it the current one. Raises DtctlError if the record cannot be written."""
        assert record.run is not None
        self._before = self.current_id()
        with _translated(f"run {record.run} cannot be remembered in {self._directory}", hint=_way_to(record)):
            write_record(self._file(record.run, make=True), dataclasses.replace(record, begun=True))
            self.make_current(record.run)
        self.forget_failure(record.file)

    def keep_code(self, run: str, code: CodeRecord) -> None:
        """Records what is known of a run's code beside the run. Without it nothing is lost but that."""
        with suppress(OSError):
            replace_file(self._code_file(run, make=True), json.dumps(dict(vars(code))).encode())
            self._remove_old_code()

    def _remove_old_code(self) -> None:
        """Removes what is known of old code: hosts remove runs by their `ttl`, which this machine is not told."""
        files = sorted(self._runs.glob("*.code"), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in files[_MOST_CODES:]:
            with suppress(UsageError, OtherVersion):
                record = self._load(file.stem)
                if record is None or record.outcome:
                    file.unlink(missing_ok=True)

    def code_of(self, run: str) -> CodeRecord | None:
        """What this machine has recorded of a run's code; None if it did not start the run."""
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            data = json.loads(read_regular(self._code_file(run), LIMIT_BYTES))
            code = CodeRecord(str(data["diff"]), dict(data["files"]), str(data["id"]))
            return code if fits(code, CodeRecord) else None
        return None

    def keep_authority(self, run: str, authority: Authority) -> None:
        """Keeps what signs the certificates of a run's hosts, until the run has ended. Without it no host can join."""
        with suppress(OSError):
            replace_file(self._key_file(run, make=True), json.dumps(authority.to_json()).encode())

    def authority_of(self, run: str) -> Authority | None:
        """What this machine has kept; None if it did not start the run, or the run has ended."""
        from dtctl.operations.credentials import Authority

        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Authority.restored(run, json.loads(read_regular(self._key_file(run), LIMIT_BYTES)))
        return None

    def _forget_authority(self, run: str) -> None:
        with suppress(OSError):
            self._key_file(run).unlink(missing_ok=True)

    def take_back(self, record: RunRecord) -> None:
        """Removes the record of a run whose start was cancelled."""
        assert record.run is not None
        file = self._file(record.run)
        self._forget_authority(record.run)
        with suppress(OSError):
            self._code_file(record.run).unlink(missing_ok=True)
        with _translated(f"run {record.run} was not started, but is still in {self._directory}", hint=_by_hand(file)):
            file.unlink(missing_ok=True)
            if self.current_id() != record.run:
                return
            if self._before is not None:
                self.make_current(self._before)
            else:
                self._current.unlink(missing_ok=True)

    def note_failure(self, record: RunRecord, error: DtctlError) -> None:
        """Records a start that failed before anything ran, which no host knows; if it cannot be written, later commands
        report no run.
        """
        from dtctl.operations.failed_starts import is_refusal, write_failure  # few starts fail

        if record.file is None or is_refusal(error):
            return
        with suppress(OSError):
            make_private(self._failed)
            write_failure(_named_after(self._failed, record.file), record, error)

    def forget_failure(self, file: Path | None) -> None:
        """Removes the file's failed start: a run has started since, or the cluster was removed."""
        if file is not None:
            with suppress(OSError):
                _named_after(self._failed, file).unlink(missing_ok=True)

    def failed_start(self, record: RunRecord, run: str | None = None) -> FailedStart | None:
        """The last start of the record's file if it failed; `run`: only if this is its id."""
        from dtctl.operations.failed_starts import read_failure

        path = _named_after(self._failed, record.file) if record.file else None
        found = read_failure(path) if path is not None and path.exists() else None
        return found if found is not None and run in (None, found.record.run) else None

    def record_of_failed(self, run: str) -> RunRecord | None:
        """The record of a failed start with this run id."""
        from dtctl.operations.failed_starts import read_failure

        every = (read_failure(path) for path in self._failed.glob("*.json"))
        return next((one.record for one in every if one is not None and one.record.run == run), None)

    def change(self, record: RunRecord, **fields: Any) -> None:
        """Records new facts about a recorded run; if the record cannot be written, nothing is lost."""
        if record.run is None:
            return
        with suppress(OSError, UsageError):
            if fields.get("outcome"):
                self._forget_authority(record.run)
            file = self._file(record.run)
            before = self.load(record.run)
            if before is not None and (after := dataclasses.replace(before, **fields)) != before:
                write_record(file, after)

    def remember(self, found: RunStatus) -> None:
        """Records how the run has ended, who coordinates it and where its tasks are, so that other hosts need not be
        asked again.
        """
        outcome, elected = found.verdict.outcome, found.record.elected
        if outcome.decided and found.record.outcome != outcome.value:
            self.change(found.record, outcome=outcome.value)
        if elected is not None:
            self.change(found.record, elected=elected)
        self.note_places(found.record)
        if found.coordination is not None:
            self.change(found.record, bad=found.coordination.bad_hosts)

    def note_places(self, record: RunRecord) -> None:
        """Records where the run's tasks are now, if spares have taken any."""
        if record.moved:
            self.change(record, roster=record.roster)

    def follow(self, record: RunRecord) -> FollowedFile:
        """The record with the routes to its hosts from the current cluster file, which are stored."""

        def read(file: Path) -> Cluster:
            from dtctl.config.load import load_cluster  # imported late: few files have changed, and this imports YAML

            return load_cluster(file, needs_files=False)

        followed = follow_file(record, read)
        if (now := followed.record) is not record:
            routes = ("hosts", "others", "file_sha256", "as_written")
            self.change(now, **{name: getattr(now, name) for name in routes})
        return followed

    def other_file_of(self, run: str, record: RunRecord) -> Path | None:
        """The cluster file by which this machine has started the run, if it is there and is not the record's."""
        other = self.load(run)
        if other is None or other.file is None or record.file is None or not other.file.exists():
            return None
        return other.file if os.path.realpath(other.file) != os.path.realpath(record.file) else None

    def make_current(self, run: str) -> None:
        replace_file(self._current, f"{checked_run(run)}\n".encode())

    def forget(self, run: str) -> None:
        """Removes a run's record. The file's entry stays if it ran on this machine: its hosts may be unreachable."""
        file = self._file(run)
        record = self.load(run)
        with _translated(f"run {run} is removed, but is still in {self._directory}", hint=_by_hand(file)):
            file.unlink(missing_ok=True)
            self._code_file(run).unlink(missing_ok=True)
            self._key_file(run).unlink(missing_ok=True)
            if self.current_id() == run:
                self._current.unlink(missing_ok=True)
        if record and record.file:
            self.keep_place(record, record.file)

    def keep_place(self, record: RunRecord, file: Path) -> None:
        """Records that the file's hosts are this machine, if the record's are; removes an earlier such record."""
        place = self._place_of(file)
        try:
            place.unlink(missing_ok=True)
            if record.is_local:
                make_private(self._places)
                write_record(place, dataclasses.replace(record, run=None))
        except OSError as error:  # little is known about a run that is gone
            self._report(f"{place} cannot be written: {error.strerror}")

    def forget_removed(self, cluster: str, removed: Mapping[str, Collection[str]]) -> None:
        """`removed`: host -> the runs that it reports as removed, which counts for the cluster's runs on that host, and
        on others that are the same machine by their route.
        """
        for record in self.runs():
            own = [host.reach for host in record.hosts.values()]
            every = {**record.others, **record.hosts}
            said = any(record.run in removed.get(name, ()) for name, host in every.items() if host.reach in own)
            if record.run and record.cluster == cluster and said:
                self.forget(record.run)

    def current_id(self) -> str | None:
        try:
            run = read_regular(self._current, _LONGEST_ID).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return run if _RUN.match(run) else None

    def current(self) -> RunRecord | None:
        run = self.current_id()
        return self.load(run) if run else None

    def load(self, run: str) -> RunRecord | None:
        """The record of a run; None if there is none here. Raises UsageError for an invalid run id."""
        try:
            return self._load(run)
        except OtherVersion as reason:
            self._report(f"{self._file(run)} is passed over: {reason}; use the version of dtctl that began the run")
            return None

    def _load(self, run: str) -> RunRecord | None:
        record = self._read(self._file(run))
        return record if record is not None and record.run == run else None

    def runs(self) -> tuple[RunRecord, ...]:
        """All records, newest first, without those of other versions of dtctl."""
        records = []
        for name in (path.stem for path in self._runs.glob("*.json") if _RUN.match(path.stem)):
            with suppress(OtherVersion):
                if (record := self._load(name)) is not None:
                    records.append(record)
        return tuple(sorted(records, key=lambda record: record.created, reverse=True))

    def starts_of(self, record: RunRecord) -> tuple[float, ...]:
        """When the runs of the record's project were started: of the same cluster, or from the same file."""
        real = os.path.realpath(record.file) if record.file else None
        return tuple(
            one.created
            for one in self.runs()
            if one.cluster == record.cluster or (real and one.file and os.path.realpath(one.file) == real)
        )

    def newest_of(self, file: Path, cluster: str | None = None) -> RunRecord | None:
        """The newest run that was started from the file, by any path to it; `cluster`: under this name."""
        real = os.path.realpath(file)
        own = (one for one in self.runs() if one.file and os.path.realpath(one.file) == real)
        return next((one for one in own if cluster in (None, one.cluster)), None)

    def place_of(self, file: Path) -> RunRecord | None:
        """The record of the file's last run, if it ran on this machine and `down` removed it, or of a start that has
        failed since.
        """
        from dtctl.operations.failed_starts import read_failure

        failed, place = read_failure(_named_after(self._failed, file)), self._place_of(file)
        if failed is not None and not (place.exists() and place.stat().st_mtime > failed.at):
            return failed.record
        with suppress(OtherVersion):
            return self._read(place)
        return None

    def _place_of(self, file: Path) -> Path:
        return _named_after(self._places, file)

    def _file(self, run: str, *, make: bool = False) -> Path:
        name = checked_run(run)
        if make:
            make_private(self._runs)
        return self._runs / f"{name}.json"

    def _code_file(self, run: str, *, make: bool = False) -> Path:
        """Its name does not end as those of records do."""
        return self._file(run, make=make).with_suffix(".code")

    def _key_file(self, run: str, *, make: bool = False) -> Path:
        return self._file(run, make=make).with_suffix(".key")

    def _read(self, path: Path) -> RunRecord | None:
        """Reads a record. An invalid one is set aside, so that it is reported once. Raises OtherVersion."""
        try:
            return read_record(path)
        except UnreadRecord as reason:
            self._report(f"{path} cannot be read: {reason}")
            return None
        except DamagedRecord as damage:
            aside = path.with_name(path.name + ".damaged")
            with suppress(OSError), Folder(path.parent) as folder:
                if folder.find(aside.name) is not None:
                    folder.unlink(aside.name)
                folder.move(path.name, folder, aside.name)
                path = aside
            self._report(f"{path} is passed over: {damage}")
            return None


def _named_after(directory: Path, file: Path) -> Path:
    """The path in a directory for what concerns a cluster file, by any path to it."""
    return directory / f"{hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()[:16]}.json"


def of_other_directory(run: str, other: Path, own: Path | None, *, hint: str) -> UsageError:
    """The error for a live run with this cluster's name from another directory. `hint`: the command for that run."""
    return UsageError(
        f"{run} is live, and was started from {other}",
        detail=f"{own} has the same name, by which hosts know a cluster, so they are one cluster there",
        hint=f"{hint}    if you mean that run; or write another `name:` into one of the files",
    )


def checked_run(run: str) -> str:
    """`run` when it has the form of an id, which is one component of a path and nothing else."""
    if not _RUN.match(run):
        raise UsageError(f"{run[:80]!r} is not the id of a run", hint="dtctl runs    lists them")
    return run


def _way_to(record: RunRecord) -> str:
    """The hint that says how to find a run of which this machine has no record."""
    return f"its hosts know it: dtctl status -c {shlex.quote(str(record.file))}" if record.file else ""


def _by_hand(file: Path) -> str:
    return f"rm {shlex.quote(str(file))}    as soon as it can be written to"


@contextmanager
def _translated(what: str, *, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DtctlError(what, detail=str(error.strerror or error).lower(), hint=hint) from error

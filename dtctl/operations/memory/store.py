"""The controller's memory: a record of each run that was started here, and which one is current. Never the truth."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from dtctl.errors import DtctlError, UsageError
from dtctl.operations.memory.files import DamagedRecord, UnreadRecord, read_record, replace_text, write_record
from dtctl.operations.memory.record import RunRecord
from dtctl.places import check_private, make_private, read_regular, state_directory

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
"""The form of the names that hosts give to runs' directories (dtctl/agent/host/paths.py)."""
_LONGEST_ID = 1000


class Memory:
    """Records below `$XDG_STATE_HOME/dtctl`. Losing it loses no run: the hosts know.

    Whatever names a run here, a command line, a host or a file, is an id by its form before a path is made of it.
    Raises PreflightError where other users may write to the directory: they would choose the hosts that are reached.
    """

    def __init__(self, report: Callable[[str], None] = lambda line: None) -> None:
        """`report` hears of records that were put aside."""
        self._directory = state_directory()
        check_private(self._directory)
        self._runs = self._directory / "runs"
        self._current = self._directory / "current"
        self._places = self._directory / "places"
        self._report = report
        self._before: str | None = None

    def save(self, record: RunRecord) -> None:
        """Remembers a run and makes it the current one. Raises DtctlError when that cannot be written."""
        assert record.run is not None
        self._before = self.current_id()
        with _told(f"run {record.run} cannot be remembered in {self._directory}"):
            write_record(self._file(record.run, make=True), record)
            self.make_current(record.run)

    def take_back(self, record: RunRecord) -> None:
        """Forgets a run that was just saved here and came to nothing."""
        assert record.run is not None
        with _told(f"run {record.run} cannot be forgotten in {self._directory}"):
            self._file(record.run).unlink(missing_ok=True)
            if self._before is not None:
                self.make_current(self._before)
            else:
                self._current.unlink(missing_ok=True)

    def make_current(self, run: str) -> None:
        replace_text(self._current, checked_run(run) + "\n")

    def forget(self, run: str) -> None:
        """Of a file whose runs were on this machine this stays known: its hosts may be none that can be reached."""
        with _told(f"run {run} cannot be forgotten in {self._directory}"):
            if (record := self.load(run)) and record.file:
                place = self._place_of(record.file)
                place.unlink(missing_ok=True)
                if record.is_local:
                    make_private(self._places)
                    write_record(place, dataclasses.replace(record, run=None))
            self._file(run).unlink(missing_ok=True)
            if self.current_id() == run:
                self._current.unlink(missing_ok=True)

    def forget_removed(self, cluster: str, removed: Mapping[str, Collection[str]]) -> None:
        """`removed`: host -> the runs that it says it has removed. It is believed of runs of the cluster on itself."""
        for record in self.runs():
            said = any(record.run in runs for host, runs in removed.items() if host in record.hosts)
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
        """None when there is no record of the run here. Raises UsageError for what cannot be the id of a run."""
        record = self._read(self._file(run))
        return record if record is not None and record.run == run else None

    def runs(self) -> tuple[RunRecord, ...]:
        """Newest first."""
        names = [path.stem for path in self._runs.glob("*.json") if _RUN.match(path.stem)]
        records = [record for name in names if (record := self.load(name))]
        return tuple(sorted(records, key=lambda record: record.created, reverse=True))

    def newest_of(self, file: Path) -> RunRecord | None:
        """The newest run that was started from the file."""
        return next((record for record in self.runs() if record.file == file), None)

    def place_of(self, file: Path) -> RunRecord | None:
        """Where the file's last run was, if that was on this machine and it was taken down."""
        return self._read(self._place_of(file))

    def _place_of(self, file: Path) -> Path:
        return self._places / f"{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}.json"

    def _file(self, run: str, *, make: bool = False) -> Path:
        name = checked_run(run)
        if make:
            make_private(self._runs)
        return self._runs / f"{name}.json"

    def _read(self, path: Path) -> RunRecord | None:
        """An invalid record is put aside, so that it is reported once."""
        try:
            return read_record(path)
        except UnreadRecord as reason:
            self._report(f"{path} cannot be read: {reason}")
            return None
        except DamagedRecord as damage:
            aside = path.with_name(path.name + ".damaged")
            with suppress(OSError):
                path.replace(aside)
                path = aside
            self._report(f"{path} is passed over: {damage}")
            return None


def checked_run(run: str) -> str:
    """`run` when it has the form of an id, which is one component of a path and nothing else."""
    if not _RUN.match(run):
        raise UsageError(f"{run[:80]!r} is not the id of a run", hint="dtctl runs    lists them")
    return run


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DtctlError(
            what, detail=str(error.strerror), hint="the hosts know it: dtctl status -c CLUSTER_FILE"
        ) from error

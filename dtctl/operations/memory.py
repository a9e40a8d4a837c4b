"""The controller's memory: a record of each run that was started here, and which one is current. Never the truth."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from pathlib import Path

from dtctl.operations.record import RECORD_VERSION, RunRecord
from dtctl.places import state_directory


class Memory:
    """Records below `$XDG_STATE_HOME/dtctl`. Losing it loses no run: the hosts know."""

    def __init__(self) -> None:
        directory = state_directory()
        self._runs = directory / "runs"
        self._current = directory / "current"
        self._places = directory / "places"

    def save(self, record: RunRecord) -> None:
        """Remembers a run and makes it the current one."""
        assert record.run is not None
        self._runs.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(self._runs / f"{record.run}.json", json.dumps(record.to_json(), indent=1))
        self.make_current(record.run)

    def make_current(self, run: str) -> None:
        _replace(self._current, run + "\n")

    def forget(self, run: str) -> None:
        """Of a file whose runs were on this machine this stays known: its hosts may be none that can be reached."""
        if (record := self.load(run)) and record.file:
            place = self._place_of(record.file)
            place.unlink(missing_ok=True)
            if record.is_local:
                self._places.mkdir(exist_ok=True, mode=0o700)
                _replace(place, json.dumps(dataclasses.replace(record, run=None).to_json(), indent=1))
        (self._runs / f"{run}.json").unlink(missing_ok=True)
        if self.current_id() == run:
            self._current.unlink(missing_ok=True)

    def current_id(self) -> str | None:
        try:
            return self._current.read_text().strip() or None
        except OSError:
            return None

    def current(self) -> RunRecord | None:
        run = self.current_id()
        return self.load(run) if run else None

    def load(self, run: str) -> RunRecord | None:
        """None when there is no record of the run here, or an unreadable one."""
        return _read(self._runs / f"{run}.json")

    def runs(self) -> tuple[RunRecord, ...]:
        """Newest first."""
        names = (path.stem for path in self._runs.glob("*.json"))
        records = [record for name in names if (record := self.load(name))]
        return tuple(sorted(records, key=lambda record: record.created, reverse=True))

    def newest_of(self, file: Path) -> RunRecord | None:
        """The newest run that was started from the file."""
        return next((record for record in self.runs() if record.file == file), None)

    def place_of(self, file: Path) -> RunRecord | None:
        """Where the file's last run was, if that was on this machine and it was taken down."""
        return _read(self._place_of(file))

    def _place_of(self, file: Path) -> Path:
        return self._places / f"{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}.json"


def _read(path: Path) -> RunRecord | None:
    try:
        data = json.loads(path.read_text())
        return RunRecord.from_json(data) if data["version"] == RECORD_VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _replace(path: Path, text: str) -> None:
    """Writes 0600 and all at once: a reader sees the old text or the new."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    Path(temporary).replace(path)

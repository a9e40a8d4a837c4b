"""Starts that failed before anything ran. No host knows a run of them; this machine keeps the last one of each file."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtctl.agent.records.reasons import fact
from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, DtctlError, UsageError, advice
from dtctl.folder import read_regular, replace_file
from dtctl.operations.engines import StillHeld
from dtctl.operations.record_files import LIMIT_BYTES, DamagedRecord, OtherVersion, record_from
from dtctl.operations.run_record import RunRecord
from dtctl.operations.runs import KnownRun
from dtctl.operations.snapshot import Outcome, RunStatus, Verdict
from dtctl.transport.fanout import SomeHostsFailed
from dtctl.transport.group_errors import group_errors

_VERSION = 1
_REFUSALS = frozenset({"changed_run", "locked"})
"""Error codes of hosts on which a live run, or another command, comes first."""


@dataclass(frozen=True)
class FailedStart:
    """`record`: the run that `up` tried to start; `error`: as `up` has shown it, at the time `at`."""

    record: RunRecord
    error: DtctlError
    at: float

    @property
    def verdict(self) -> Verdict:
        return Verdict(Outcome.FAILED, (fact("not_started", text=self.error.summary),))

    def status(self, errors: Mapping[str, DtctlError] | None = None) -> RunStatus:
        """The start as the status of a run that has failed without a task. `errors`: hosts that give no answer now."""
        new = self._new(errors or {})
        return RunStatus(self.record, {}, self.verdict, (), self.at, errors=new, not_started=self.error)

    def _new(self, errors: Mapping[str, DtctlError]) -> dict[str, DtctlError]:
        """The errors that are not the cause of the failed start, which is shown as that."""
        said = {self.error.summary, *self.error.detail.splitlines()}
        known = {host for group in group_errors(errors) if group.summary in said for host in group.hosts}
        return {host: error for host, error in errors.items() if host not in known}

    def known_run(self, by: str) -> KnownRun:
        """The start as an entry of `runs`; `by`: this user."""
        record = self.record
        hosts = record.task_hosts
        return KnownRun(str(record.run), record.cluster, record.created, False, hosts, {}, self.verdict, by)

    def comes_after(self, found: RunStatus, newest: RunRecord | None) -> bool:
        """Whether the run that hosts report, if any, had ended before this start failed.

        `newest`: the newest run of the file that was started from this machine. Where hosts gave no answer it may be
        live unless its outcome is known.
        """
        if not found.time:
            return not found.errors or newest is None or bool(newest.outcome)
        ends = [past["ended"] for task in found.tasks.values() for past in task.entry["history"]]
        return found.verdict.outcome.decided and max(ends, default=found.record.created) < self.at


def is_refusal(error: DtctlError) -> bool:
    """Whether `up` has not tried: a live run comes first, or the command line is wrong."""
    if isinstance(error, SomeHostsFailed):
        return any(map(is_refusal, error.errors.values()))
    return isinstance(error, UsageError | StillHeld) or (isinstance(error, AgentError) and error.code in _REFUSALS)


def write_failure(path: Path, record: RunRecord, error: DtctlError) -> None:
    summary, detail = error.summary, error.detail
    if isinstance(error, SomeHostsFailed):
        first, *others = group_errors(error.errors)
        summary, detail = first.summary, "\n".join(filter(None, [first.detail, *(one.summary for one in others)]))
    hint = advice(error) or (advice(first.first) if isinstance(error, SomeHostsFailed) else "")
    fields = {"summary": summary, "detail": detail, "hint": hint, "at": time.time()}
    replace_file(path, json.dumps({"version": _VERSION, "record": record.to_json(), **fields}).encode())


def read_failure(path: Path) -> FailedStart | None:
    """None for a file that is damaged or of another version: it only repeats what `up` has shown."""
    try:
        found: Mapping[str, Any] = json.loads(read_regular(path, LIMIT_BYTES))
        if found["version"] != _VERSION:
            return None
        record = record_from(found["record"])
        summary, detail, hint = (str(found[name]) for name in ("summary", "detail", "hint"))
        at = float(found["at"])
    except (OSError, DamagedRecord, OtherVersion, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not (record.run and math.isfinite(at)):
        return None
    return FailedStart(record, DtctlError(summary, detail=detail, hint=hint), at)

"""Runs side by side: what differs in how they were started, how far they came, how fast, and how well."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from dtctl.bundle.git_repository import commits_between
from dtctl.bundle.unified_diff import between_differences
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import grouped
from dtctl.operations.client.persistent import for_one_command
from dtctl.operations.figures import elapsed_s
from dtctl.operations.goodput import Goodput, goodput_of, points_of
from dtctl.operations.history import CodeRecord
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.status import status, with_storage
from dtctl.rooms.metrics.operation import Metrics, Series, read_metrics
from dtctl.rooms.pages.report import RATE_TAGS, Report, own_of
from dtctl.rooms.pages.report.logged import logged_series
from dtctl.rooms.pages.speed_parts import Parts, parts_of
from dtctl.transport.seam import Transport

_POINTS = 400

_LOWER_IS_BETTER = re.compile(r"loss|err|perplexity|\b(mae|mse|rmse|wer|cer)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Metric:
    """One scalar of one run."""

    last: float
    best: float | None
    """The minimum of a loss or an error, the maximum of anything else; None if no value is finite."""


@dataclass(frozen=True)
class Compared:
    """One run."""

    status: RunStatus
    goodput: Goodput | None
    duration_s: float | None
    """The seconds from the start of the run to its outcome, or until now."""
    steps_per_s: float | None
    """The rate between the first and the last point of its scalars; without scalars the last rate in its log."""
    restarts: int
    """The number of restarts of all its tasks."""
    metrics: Mapping[str, Metric]
    """Metrics by tag, prefixed with the event directory's name unless that is `.` or `train`."""
    series: tuple[Series, ...]
    errors: Mapping[str, DtctlError]
    """Host -> why it did not answer completely."""
    parts: Parts | None = None
    """The parts of a step, where they were measured."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the run, with the hosts of each job as the hosts report them."""
        record = self.status.record
        jobs = grouped((f"jobs.{task.job}.hosts", host) for task, host in record.roster.items())
        return {**record.settings, **{key: " ".join(hosts) for key, hosts in jobs.items()}}


@dataclass(frozen=True)
class Between:
    """The code of two runs."""

    old: str
    new: str
    """Run ids."""
    added: tuple[str, ...] | None
    """Commits that only the new one has, the newest first; None: this machine's repository does not have both."""
    removed: tuple[str, ...] | None
    """Commits that only the old one has."""
    files: tuple[str, ...] | None
    """Paths whose content differs; None: unknown, as another machine has started one of them."""
    difference: tuple[str, ...] | None = ()
    """The lines by which the uncommitted changes of one commit differ; None: it would take long."""


CodeOf = Callable[[str], CodeRecord | None]
"""What this machine knows of the code of a run."""


def between(runs: Mapping[str, Compared], code_of: CodeOf) -> list[Between]:
    """Each run's code beside that of the run before it; nothing for the same code."""
    return [
        found
        for (old, before), (new, after) in pairwise(runs.items())
        if (found := _between(old, before.status.record, new, after.status.record, code_of)) is not None
    ]


def _between(old: str, before: RunRecord, new: str, after: RunRecord, code_of: CodeOf) -> Between | None:
    files: tuple[str, ...] | None = None
    difference: tuple[str, ...] | None = ()
    if (known := code_of(old)) is not None and (other := code_of(new)) is not None:
        files, difference = known.differing_from(other), between_differences(known.diff, other.diff)
    commits, of_old, of_new = None, before.revision, after.revision
    if of_old is not None and of_new is not None and of_old.commit != of_new.commit and after.project is not None:
        commits = commits_between(_code_directory(after, after.project), of_old.commit, of_new.commit)
    same_commit = of_old == of_new or (of_old and of_new and of_old.commit == of_new.commit)
    sent = [record.settings.get("trainer.code") for record in (before, after)]
    same_code = sent[0] == sent[1] if all(sent) else not files
    if same_commit and same_code:
        return None
    added, removed = (tuple(commits[0]), tuple(commits[1])) if commits else ((), ()) if same_commit else (None, None)
    return Between(old, new, added, removed, files, difference if same_commit and of_old is not None else ())


def _code_directory(record: RunRecord, project: Path) -> Path:
    """The directory of `trainer.code` in the run's cluster file, as it is now."""
    from dtctl.config.load import load_cluster  # imported late: it imports YAML

    try:
        return load_cluster(record.file, needs_files=False).trainer.code if record.file is not None else project
    except DtctlError:
        return project


@dataclass(frozen=True)
class Comparison:
    runs: Mapping[str, Compared]
    """Runs by id, in the order asked."""
    errors: Mapping[str, DtctlError]
    """Run -> why it is unknown."""

    @property
    def failed(self) -> dict[str, DtctlError]:
        """The errors of runs or hosts about which some facts are missing."""
        return {**self.errors, **{host: error for one in self.runs.values() for host, error in one.errors.items()}}

    @property
    def differences(self) -> dict[str, tuple[str | None, ...]]:
        """Key -> its value in each run; None: the file does not set it, or the run is of an earlier version."""
        known = [one.settings for one in self.runs.values()]
        keys = sorted({key for settings in known for key in settings})
        values = {key: tuple(settings.get(key) for settings in known) for key in keys}
        return {key: each for key, each in values.items() if len(set(each)) > 1}


def compare(records: Sequence[RunRecord], transport: Transport) -> Comparison:
    """Asks the hosts of each run over one connection. `records` name runs."""
    runs: dict[str, Compared] = {}
    errors: dict[str, DtctlError] = {}
    for record in records:
        assert record.run is not None
        try:
            with for_one_command(transport) as kept:
                found = with_storage(status(record, kept))
                if not found.time:
                    raise next(iter(found.errors.values()), DtctlError(f"run {record.run} is unknown on all hosts"))
                scalars = own_of(read_metrics(found.record, kept, [], points=_POINTS), found.record)
                logged = () if scalars.series else logged_series(found.record, kept)
                parts = parts_of(found.record, kept)
        except DtctlError as error:
            errors[record.run] = error
            continue
        runs[record.run] = compared(found, scalars, logged, parts)
    return Comparison(runs, errors)


def beside(report: Report, records: Sequence[RunRecord], transport: Transport) -> Comparison:
    """The run of the report first, and then the others."""
    run = report.status.record.run
    assert run is not None
    others = compare(records, transport)
    parts = parts_of(report.status.record, transport)
    own = compared(report.status, report.scalars, report.logged, parts)
    return Comparison({run: own, **others.runs}, others.errors)


def compared(
    found: RunStatus,
    scalars: Metrics,
    logged: Sequence[Series] = (),
    measured: tuple[Parts | None, Mapping[str, DtctlError]] = (None, {}),
) -> Compared:
    """One run. `logged`: the curves by the log of the lead, where there are no scalars. `measured`: the parts of its
    steps, and the hosts that did not answer.
    """
    parts, errors = measured
    return Compared(
        status=found,
        goodput=goodput_of(found, points_of(scalars.series)),
        duration_s=elapsed_s(found),
        steps_per_s=_pace(scalars.series, found.record.created) or _last_rate(found),
        restarts=found.restarts,
        metrics=_metrics(scalars.series),
        series=(*scalars.series, *logged),
        errors={**errors, **scalars.errors, **found.errors},
        parts=parts,
    )


def _pace(series: Iterable[Series], since: float) -> float | None:
    """Steps per second between the first and the last point of this run: an earlier one may have written others."""
    points = [point for point in points_of(series) if point.time >= since]
    if len(points) < 2 or points[-1].time <= points[0].time:
        return None
    return max(0.0, (points[-1].step - points[0].step) / (points[-1].time - points[0].time)) or None


def _last_rate(found: RunStatus) -> float | None:
    """The last rate of the lead, or of another task that has reported one."""
    tasks = sorted(found.tasks.values(), key=lambda task: task.id != found.record.lead)
    return next((task.entry["rate"] for task in tasks if task.entry["rate"]), None)


def _metrics(series: Iterable[Series]) -> dict[str, Metric]:
    """The metrics by tag; of several directories with the same name the first counts, which is the coordinator's."""
    found: dict[str, Metric] = {}
    for one in series:
        if one.last is not None and one.tag not in RATE_TAGS:
            best = one.least if _LOWER_IS_BETTER.search(one.tag) else one.most
            name = one.tag if one.name in (".", "train") else f"{one.tag} ({one.name})"
            found.setdefault(name, Metric(one.last.value, best))
    return found

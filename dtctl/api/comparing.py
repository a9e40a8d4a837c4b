"""The runs that hosts know, and runs side by side."""

from __future__ import annotations

from collections.abc import Mapping

from dtctl.agent.records.reasons import sentence
from dtctl.api.cluster import Cluster, all_of, log, memory
from dtctl.api.run import Run
from dtctl.dataclass import dataclass
from dtctl.errors import UsageError
from dtctl.model import Revision, TaskState
from dtctl.operations.run_record import record_of
from dtctl.operations.snapshot import Outcome
from dtctl.plan import plan_roster
from dtctl.render.format import number
from dtctl.rooms.pages.comparing import Compared, Metric
from dtctl.rooms.pages.comparing import Comparison as Found
from dtctl.rooms.pages.comparing import compare as compared


@dataclass(frozen=True)
class KnownRun:
    """A run as the hosts know it."""

    id: str
    """The run's id, for `attach`."""
    created: float
    live: bool
    """Something of it still runs, or is to be started."""
    outcome: Outcome | None
    """None: the host of its coordinator does not answer."""
    why: str
    hosts: tuple[str, ...]
    tasks: Mapping[str, TaskState]
    """Task (JOB:INDEX, as worker:1) -> its state."""
    started_by: str
    """user@host."""
    commit: str
    """The commit of its code; "" if that was in no repository."""


@dataclass(frozen=True)
class ComparedRun:
    """How one run was started, and how far it came."""

    id: str
    outcome: Outcome
    why: str
    duration: float | None
    """The time until its end, or until now."""
    step: int | None
    loss: float | None
    steps_per_second: float | None
    goodput: float | None
    """The share of its time in which it trained steps that counted."""
    restarts: int
    metrics: Mapping[str, Metric]
    settings: Mapping[str, str]
    """Key of the cluster file -> its value."""
    revision: Revision | None
    """The version of the code; None if it was in no repository."""


@dataclass(frozen=True)
class Comparison:
    """Runs side by side, in the order in which they were named."""

    runs: tuple[ComparedRun, ...]
    differences: Mapping[str, tuple[str | None, ...]]
    """Key of the cluster file -> its value in each run; None: not set."""


def runs(cluster: Cluster) -> list[KnownRun]:
    """The runs of the cluster that its hosts know, the newest first. Hosts that give no answer are logged as warnings.

    Raises errors.TransportError when no host can be reached.
    """
    from dtctl.operations.runs import known_runs

    remembered = memory()
    known = remembered.newest_of(cluster.file, cluster.name)
    record = remembered.follow(known or record_of(plan_roster(cluster.checked.cluster))).record
    found = known_runs(record, cluster.transport)
    if not found.runs:
        all_of("list the runs", record.hosts, found.errors)
    for place, problem in [*found.errors.items(), *((one["host"], one["problem"]) for one in found.damaged)]:
        log.warning("%s: %s", place, problem)
    return [
        KnownRun(
            run.run,
            run.created,
            run.live,
            run.verdict.outcome if run.verdict else None,
            sentence(run.verdict.why) if run.verdict else "",
            run.hosts,
            {str(task): state for task, state in run.tasks.items()},
            run.by,
            run.commit,
        )
        for run in found.runs
    ]


def compare(*runs: Run) -> Comparison:
    """Settings, outcome, speed and metrics of two runs or more, of whatever clusters.

    Hosts that give no answer are logged as warnings; raises errors.DtctlError for a run of which nothing is known.
    """

    if len({run.id for run in runs}) < 2:
        raise UsageError("compare takes two runs or more", hint="dtctl.runs(cluster)    lists them")
    found = Found({}, {})
    for run in runs:
        each = compared([run._known()], run._transport)
        if each.errors:
            raise each.errors[run.id]
        found = Found({**found.runs, **each.runs}, {})
    for host, error in found.failed.items():
        log.warning("%s: %s", host, error)
    return Comparison(tuple(map(_compared, found.runs.values())), found.differences)


def _compared(one: Compared) -> ComparedRun:
    status = one.status
    assert status.record.run is not None
    return ComparedRun(
        id=status.record.run,
        outcome=status.verdict.outcome,
        why=sentence(status.verdict.why),
        duration=one.duration_s,
        step=status.progress.step,
        loss=number(status.progress.loss),
        steps_per_second=one.steps_per_s,
        goodput=one.goodput.share if one.goodput is not None else None,
        restarts=one.restarts,
        metrics=one.metrics,
        settings=one.settings,
        revision=status.record.revision,
    )

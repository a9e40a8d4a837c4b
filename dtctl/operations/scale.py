"""Let more or fewer tasks of a job run: while the others train, or with a restart of all that train together."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from dtctl.agent.records.spec import trainers_of
from dtctl.agent.run import drains
from dtctl.agent.run.gang import may_scale, out_beyond
from dtctl.dataclass import dataclass
from dtctl.errors import UsageError, did_you_mean
from dtctl.model import TaskId
from dtctl.operations.coordinator import Own, ask_coordinator, ask_run, request_of_status
from dtctl.operations.drain import request_to_hold, request_to_release, restarted_with
from dtctl.operations.restart import RestartResult, statuses, why_unreached
from dtctl.operations.stop import OnStopping, StopOrder, StopResult, result_by_hosts, unseen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dtctl.agent.records import answers as records
    from dtctl.agent.records.spec import Inventory
    from dtctl.agent.records.whole_run import RunView
    from dtctl.operations.run_record import RunRecord
    from dtctl.transport.seam import Transport

RESTARTS = "dtctl up --replace    restarts the run from its checkpoints, with jobs.{}.replicas and hosts as in the file"


@dataclass(frozen=True)
class Scaling:
    """What is to change in a run; `before` and `count` are numbers of tasks of the job."""

    record: RunRecord
    job: str
    before: int
    count: int
    starts: tuple[TaskId, ...]
    stops: tuple[TaskId, ...]
    restarts: tuple[TaskId, ...] = ()
    """All others that train together with these."""

    @property
    def ends(self) -> tuple[TaskId, ...]:
        return *self.stops, *self.restarts


def plan_scaling(record: RunRecord, transport: Transport, job: str, count: int) -> Scaling:
    """Asks the coordinator, changes nothing. Raises UsageError for what the run has no place for, or cannot do."""

    def request(asked: RunRecord, own: Own) -> records.StatusResult:
        return ask_coordinator(asked, transport, request_of_status(asked))

    known, answer, _ = ask_run(record, transport, request, reads=True)
    inventory, view = answer["inventory"], answer["coordination"]
    if inventory is None or view is None:
        raise UsageError(f"there is no run of {record.cluster} to scale", hint="dtctl up    starts one")
    return _plan(known.as_known(inventory), inventory, view, job, count)


def scale_down(scaling: Scaling, transport: Transport, order: StopOrder, report: OnStopping = unseen) -> StopResult:
    """Returns when the tasks have ended wherever they can be reached."""

    def request(asked: RunRecord, own: Own) -> records.StopResult:
        wanted = request_to_hold(asked, order, report, job=scaling.job, count=scaling.count)
        return ask_coordinator(asked, transport, wanted)

    asked, answer, _ = ask_run(scaling.record, transport, request)
    known = asked.as_known(answer["inventory"])
    result = dataclasses.replace(result_by_hosts(known, {known.coordinator: answer}, {}), known=known)
    return dataclasses.replace(result, promised=tuple(answer["unreached"]))


def scale_up(scaling: Scaling, transport: Transport, *, by: str) -> RestartResult:
    """Returns when the tasks run, or it is clear which of them wait for a host that is away."""

    def request(asked: RunRecord, own: Own) -> records.RestartResult:
        return ask_coordinator(asked, transport, request_to_release(asked, by, job=scaling.job, count=scaling.count))

    asked, answer, _ = ask_run(scaling.record, transport, request)
    known = asked.as_known(answer["inventory"])
    away = {host: why_unreached(host, answer["coordination"]) for host in answer["unreached"]}
    return RestartResult(statuses(known, tuple(known.roster), [answer]), away)


def _plan(record: RunRecord, run: Inventory, view: RunView, job: str, count: int) -> Scaling:
    tasks = [str(task) for task in record.roster if task.job == job]
    if not tasks:
        jobs = list(dict.fromkeys(task.job for task in record.roster))
        hint = did_you_mean(job, jobs) or f"its jobs: {', '.join(jobs)}"
        raise UsageError(f"run {record.run} has no job {job}", hint=hint)
    if count > len(tasks):
        raise UsageError(f"run {record.run} has places for {len(tasks)} tasks of {job}", hint=RESTARTS.format(job))
    beyond = drains.beyond(job, count, "", tasks)
    held = drains.scaled_down(job, view["intents"])
    if not may_scale(run, job, beyond, view["intents"]):
        raise _refusal(record, run, job, list(beyond), out_beyond(job, beyond, view["intents"]))
    starts = [task for task in held if task not in beyond]
    stops = [task for task in beyond if task not in held]
    going = restarted_with(run, view, [*starts, *stops])
    return Scaling(record, job, len(tasks) - len(held), count, _ids(starts), _ids(stops), _ids(going))


def _ids(tasks: Iterable[str]) -> tuple[TaskId, ...]:
    return tuple(map(TaskId.parse, tasks))


def _refusal(record: RunRecord, run: Inventory, job: str, beyond: Sequence[str], out: Collection[str]) -> UsageError:
    left = [task for task in trainers_of(run["roster"], run["lead"]) if task not in out]
    least = run["min_workers"]
    if least is not None and len(left) < least:
        summary = f"{len(left)} tasks of run {record.run} would train, and recovery.min_workers is {least}"
        return UsageError(summary, hint="min_workers counts all that train, the lead too")
    summary = f"run {record.run} trains as {run['strategy']}: it cannot continue without {', '.join(beyond[:5])}"
    return UsageError(summary, hint=RESTARTS.format(job))

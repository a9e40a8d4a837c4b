"""Drains a host for maintenance and lets it return; changes how many tasks of a job run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Generic, TypeVar

from dtctl.agent.records import answers as records
from dtctl.agent.records.spec import Inventory, trainers_of
from dtctl.agent.records.values import FINAL
from dtctl.agent.records.whole_run import RunView
from dtctl.agent.run import drains
from dtctl.agent.run.gang import goes_on_without, may_scale, out_beyond
from dtctl.config.ranges import fold
from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, DtctlError, TransportError, UsageError, did_you_mean
from dtctl.model import Host, TaskId
from dtctl.operations.client import Request, ask_hosts, knows_no_run
from dtctl.operations.client.plausible import check_part, check_tasks
from dtctl.operations.coordinator import First, ask_about, ask_whole_run, request_of_status
from dtctl.operations.restart import RestartResult, statuses, why_unreached
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import CoordinatorUnreachable
from dtctl.operations.stop import (
    Before,
    OnStopping,
    StopOrder,
    StopResult,
    check_ended,
    ending,
    listener,
    once,
    result_by_hosts,
    unseen,
)
from dtctl.transport.seam import Session, Transport
from dtctl.transport.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from dtctl.agent.records import answers as records

R = TypeVar("R", records.StopResult, records.RestartResult)

Held = Callable[["Inventory", "RunView"], Collection[str]]
"""The tasks that a request affects, by the coordinator's view."""


def drain(
    record: RunRecord,
    transport: Transport,
    host: str,
    order: StopOrder,
    report: OnStopping = unseen,
    before: Before = lambda found: None,
) -> StopResult:
    """Ends the host's tasks and holds them, with all that cannot continue without them.

    The coordinator does so; if it is away, or does not reach the host, the host itself is asked about its own tasks.
    `before` is called with the tasks that will be held.
    """

    def wanted(asked: RunRecord) -> Request[records.StopResult]:
        return request_to_hold(asked, order, report, drained=host)

    replies = _ask(record, transport, host, wanted, _to_be_held(host), before)
    known = replies.record
    result = dataclasses.replace(
        result_by_hosts(known, replies.answers, replies.errors), away=replies.away, known=known
    )
    if host in replies.unreached:
        direct = _ask_directly(known.with_short_timeouts([host]), transport, wanted(known), host, {})
        result = result.and_then(result_by_hosts(known, *direct))
    promised = [one for one in replies.unreached if one != host or isinstance(result.errors.get(one), TransportError)]
    return dataclasses.replace(result, promised=tuple(promised))


def undrain(
    record: RunRecord, transport: Transport, host: str, *, by: str, before: Before = lambda found: None
) -> RestartResult:
    """Lets everything run again that the host's drain holds, and no other's."""

    def wanted(asked: RunRecord) -> Request[records.RestartResult]:
        return request_to_release(asked, by, drained=host)

    try:
        replies = _ask(
            record, transport, host, wanted, lambda run, view: drains.tasks_of(host, view["intents"]), before
        )
    except (AgentError, UsageError) as error:
        if isinstance(error, AgentError) and error.code not in ("run_ended", "no_run"):
            raise
        if not _readmit(record, transport, host):
            raise
        return RestartResult((), excused=True)
    if host in replies.errors and knows_no_run(replies.errors[host]) and _readmit(record, transport, host):
        return RestartResult((), excused=True)
    tasks = statuses(replies.record, tuple(replies.record.roster), list(replies.answers.values()))
    away = {other: why_unreached(other, replies.view) for other in replies.unreached}
    return RestartResult(tasks, {**replies.errors, **away}, replies.away)


def _readmit(record: RunRecord, transport: Transport, host: str) -> bool:
    """Whether the host had been left out of a run that has ended, or in which it has no part any more.

    Raises the error of that host if it gives no answer.
    """
    known = {**record.others, **record.hosts}
    if host not in known:
        return False
    asked = dataclasses.replace(record, hosts=known)
    request = Request("readmit", records.ReadmitResult, lambda _: {"readmitted": host})
    outcomes = ask_hosts(asked, transport, request, dict.fromkeys([host, *record.hosts]))
    if host in outcomes.errors:
        raise outcomes.errors[host]
    return outcomes.results[host]["readmitted"]


def request_to_hold(
    asked: RunRecord, order: StopOrder, report: OnStopping, **about: str | int
) -> Request[records.StopResult]:
    """A request to hold tasks. `about`: the fields of DrainRequest that say which."""
    fields = {**about, "by": order.by, "grace_s": order.grace_s}

    def check(at: Host, answer: records.StopResult) -> None:
        check_ended(answer, check_part(asked, at, answer))

    return Request(
        "drain", records.StopResult, lambda _: fields, check, order.patience_s(asked), listener(asked, report)
    )


def request_to_release(asked: RunRecord, by: str, **about: str | int) -> Request[records.RestartResult]:
    """A request to release tasks. `about`: the fields of UndrainRequest that say which."""

    def check(at: Host, answer: records.RestartResult) -> None:
        check_tasks("tasks", answer["tasks"], check_part(asked, at, answer))

    fields = {**about, "by": by}
    return Request("undrain", records.RestartResult, lambda _: fields, check, PATIENCE_S + 2 * asked.grace_s)


@dataclass(frozen=True)
class _Heard(Generic[R]):
    """The answers of hosts about themselves, and then the coordinator's, if it answered."""

    record: RunRecord
    """The run as its hosts report it."""
    answers: Mapping[str, R]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    away: CoordinatorUnreachable | None = None
    unreached: Sequence[str] = ()
    """Hosts that the coordinator does not reach."""
    view: RunView | None = None


def _ask(
    record: RunRecord,
    transport: Transport,
    host: str,
    wanted: Callable[[RunRecord], Request[R]],
    held: Held,
    before: Before,
) -> _Heard[R]:
    """Asks the coordinator, or the host itself where that is away. `before` is called with what is `held`."""
    before = once(before)
    try:
        known, answer, own = ask_about(record, transport, lambda asked, _: wanted(asked), _pinned(host, held, before))
    except CoordinatorUnreachable as away:
        known = away.found.record if away.found is not None else record
        _check_place(known, host)
        if not known.tasks_on(host):
            raise
        before(ending(known, known.tasks_on(host)))
        return _Heard(known, *_ask_directly(known, transport, wanted(known), host, away.own), away=away)
    answers = {**own, known.coordinator: answer}
    return _Heard(known, answers, unreached=answer["unreached"], view=answer["coordination"])


def _ask_directly(
    record: RunRecord, transport: Transport, wanted: Request[R], host: str, own: Mapping[str, R]
) -> tuple[Mapping[str, R], Mapping[str, DtctlError]]:
    """The host's own answer, unless it has given one already."""
    if host in own:
        return {host: own[host]}, {}
    outcomes = ask_hosts(record, transport, wanted, [host])
    return outcomes.results, outcomes.errors


def restarted_with(run: Inventory, view: RunView, changed: Collection[str]) -> list[str]:
    """Running tasks that restart because tasks that train together with them are held or released."""
    needed = [one["task"] for one in run["roster"] if drains.needs_the_run(one, run["strategy"])]
    if not set(needed).intersection(changed):
        return []
    going = {task for task, intent in view["intents"].items() if intent["want"] == "run"} - _ended(view) - {*changed}
    return [task for task in needed if task in going]


def _ended(view: RunView) -> set[str]:
    states = [contact["state"] for contact in view["hosts"].values() if contact["state"] is not None]
    return {task for state in states for task, entry in state["tasks"].items() if entry["state"] in FINAL}


def _spares(run: Inventory, view: RunView, without: str) -> tuple[str, ...]:
    busy = {one["host"] for one in run["roster"]} | {without}
    known = {host: contact for host, contact in view["hosts"].items() if host in run["spares"] and host not in busy}
    return tuple(host for host, one in known.items() if one["connected"] and one["drained"] is None)


def _pinned(host: str, held: Held, before: Before) -> First:
    """Asks the coordinator first which tasks the request affects, and pins it to the current run."""

    def first(record: RunRecord, session: Session) -> RunRecord:
        found, answer = ask_whole_run(record, session)
        run, view = answer["inventory"], answer["coordination"]
        assert run is not None
        assert view is not None
        _check_place(found, host)
        tasks = held(run, view)
        about = ending(found, [*map(TaskId.parse, tasks)], [*map(TaskId.parse, restarted_with(run, view, tasks))])
        if not found.tasks_on(host):
            spares = _spares(run, view, host) if host in run["spares"] else None
            about = dataclasses.replace(about, is_idle=True, spares=spares)
        before(about)
        return dataclasses.replace(record, run=found.run)

    return first


def _to_be_held(host: str) -> Held:
    def held(run: Inventory, view: RunView) -> Collection[str]:
        here = [host for host, contact in view["hosts"].items() if not contact["absent"]]
        members = [one for one in run["roster"] if one["host"] in here and one["task"] in view["intents"]]
        ended, alone = _ended(view), goes_on_without(run, host, view["intents"])
        tasks = drains.held_by(host, members, run["strategy"], view["intents"], ended, alone=alone)
        return [task for task in tasks if not (task in ended or drains.is_drained(view["intents"][task]))]

    return held


def _check_place(record: RunRecord, host: str) -> None:
    """Raises UsageError for a host that has no task of the run."""
    if host not in record.hosts:
        hint = f"its hosts: {fold(record.hosts)}"
        raise UsageError(f"{host} is not part of {record.run or record.cluster}", hint=hint)


RESTARTS = "dtctl up --replace    restarts the run from its checkpoints, with jobs.{}.replicas and hosts as in the file"


JOINS = "dtctl up    lets hosts that are new in the file join it with their tasks, which scale then starts"


@dataclass(frozen=True)
class Scaling:
    """The changes of `scale` in a run; `before`, `count` and `places` are numbers of tasks of the job."""

    record: RunRecord
    job: str
    before: int
    count: int
    places: int
    starts: tuple[TaskId, ...]
    stops: tuple[TaskId, ...]
    restarts: tuple[TaskId, ...] = ()
    """All other tasks, which train together with these and restart."""

    @property
    def ends(self) -> tuple[TaskId, ...]:
        return *self.stops, *self.restarts

    def number(self, view: RunView | None) -> int:
        """How many of the job's tasks the coordinator lets run; another user may have scaled it, too."""
        assert view is not None
        return self.places - len(drains.scaled_down(self.job, view["intents"]))


@dataclass(frozen=True)
class Scaled:
    """`number`: how many tasks of the job run now, if their hosts let them."""

    number: int
    stopped: StopResult | None = None
    started: RestartResult | None = None

    @property
    def errors(self) -> Mapping[str, DtctlError]:
        return {**(self.stopped.errors if self.stopped else {}), **(self.started.errors if self.started else {})}


def plan_scaling(record: RunRecord, transport: Transport, job: str, count: int) -> Scaling:
    """Asks the coordinator; changes nothing. Raises UsageError for what the run has no place for, or cannot do."""
    known, answer, _ = ask_about(record, transport, lambda asked, _: request_of_status(asked), reads=True)
    inventory, view = answer["inventory"], answer["coordination"]
    assert inventory is not None
    assert view is not None
    return _plan(known, inventory, view, job, count)


def scale(scaling: Scaling, transport: Transport, order: StopOrder, report: OnStopping = unseen) -> Scaled:
    """Scales the job; returns when the tasks of all reachable hosts have ended, or run."""
    about: dict[str, str | int] = {"job": scaling.job, "count": scaling.count}
    stopped = started = None
    number = scaling.before
    if scaling.stops:
        known, ended, _ = ask_about(
            scaling.record, transport, lambda asked, _: request_to_hold(asked, order, report, **about)
        )
        number = scaling.number(ended["coordination"])
        result = dataclasses.replace(result_by_hosts(known, {known.coordinator: ended}, {}), known=known)
        stopped = dataclasses.replace(result, promised=tuple(ended["unreached"]))
    if scaling.starts:
        known, begun, _ = ask_about(
            scaling.record, transport, lambda asked, _: request_to_release(asked, order.by, **about)
        )
        number = scaling.number(begun["coordination"])
        away = {host: why_unreached(host, begun["coordination"]) for host in begun["unreached"]}
        started = RestartResult(statuses(known, tuple(known.roster), [begun]), away)
    return Scaled(number, stopped, started)


def _plan(record: RunRecord, run: Inventory, view: RunView, job: str, count: int) -> Scaling:
    tasks = [str(task) for task in record.roster if task.job == job]
    if not tasks:
        jobs = list(dict.fromkeys(task.job for task in record.roster))
        hint = did_you_mean(job, jobs) or f"its jobs: {', '.join(jobs)}"
        raise UsageError(f"run {record.run} has no job {job}", hint=hint)
    if count > len(tasks):
        hint = "\n".join([*([JOINS] if run["resizes"] and not record.is_local else []), RESTARTS.format(job)])
        raise UsageError(f"run {record.run} has places for {len(tasks)} tasks of {job}", hint=hint)
    beyond = drains.beyond(job, count, "", tasks)
    held = drains.scaled_down(job, view["intents"])
    if not may_scale(run, job, beyond, view["intents"]):
        raise _refusal(record, run, job, list(beyond), out_beyond(job, beyond, view["intents"]))
    starts = [task for task in held if task not in beyond]
    stops = [task for task in beyond if task not in held]
    going = restarted_with(run, view, [*starts, *stops])
    before = len(tasks) - len(held)
    return Scaling(record, job, before, count, len(tasks), _ids(starts), _ids(stops), _ids(going))


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

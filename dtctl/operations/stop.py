"""Stops tasks, and verifies that they have ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dtctl.agent.records import answers as records
from dtctl.agent.records.reasons import Fact, fact
from dtctl.agent.records.run_state import RunEnd
from dtctl.agent.records.whole_run import RunView
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.model import Host, TaskId
from dtctl.operations.client import Conversations, Request, knows_no_run
from dtctl.operations.client.plausible import check_part, check_survivors, check_tasks, wrong
from dtctl.operations.coordinator import First, ask_about, ask_whole_run, status_by_coordinator
from dtctl.operations.engines import Allocation
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import CoordinatorUnreachable
from dtctl.operations.waiting import leave_queue, without_machines
from dtctl.transport.seam import Message, Session, Transport
from dtctl.transport.timeouts import PATIENCE_S


@dataclass(frozen=True)
class Stopping:
    """Tasks that are being stopped, as their states change."""

    grace_s: float
    tasks: Mapping[TaskId, records.Departing]


OnStopping = Callable[[Stopping], None]


def unseen(stopping: Stopping) -> None:
    """Ignores the progress."""


def listener(record: RunRecord, report: OnStopping) -> Mapping[str, Callable[[Host, Message], None]]:
    """Handlers of progress frames, for `Request.on_frame`.

    A host may report its own tasks, and all tasks where it coordinates the run. Others are ignored: the roster here may
    be old, and this is only shown.
    """

    def on_progress(host: Host, message: Message) -> None:
        stopping = message.of(records.Stopping)
        known = record.roster if host.name == record.coordinator else record.tasks_on(host.name)
        tasks = {TaskId.parse(name): one for name, one in stopping["tasks"].items()}
        if shown := {task: one for task, one in tasks.items() if task in known}:
            report(Stopping(stopping["grace_s"], shown))

    return {"stopping": on_progress}


@dataclass(frozen=True)
class Ending:
    """The tasks that are about to be stopped."""

    run: str | None
    """The run; None: no host that was asked knows one."""
    tasks: tuple[TaskId, ...] = ()
    hosts: tuple[str, ...] = ()
    restarts: tuple[TaskId, ...] = ()
    """Other tasks that train together with these and restart because their number changes."""
    is_idle: bool = False
    """Whether the host has no task."""
    spares: tuple[str, ...] | None = None
    """The remaining spares, if the host is a spare."""


Before = Callable[[Ending], None]
"""Called with the tasks that are about to be stopped; if it raises, nothing is stopped."""


def once(before: Before) -> Before:
    """Calls `before` only once, with the first answer of a host that knows the run."""
    received: list[Ending] = []

    def on_progress(found: Ending) -> None:
        if not received:
            before(found)
            received.append(found)

    return on_progress


def pin_current_run(tasks: Collection[TaskId] | None, before: Before | None) -> First | None:
    """Queries the current run of the coordinator, and pins the request to it. `tasks` None: all tasks of the run."""
    if before is None:
        return None

    def before_request(record: RunRecord, session: Session) -> RunRecord:
        found = status_by_coordinator(*ask_whole_run(record, session))
        absent = found.coordination.absent_hosts if found.coordination is not None else ()
        there = {task: one for task, one in found.tasks.items() if found.record.roster[task] not in absent}
        live = [task for task, status in there.items() if not status.state.final]
        before(ending(found.record, [task for task in live if tasks is None or task in tasks]))
        return dataclasses.replace(record, run=found.record.run)

    return before_request


def ending(record: RunRecord, tasks: Collection[TaskId], restarts: Collection[TaskId] = ()) -> Ending:
    there = tuple(task for task in tasks if task in record.roster)
    hosts = tuple(dict.fromkeys(record.roster[task] for task in there))
    return Ending(record.run, there, hosts, tuple(task for task in restarts if task in record.roster))


Answers = Iterable[tuple[str, records.StopResult | records.DownResult]]
"""Pairs of a host's name and its answer."""


@dataclass(frozen=True)
class Survivor:
    """A process that outlived SIGKILL (in uninterruptible sleep, as a rule)."""

    task: str
    host: str
    pid: int
    command: str


@dataclass(frozen=True)
class StopResult:
    """Tasks that were stopped, had ended before, or survived; every host without an answer is in `errors`."""

    stopped: tuple[TaskId, ...] = ()
    already: tuple[TaskId, ...] = ()
    survivors: tuple[Survivor, ...] = ()
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    without_run: tuple[str, ...] = ()
    """Hosts that know no such run."""
    promised: tuple[str, ...] = ()
    """Unreachable hosts: the coordinator stops the tasks there as soon as they are back."""
    away: CoordinatorUnreachable | None = None
    """Why each host was asked to stop its own tasks."""
    known: RunRecord | None = None
    """The run as its hosts report it."""
    unwritten: tuple[str, ...] = ()
    """Hosts whose disk is full: their agents obey in memory, but a restarted agent does not know of the order."""
    killed: Mapping[TaskId, float] = field(default_factory=dict)
    """Task -> the grace period in seconds after which it was killed."""
    absent: tuple[str, ...] = ()
    """Hosts without which the run continued; nothing of it is there."""
    inactive: tuple[str, ...] = ()
    """Unreachable hosts whose tasks did not run when the coordinator lost contact."""
    silent_s: Mapping[str, float | None] | None = None
    """Unreachable host -> the seconds since the coordinator last heard it; null: unknown. None: no coordinator that has
    its lease has answered."""

    def and_then(self, other: StopResult) -> StopResult:
        """Both results; the other one is about other tasks or hosts."""
        return dataclasses.replace(
            self,
            stopped=self.stopped + other.stopped,
            killed={**self.killed, **other.killed},
            already=self.already + other.already,
            survivors=self.survivors + other.survivors,
            errors={**self.errors, **other.errors},
            without_run=self.without_run + other.without_run,
            unwritten=self.unwritten + other.unwritten,
        )


@dataclass(frozen=True)
class StopOrder:
    """How tasks are asked to stop: by whom, and with what grace period (None: that of the run's spec).

    `why`: a kind of reason that needs nobody but `by`, or the reason itself.
    """

    by: str
    grace_s: float | None = None
    why: str | Sequence[Fact] = "stopped_by"
    ends_as: RunEnd | None = None
    """The effect on the run; None: it is stopped."""

    def fields(self) -> dict[str, Any]:
        why = [fact(self.why, by=self.by)] if isinstance(self.why, str) else list(self.why)
        return {"by": self.by, "why": why, "grace_s": self.grace_s, "ends_as": self.ends_as}

    def patience_s(self, record: RunRecord) -> float:
        """ps tasks get their grace period after the others have had it."""
        return PATIENCE_S + 2 * (record.grace_s if self.grace_s is None else self.grace_s)


def stop(
    record: RunRecord,
    transport: Transport,
    tasks: Sequence[TaskId],
    order: StopOrder,
    report: OnStopping = unseen,
    before: Before | None = None,
) -> StopResult:
    """Sends SIGTERM, waits for the grace period, sends SIGKILL and verifies; servers end last, because the others still
    save to them.

    The coordinator does it. Hosts that it does not reach are asked directly, and are given up soon: it stops their
    tasks when they are back. Where it is away itself, all hosts are asked. A run that waits for machines is taken out
    of the queue.
    `report` hears of tasks that take longer than a second, from the threads of their hosts.
    """
    everything = set(tasks) == set(record.roster)
    if everything and (held := without_machines(record)) is not None:
        return _without_machines(record, held, before)
    wanted = None if everything else [str(task) for task in tasks]
    before = before and once(before)
    first = pin_current_run(None if everything else tasks, before)
    try:
        known, answer, own = ask_about(
            record, transport, lambda asked, _: _request(asked, wanted, order, report), first
        )
    except CoordinatorUnreachable as away:
        known = away.found.record if away.found is not None else record
        if before is not None:
            before(ending(known, known.roster if everything else tasks))
        direct = _stop_directly(known, transport, wanted, order, report, away.own, away.unreachable)
        return dataclasses.replace(direct, away=away, known=known)
    contacts = answer["coordination"]["hosts"] if answer["coordination"] is not None else {}
    absent = tuple(host for host, contact in contacts.items() if contact["absent"])
    outcome = _result(known, [*own.items(), (known.coordinator, answer)])
    inactive = tuple(host for host, one in contacts.items() if one["inactive"] and not one["connected"])
    silent_s = _silences(answer["coordination"])
    result = dataclasses.replace(outcome, known=known, absent=absent, inactive=inactive, silent_s=silent_s)
    ended = {*result.stopped, *result.already}
    named = known.roster if everything else tasks
    rest = [str(task) for task in named if known.roster.get(task) in answer["unreached"] and task not in ended]
    if not rest:
        return result
    hasty = known.with_short_timeouts(answer["unreached"])
    direct = _stop_directly(hasty, transport, rest, order, report, {}, {})
    promised = tuple(host for host, error in direct.errors.items() if isinstance(error, TransportError))
    return dataclasses.replace(result.and_then(direct), promised=promised)


def _without_machines(record: RunRecord, held: Allocation, before: Before | None) -> StopResult:
    """Ends a run that has no machines yet, or none any more."""
    every, waits = tuple(record.roster), held.phase == "pending"
    if before is not None:
        before(ending(record, every if waits else ()))
    leave_queue(record, held)
    return StopResult(stopped=every, known=record) if waits else StopResult(already=every, known=record)


def _silences(view: RunView | None) -> Mapping[str, float | None] | None:
    if view is None or not view["leased"]:
        return None
    away = {host: contact["away_since"] for host, contact in view["hosts"].items() if not contact["connected"]}
    return {host: None if since is None else max(0.0, view["time"] - since) for host, since in away.items()}


def _request(
    record: RunRecord,
    tasks: Sequence[str] | None,
    order: StopOrder,
    report: OnStopping,
    *,
    others_ended: bool = False,
) -> Request[records.StopResult]:
    """The request: a host answers for all of these tasks (None: all) if it coordinates the run, or else for its own."""

    def check(host: Host, answer: records.StopResult) -> None:
        known = check_part(record, host, answer)
        may_name = [task for task in known if tasks is None or task in tasks]
        check_ended(answer, may_name)
        check_tasks("waiting", answer["waiting"], may_name)
        if answer["coordination"] is not None and any(one["task"] not in known for one in answer["survivors"]):
            raise wrong("survivors", "processes of tasks", None)

    fields = {"tasks": tasks, "others_ended": others_ended, **order.fields()}
    frames = listener(record, report)
    return Request("stop", records.StopResult, lambda _: fields, check, order.patience_s(record), frames)


def check_ended(answer: records.StopResult | records.DownResult, tasks: Collection[str]) -> None:
    check_tasks("stopped", answer["stopped"], tasks)
    check_tasks("killed", answer["killed"], answer["stopped"])
    check_tasks("already", answer["already"], tasks)
    check_survivors(answer["survivors"], tasks)


def _stop_directly(
    record: RunRecord,
    transport: Transport,
    tasks: Sequence[str] | None,
    order: StopOrder,
    report: OnStopping,
    own: Mapping[str, records.StopResult],
    unreachable: Mapping[str, DtctlError],
) -> StopResult:
    """Lets each host stop its own tasks, servers last.

    `tasks` None: the whole run, which ends. `own`: answers that hosts have already given.
    """
    with Conversations(record, transport, _hosts_of(record, tasks)) as conversations:
        conversations.errors.update(unreachable)
        unasked = [host for host in _hosts_of(record, tasks) if host not in own]
        first = {**own, **conversations.ask_hosts(_request(record, tasks, order, report), unasked)}
        waiting = [host for host, answer in first.items() if answer["waiting"]]
        rest = _request(record, tasks, order, report, others_ended=True)
        last = conversations.ask_hosts(rest, waiting) if waiting else {}
        return result_of(record, conversations, [*first.items(), *last.items()])


def _result(record: RunRecord, answers: Answers) -> StopResult:
    """The result for all tasks. A task may have ended on one host and been stopped on another. One host may report a
    task as ended before that another has stopped.
    """
    pairs = list(answers)
    stopped = dict.fromkeys(TaskId.parse(task) for _, answer in pairs for task in answer["stopped"])
    killed = {TaskId.parse(task): seconds for _, answer in pairs for task, seconds in answer["killed"].items()}
    already = dict.fromkeys(TaskId.parse(task) for _, answer in pairs for task in answer["already"])
    survivors = dict.fromkeys(
        Survivor(one["task"] or "a task", _place(record, one["task"], host), one["pid"], one["command"])
        for host, answer in pairs
        for one in answer["survivors"]
    )
    return StopResult(
        stopped=tuple(stopped),
        killed=killed,
        already=tuple(task for task in already if task not in stopped),
        survivors=tuple(survivors),
        unwritten=tuple(dict.fromkeys(host for host, answer in pairs if answer.get("unwritten", False))),
    )


def _place(record: RunRecord, task: str | None, reporter: str) -> str:
    return record.roster.get(TaskId.parse(task), reporter) if task is not None else reporter


def result_of(record: RunRecord, conversations: Conversations, answers: Answers) -> StopResult:
    """The result by the hosts that answered, and the errors of the others."""
    errors = conversations.errors
    return dataclasses.replace(
        _result(record, answers),
        errors={host: error for host, error in errors.items() if not knows_no_run(error)},
        without_run=tuple(host for host in record.hosts if host in errors and knows_no_run(errors[host])),
    )


def result_by_hosts(
    record: RunRecord, answers: Mapping[str, records.StopResult], errors: Mapping[str, DtctlError]
) -> StopResult:
    """The result by the answers of hosts and the errors of others."""
    return dataclasses.replace(_result(record, answers.items()), errors=errors)


def _hosts_of(record: RunRecord, tasks: Collection[str] | None) -> list[str]:
    """The hosts of `tasks` in the order of the file; those that only the run knows come last. None: all hosts."""
    if tasks is None:
        return [*record.hosts, *record.unknown_hosts]
    wanted = {host for task, host in record.roster.items() if str(task) in tasks}
    return [host for host in (*record.hosts, *record.unknown_hosts) if host in wanted]

"""What has become of a run: its coordinator is asked, or else every host."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from dtctl.agent.records.answers import RunResult, StatusResult
from dtctl.agent.records.reasons import Fact, fact
from dtctl.errors import AgentError, DtctlError
from dtctl.model import Host, SshSettings, TaskId, TaskState
from dtctl.operations.checkpoints import Checkpoints, newest_of_run, read_checkpoints
from dtctl.operations.client.conversation import Request, ask, final, knows_no_run, request, said
from dtctl.operations.client.coordinator import CoordinatorAway, ask_coordinator, coordinator_away, why_alone
from dtctl.operations.client.outcome import Outcome, Verdict, agreed, dissenters, judge
from dtctl.operations.client.plausible import check_run, check_status
from dtctl.operations.client.snapshot import Coordination, TaskStatus

if TYPE_CHECKING:
    from dtctl.agent.records.run_state import State
    from dtctl.agent.records.vitals import Machine
    from dtctl.operations.history.record import RunRecord
    from dtctl.transport.seam import Message, Session, Transport


A = TypeVar("A")

_LOST_CONNECT_S = 3.0
_GOING_ON = (TaskState.STARTING, TaskState.RUNNING, TaskState.BACKOFF, TaskState.STALLED)


@dataclass(frozen=True)
class RunStatus:
    """One moment of a run. Tasks of hosts that gave no answer are `lost`: nobody can tell."""

    record: RunRecord
    tasks: Mapping[TaskId, TaskStatus]
    verdict: Verdict
    checkpoints: tuple[Checkpoints, ...]
    time: float
    """Epoch seconds on the lead's host, against which ages are counted; 0 when no host answered."""
    coordination: Coordination | None = None
    """None: every host was asked for itself."""
    away: CoordinatorAway | None = None
    """Why every host was asked."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    """Host -> why it gave no answer."""
    without_run: tuple[str, ...] = ()
    """Hosts that answered that they know no run of the cluster."""
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """How busy hosts are, of those whose agents have told it."""

    @property
    def going_on_after_the_end(self) -> tuple[TaskId, ...]:
        """Tasks that run though the outcome is certain, ps tasks as a rule."""
        if not self.verdict.outcome.decided:
            return ()
        return tuple(task for task, status in self.tasks.items() if status.state in _GOING_ON)

    @property
    def is_over(self) -> bool:
        """The outcome is certain and nothing runs any more."""
        return self.verdict.outcome.decided and not self.going_on_after_the_end

    @property
    def progress(self) -> Progress:
        """With the step of a checkpoint that was saved after the last step was reported."""
        known = progress_of(self.tasks.values(), self.record.lead, self.record.target_step)
        saved = self.newest_checkpoint.newest_complete if self.newest_checkpoint else None
        if saved is None or saved.step is None or known.step is None or known.step_time is None:
            return known
        newer = saved.step > known.step and saved.time >= known.step_time
        return dataclasses.replace(known, step=saved.step, step_time=saved.time) if newer else known

    @property
    def newest_checkpoint(self) -> Checkpoints | None:
        return newest_of_run(self.checkpoints)


def request_of_status(record: RunRecord, *, guess: bool = False) -> Request[StatusResult]:
    """`guess`: checkpoints are looked for where no setting leads, too, which may take a while."""
    return Request(
        "status",
        StatusResult,
        lambda _: {"guess": guess},
        lambda host, answer: check_status(record.cluster, record.run, host.name, answer),
    )


Own = Mapping[str, Any]
"""What hosts that were taken for the coordinator's have answered, each for its own part of the run."""


def ask_run(
    record: RunRecord,
    transport: Transport,
    request: Callable[[RunRecord, Own], A],
    *,
    away: CoordinatorAway | None = None,
    reads: bool = False,
) -> tuple[RunRecord, A, Own]:
    """The answer of the run's coordinator, wherever the hosts say that it is; the record by which it was found, `Own`.

    `request` asks the coordinator's host of a record, and is given what was answered on the way. `away`: that host has
    failed just now, and is not tried again. `reads`: it asks for the status, which changes nothing and need not be
    asked twice.

    Raises CoordinatorAway when no host coordinates the run, with all that the hosts say of themselves. That is the
    only rule for a coordinator that is away; what a command then does with each host is its own.
    """
    if away is None:
        try:
            return record, request(record, {}), {}
        except DtctlError as error:
            away = coordinator_away(record.coordinator, error)
    own: Own = away.own
    told = own.get(record.coordinator) if reads else None
    found = None
    if told is not None and told["inventory"] is not None:  # the cluster file has changed since the start
        known = record.as_known(told["inventory"])
    else:
        found = status_of_hosts(record, transport, away.unreachable, own if reads else None)
        known = found.record
    if known.coordinator != record.coordinator:
        try:
            return known, request(known, own), own
        except DtctlError as error:
            away = coordinator_away(known.coordinator, error)
            own = {**own, **away.own}
    if found is None:
        found = status_of_hosts(record, transport, away.unreachable, own)
    raise CoordinatorAway(away.host, away.cause, own, found) from away


def status(record: RunRecord, transport: Transport, away: CoordinatorAway | None = None) -> RunStatus:
    """By one connection where the coordinator can be asked; `away`: its host has failed just now.

    Raises DtctlError only for an answer that no other host can replace.
    """

    def request(asked: RunRecord, own: Own) -> StatusResult:
        return ask_coordinator(asked, transport, request_of_status(asked))

    try:
        known, answer, _ = ask_run(record, transport, request, away=away, reads=True)
    except CoordinatorAway as nowhere:
        if nowhere.found is None:
            raise
        return dataclasses.replace(nowhere.found, away=nowhere)
    assert answer["inventory"] is not None
    found = told_by_coordinator(known.as_known(answer["inventory"]), answer)
    if found.coordination and found.coordination.isolated:  # it may have been replaced while it was cut off
        every = status_of_hosts(found.record, transport)
        if every.record.created > found.record.created:
            return status(every.record, transport)
    return _with_lost_hosts(found, transport)


def _with_lost_hosts(found: RunStatus, transport: Transport) -> RunStatus:
    """What hosts say for themselves that the coordinator has lost: their agents are revived by being asked."""
    lost = found.coordination.lost_hosts if found.coordination else ()
    if not lost:
        return found
    hurried = {name: _hurried(host) if name in lost else host for name, host in found.record.hosts.items()}
    asked = dataclasses.replace(found.record, hosts=hurried)
    outcomes = ask(asked, transport, request_of_status(asked), [name for name in lost if name in hurried])
    answers = outcomes.results
    told = {
        task: _task(task, host, found.record, answers[host])
        for task, host in found.record.roster.items()
        if host in answers and answers[host]["run"] == found.record.run
    }
    refused = {host: error for host, error in outcomes.errors.items() if isinstance(error, AgentError)}
    return dataclasses.replace(
        found,
        tasks={**found.tasks, **told},
        errors={host: error for host, error in refused.items() if not knows_no_run(error)},
    )


def _hurried(host: Host) -> Host:
    """One that has been lost is most often off, and nobody wants to wait for it each time."""
    if not isinstance(host.reach, SshSettings):
        return host
    timeout_s = min(host.reach.connect_timeout_s, _LOST_CONNECT_S)
    return dataclasses.replace(host, reach=dataclasses.replace(host.reach, connect_timeout_s=timeout_s))


def ask_whole_run(record: RunRecord, session: Session) -> tuple[RunRecord, StatusResult]:
    """The answer of the coordinator's host, and the run as it knows it. Raises AgentError where it speaks for itself.

    The cluster file may have changed since the run was started.
    """
    answer = request_of_status(record).put(record, session)
    if answer["coordination"] is None or answer["inventory"] is None:
        raise why_alone(record.cluster, session.host.name, answer)
    return record.as_known(answer["inventory"]), answer


def watched(record: RunRecord, session: Session, **fields: Any) -> Iterator[Message]:
    """The `states` that a host sends when they change, until its watch has ended."""
    session.send({**request(record, session.host, "watch"), **fields})
    for message in said(session, "states", most_bytes=None):
        if message.type == "states":
            yield message
    final(session, "watch", message, RunResult, lambda answer: check_run(record.cluster, record.run, answer["run"]))


def told_by_coordinator(record: RunRecord, answer: StatusResult) -> RunStatus:
    """The coordinator's answer to `status` as a value."""
    assert answer["coordination"] is not None
    coordination = Coordination.of(answer["coordination"], record.roster)
    return RunStatus(
        record=record,
        tasks=coordination.tasks,
        verdict=coordination.verdict,
        checkpoints=tuple(read_checkpoints(record.coordinator, answer["checkpoints"])),
        time=answer["time"],
        coordination=coordination,
        machines=_machines({host: one["state"] for host, one in coordination.contacts.items()}),
    )


def status_elsewhere(error: CoordinatorAway, record: RunRecord, transport: Transport) -> RunStatus:
    """For those who watch a run, in place of its coordinator's host, which knows nothing or is away: all hosts, once.

    Raises what is wrong with that host where the others cannot say how the run stands.
    """
    found = status(record, transport, error if error.unreachable else None)
    if found.coordination is None and (error.elsewhere or not found.time):
        raise error.cause
    return found


def status_of_hosts(
    record: RunRecord,
    transport: Transport,
    failed: Mapping[str, DtctlError] | None = None,
    told: Mapping[str, StatusResult] | None = None,
    *,
    guess: bool = False,
) -> RunStatus:
    """As every host tells it for itself; one that does not answer is in `errors`.

    Those in `failed` are not asked, nor those in `told`, which have answered already.

    Of several runs that hosts tell of, one is believed (agreement.py). `guess`: see request_of_status.
    """
    answers, errors = dict(told or {}), dict(failed or {})
    unasked = [name for name in record.hosts if name not in {**answers, **errors}]
    outcomes = ask(record, transport, request_of_status(record, guess=guess), unasked)
    answers, errors = {**answers, **outcomes.results}, {**errors, **outcomes.errors}
    inventory = agreed(record, answers)
    known = record if inventory is None else record.as_known(inventory)
    if inventory is not None:
        unasked = [name for name in dict.fromkeys(known.roster.values()) if name not in record.hosts]
        more = ask(known, transport, request_of_status(known, guess=guess), unasked)
        answers, errors = {**answers, **more.results}, {**errors, **more.errors}
        for host, error in dissenters(inventory, answers).items():
            del answers[host]
            errors[host] = error
    nothing = Verdict(Outcome.CREATED, (fact("no_run"),))
    return _put_together(known, answers, errors, judge(inventory, answers) if inventory is not None else nothing)


def _put_together(
    known: RunRecord, answers: Mapping[str, StatusResult], errors: Mapping[str, DtctlError], verdict: Verdict
) -> RunStatus:
    told = {host: answer for host, answer in answers.items() if answer["run"] is not None}
    silent = {host for host, answer in answers.items() if answer["run"] is None}
    silent |= {host for host, error in errors.items() if knows_no_run(error)}
    why = dict.fromkeys(silent, fact("run_unknown"))
    why.update({host: fact("way_unknown", host=host) for host in known.unknown_hosts})
    tasks = {task: _task(task, host, known, told.get(host), why.get(host)) for task, host in known.roster.items()}
    clock = told.get(known.coordinator) or next(iter(told.values()), None)
    return RunStatus(
        record=known,
        tasks=tasks,
        verdict=verdict,
        checkpoints=tuple(
            checkpoints
            for host in sorted(told, key=lambda name: name != known.coordinator)
            for checkpoints in read_checkpoints(host, told[host]["checkpoints"])
        ),
        time=clock["time"] if clock else 0.0,
        errors={host: error for host, error in errors.items() if not knows_no_run(error)},
        without_run=tuple(name for name in known.hosts if name in silent),
        machines=_machines({host: answer["state"] for host, answer in told.items()}),
    )


def _machines(states: Mapping[str, State | None]) -> dict[str, Machine]:
    return {host: state["machine"] for host, state in states.items() if state is not None and state["machine"]}


def _task(
    task: TaskId, host: str, record: RunRecord, answer: StatusResult | None, why_none: Fact | None = None
) -> TaskStatus:
    if answer is None:
        return TaskStatus.unknown(task, host, why_none or fact("no_answer"))
    entry = answer["state"]["tasks"].get(str(task)) if answer["state"] else None
    if entry is None or answer["run"] != record.run:
        return TaskStatus.unknown(task, host, fact("other_run"))
    return TaskStatus.of(task, host, entry)


@dataclass(frozen=True)
class Progress:
    """None where nobody has told it. `loss` in the digits of the log."""

    step: int | None = None
    step_time: float | None = None
    """When it was told, in epoch seconds of that host."""
    target: int | None = None
    rate: float | None = None
    """Steps a second."""
    loss: str | None = None

    @property
    def left_s(self) -> float | None:
        """Until the target, at the present rate."""
        if self.step is None or self.target is None or not self.rate:
            return None
        return max(0, self.target - self.step) / self.rate


def progress_of(tasks: Iterable[TaskStatus], lead: TaskId, target: int | None) -> Progress:
    """By the task that has come furthest, of those that train; the lead's loss and rate, where it tells them.

    Rates are of tasks that run: of another its last rate tells nothing about what is to come.
    """
    telling = [task for task in tasks if task.entry["step"] is not None]
    if not telling:
        return Progress(target=target)
    furthest = max(telling, key=lambda task: (task.entry["step"] or 0, task.id == lead))
    first = sorted(telling, key=lambda task: (task.id != lead, -(task.entry["step"] or 0)))
    running = [task for task in first if task.state is TaskState.RUNNING]
    return Progress(
        step=furthest.entry["step"],
        step_time=furthest.entry["step_time"],
        target=target,
        rate=next((task.entry["rate"] for task in running if task.entry["rate"] is not None), None),
        loss=next((task.entry["loss"] for task in first if task.entry["loss"] is not None), None),
    )

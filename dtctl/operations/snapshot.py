"""A snapshot of a run: its outcome, its tasks, and how its coordinator sees it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, fact, why_of
from dtctl.agent.records.run_state import Entry, Exit, Intent, on_clock
from dtctl.agent.records.whole_run import clock_ahead_s
from dtctl.agent.run import outcome
from dtctl.agent.run.policy import why_ended
from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, DtctlError, TransportError, advice
from dtctl.model import TaskId, TaskState
from dtctl.operations.checkpoints import Checkpoints, newest_of_run

if TYPE_CHECKING:
    from dtctl.agent.records.answers import StatusResult
    from dtctl.agent.records.checkpoints import Checkpoint
    from dtctl.agent.records.run_state import Hold, Position
    from dtctl.agent.records.spec import Inventory
    from dtctl.agent.records.vitals import Machine
    from dtctl.agent.records.whole_run import Condition, Contact, GoneHost, Incident, RunView
    from dtctl.operations.engines import Allocation
    from dtctl.operations.run_record import RunRecord


class Outcome(str, Enum):
    """TFJob's words for a run (kubeflow training-operator, pkg/apis JobConditionType), and Stopped."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def decided(self) -> bool:
        return self.value in outcome.DECIDED


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run, and its reasons."""

    outcome: Outcome
    why: tuple[Fact, ...]
    cause: TaskId | None = None
    """The task whose failure came first; of a failed run only."""
    hung: bool = False
    """Whether that task hung."""
    replaced: bool = False
    """Whether another run of the cluster takes the place of this one."""
    gone: GoneHost | None = None
    """The host without which the run cannot continue."""
    unready: tuple[TaskId, ...] = ()
    """Tasks that ran when the start took too long, and never listened."""
    of: int | None = None
    """How many tasks take part in a run that continues."""

    @classmethod
    def of_condition(cls, condition: Condition) -> Verdict:
        return cls(
            Outcome(condition["type"]),
            tuple(why_of(condition)),
            TaskId.parse(condition["cause"]) if condition["cause"] else None,
            condition["hung"],
            condition["replaced"],
            condition["gone"],
            tuple(map(TaskId.parse, condition["unready"])),
            condition["of"],
        )


def seen_now(verdict: Verdict, tasks: Mapping[TaskId, TaskStatus]) -> Verdict:
    """The verdict with the current number of running tasks: that of its reasons may be older.

    A task whose end cannot be written runs no more, whatever its state says.
    """
    if verdict.of is None:
        return verdict
    running = sum(task.state in _RUNS and not task.entry["unwritten"] for task in tasks.values())
    return dataclasses.replace(verdict, why=(fact("tasks_run", count=running, of=verdict.of),))


def verdict_by_hosts(run: Inventory, answers: Mapping[str, StatusResult]) -> Verdict:
    """The outcome by the hosts' own states; tasks of hosts without an answer are lost."""
    facts = _facts(run, answers)
    found = outcome.decided(facts) or outcome.decided_elsewhere(facts)
    found = found or outcome.standing(facts, outcome.waits_for_restart(facts))
    if found is not None:
        return Verdict.of_condition(found.condition(0.0))
    if len(facts.in_state("pending", "starting")) == len(facts.roster):
        return Verdict(Outcome.CREATED, (fact("no_task_runs"),))
    of = len(facts.roster)
    return Verdict(Outcome.RUNNING, (fact("tasks_run", count=0, of=of),), of=of)


def _facts(run: Inventory, answers: Mapping[str, StatusResult]) -> outcome.Facts:
    entries: dict[str, Entry] = {}
    intents: dict[str, Intent] = {}
    for answer in answers.values():
        if answer["run"] == run["run"] and answer["state"] is not None:
            entries.update(answer["state"]["tasks"])
            intents.update(answer["intents"])
    roster = {member["task"]: member for member in run["roster"]}
    absent = [task for task, member in roster.items() if member["host"] in run["absent"] and task not in entries]
    return outcome.Facts(roster, run["fail_fast"], entries, intents, absent)


NOTHING_KNOWN = made(Entry)
_NOT_ENDED = made(Exit)


@dataclass(frozen=True)
class TaskStatus:
    """A snapshot of a task; times are in epoch seconds of the clock of RunStatus.time."""

    id: TaskId
    host: str
    state: TaskState
    """The state that the agent reports, or `lost`."""
    entry: Entry = field(default_factory=lambda: NOTHING_KNOWN, repr=False)
    """The agent's report; for a lost task the reason is the controller's."""

    @classmethod
    def of(cls, task: TaskId, host: str, entry: Entry) -> TaskStatus:
        return cls(task, host, TaskState(entry["state"]), entry)

    @classmethod
    def unknown(cls, task: TaskId, host: str, why: Fact, state: TaskState = TaskState.LOST) -> TaskStatus:
        """The status of a task about which no agent has reported anything."""
        return cls(task, host, state, {**NOTHING_KNOWN, "why": [why]})

    @property
    def why(self) -> list[Fact]:
        return why_of(self.entry)

    @property
    def restarts(self) -> int:
        """How often it was started again, for whatever reason. `entry` counts what its budget is spent on, which
        begins from 0 again after a long healthy life, or where a person has asked for a restart.
        """
        return max(0, self.entry["attempt"] - 1)

    @property
    def held(self) -> Hold | None:
        """Why nothing of the task runs, whatever becomes of its host: a drain, a shutdown, or the size of its job."""
        return self.entry["hold"] if self.entry["state"] == "pending" else None

    @property
    def exit(self) -> Exit:
        """The exit of its newest attempt; without code and signal while it runs."""
        return self.entry["exit"] or _NOT_ENDED


def how_it_ended(task: TaskStatus) -> list[Fact]:
    """The reason that the agent gave, else the exit status."""
    return task.why or why_ended(task.exit)


@dataclass(frozen=True)
class Coordination:
    """A run as its coordinator sees it. Tasks of unreachable hosts are `lost`: their state is unknown. Tasks of hosts
    that it has lost are `lost`: their state is unknown.
    """

    view: RunView
    """The coordinator's view with only the hosts of the roster, in its order."""
    tasks: Mapping[TaskId, TaskStatus]
    idle: Mapping[str, Contact] = field(default_factory=dict)
    """The contacts of spares, arbiters, and hosts that were replaced."""

    @property
    def contacts(self) -> Mapping[str, Contact]:
        return self.view["hosts"]

    @property
    def verdict(self) -> Verdict:
        return Verdict.of_condition(self.view["condition"])

    @property
    def lost_hosts(self) -> tuple[str, ...]:
        """Unreachable hosts, without drained ones, which may be switched off."""
        drained = self.drained_hosts
        return tuple(host for host, contact in self.contacts.items() if is_lost(contact) and host not in drained)

    @property
    def absent_hosts(self) -> tuple[str, ...]:
        return tuple(host for host, contact in self.contacts.items() if contact["absent"])

    @property
    def bad_hosts(self) -> tuple[str, ...]:
        """Hosts that the run has left out or replaced for the failures on them, and that nobody has undrained since."""
        holds = [hold for intent in self.view["intents"].values() for hold in intent["holds"]]
        left_out = [hold["holder"] for hold in holds if hold["kind"] == "bad_host"]
        return tuple(dict.fromkeys([*left_out, *self.view["moved"]["bad"]]))

    @property
    def drained_hosts(self) -> tuple[str, ...]:
        idle = tuple(host for host, contact in self.idle.items() if contact["drained"] is not None)
        held = {task: intent for task, intent in self.view["intents"].items() if intent["want"] == "hold"}
        if not held:
            return idle
        from dtctl.agent.run import drains  # few runs need it

        drained = drains.drained_hosts(held)
        return (*(host for host in self.contacts if host in drained), *idle)

    @property
    def in_doubt(self) -> bool:
        """Whether the coordinator has no lease, or no connection to any other host although it expects some."""
        others = [contact for contact in self.contacts.values() if not contact["absent"]]
        in_touch = [contact for contact in others if contact["connected"] or contact["over"]]
        is_alone = len(in_touch) <= 1 < len(others)
        return is_alone or not (self.view["leased"] or self.view["phase"] == "ended")

    @classmethod
    def of(cls, view: RunView, roster: Mapping[TaskId, str], idle: Iterable[str] = ()) -> Coordination:
        """`roster`: task -> host, in the order to show them; what the coordinator reports of other hosts is ignored."""
        hosts = {host: view["hosts"][host] for host in dict.fromkeys(roster.values()) if host in view["hosts"]}
        tasks = {task: _task(task, host, hosts.get(host)) for task, host in roster.items()}
        without = {host: view["hosts"][host] for host in idle if host in view["hosts"]}
        return cls({**view, "hosts": hosts}, tasks, without)


def is_lost(contact: Contact) -> bool:
    """Whether the host is unreachable although the run is not over for it."""
    return not contact["connected"] and contact["heard"] is not None and not contact["over"]


def steps_lost(incident: Incident) -> int | None:
    if incident["step"] is None or incident["back_to"] is None:
        return None
    return max(0, incident["step"] - incident["back_to"])


def recovered_after_s(incident: Incident) -> float | None:
    return None if incident["recovered"] is None else incident["recovered"] - incident["noticed"]


def _task(task: TaskId, host: str, known: Contact | None) -> TaskStatus:
    """The status of a task: an end remains certain if its host becomes unreachable; any other state does not."""
    if known is None:
        return TaskStatus.unknown(task, host, fact("no_part"))
    if known["absent"] or known["state"] is None:
        why = fact("absent" if known["absent"] else "not_heard")
        return TaskStatus.unknown(task, host, why, TaskState.PENDING)
    entry = known["state"]["tasks"].get(str(task))
    if entry is None:
        return TaskStatus.unknown(task, host, fact("task_unknown"))
    status = TaskStatus.of(task, host, on_clock(entry, clock_ahead_s(known)))
    if is_lost(known) and not (status.state.final or status.held):
        last = fact("host_away", host=host, text=status.state.value)
        return TaskStatus(task, host, TaskState.LOST, {**status.entry, "since": known["heard"], "why": [last]})
    return status


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run; fields are None if no task has reported them. `loss` as in the log."""

    step: int | None = None
    step_time: float | None = None
    """When the step was reported, in epoch seconds of that host."""
    target: int | None = None
    rate: float | None = None
    """The rate in steps per second."""
    loss: str | None = None
    position: Position | None = None
    """The position within an epoch, of a program that names no step: `step` is then counted over the epochs."""
    step_gap_s: float = 0.0
    """The time between the last two reports of a step."""

    @property
    def left_s(self) -> float | None:
        """The remaining time until the target step, at the current rate."""
        if self.step is None or self.target is None or not self.rate:
            return None
        return max(0, self.target - self.step) / self.rate


def progress_of(tasks: Iterable[TaskStatus], lead: TaskId, target: int | None) -> RunProgress:
    """The progress of the task that has come furthest in training, with the lead's loss and rate if it reports them.

    The target is the run's own, or the number of steps that the log names; of positions, only the latter counts them.
    Rates are of tasks that run: of another its last rate predicts nothing.
    """
    training = [task for task in tasks if task.id.job != "evaluator" or task.entry["step"] is not None]
    reporting = [task for task in training if task.entry["step"] is not None]
    furthest = max(reporting, key=lambda task: (task.entry["step"] or 0, task.id == lead), default=None)
    first = sorted(training, key=lambda task: (task.id != lead, -(task.entry["step"] or 0)))
    running = [task for task in first if task.state is TaskState.RUNNING]
    position = furthest.entry["position"] if furthest is not None else None
    logged = furthest.entry["steps"] if furthest is not None else None
    return RunProgress(
        step=furthest.entry["step"] if furthest is not None else None,
        step_time=furthest.entry["step_time"] if furthest is not None else None,
        step_gap_s=furthest.entry["step_gap_s"] if furthest is not None else 0.0,
        target=logged if position is not None or target is None else target,
        position=position,
        rate=next((task.entry["rate"] for task in running if task.entry["rate"] is not None), None),
        loss=next((task.entry["loss"] for task in first if task.entry["loss"] is not None), None),
    )


NOT_THERE = {
    "no_run": "has no run",
    "not_coordinator": "does not coordinate the run",
    "internal": "cannot revive its agent",
    "not_answering": "has no coordinator that answers",
    "damaged": "has damaged files of the run",
    "other_version": "has the run of another version of dtctl",
}


class CoordinatorUnreachable(DtctlError):
    """The coordinator cannot be asked; every host may still be asked for itself."""

    def __init__(
        self,
        host: str,
        cause: DtctlError,
        own: Mapping[str, Any] | None = None,
        found: RunStatus | None = None,
    ) -> None:
        code = cause.code if isinstance(cause, AgentError) else ""
        super().__init__(
            f"the coordinator's host {host} {NOT_THERE.get(code, 'cannot be reached')}",
            detail=cause.summary,
            hint=advice(cause),
        )
        self.exit_code = cause.exit_code
        self.host = host
        self.cause = cause
        self.found = found
        """The run as its hosts report it; None before they were asked."""
        self.own: Mapping[str, Any] = own or {}
        """Answers of hosts about their own part of the run, which need not be asked again."""

    @property
    def unreachable(self) -> Mapping[str, DtctlError]:
        """The host, if trying it again is pointless."""
        return {self.host: self.cause} if isinstance(self.cause, TransportError) else {}

    @property
    def elsewhere(self) -> bool:
        """Whether the host was asked, and coordinates no run."""
        return isinstance(self.cause, AgentError) and self.cause.code in ("no_run", "not_coordinator")


_RUNS = (TaskState.RUNNING, TaskState.STALLED)
_GOING_ON = (TaskState.STARTING, TaskState.RUNNING, TaskState.BACKOFF, TaskState.STALLED)


@dataclass(frozen=True)
class RunStatus:
    """A snapshot of a run. Tasks of hosts that gave no answer are `lost`: their state is unknown."""

    record: RunRecord
    tasks: Mapping[TaskId, TaskStatus]
    verdict: Verdict
    checkpoints: tuple[Checkpoints, ...]
    time: float
    """Epoch seconds on the lead's host, against which ages are counted; 0 when no host answered."""
    coordination: Coordination | None = None
    """None: each host was queried for its own tasks."""
    away: CoordinatorUnreachable | None = None
    """Why every host was asked."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    """Host -> why it gave no answer."""
    without_run: tuple[str, ...] = ()
    """Hosts that answered that they know no run of the cluster."""
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """How busy hosts are, if their agents have reported it."""
    not_started: DtctlError | None = None
    """Why `up` started nothing of it. No host knows such a run."""
    allocation: Allocation | None = None
    """The machines that an engine lends to it; None on those of a file."""

    @property
    def began(self) -> float:
        """When the run began on its hosts; `record.created` is when `up` was typed, before files were sent and an
        environment was installed. 0 if unknown.
        """
        account = self.coordination.view["account"] if self.coordination is not None else None
        return account["since"] if account is not None else self.record.created

    @property
    def going_on_after_the_end(self) -> tuple[TaskId, ...]:
        """Tasks that still run although the outcome is certain, usually ps tasks."""
        if not self.verdict.outcome.decided:
            return ()
        return tuple(task for task, status in self.tasks.items() if status.state in _GOING_ON)

    @property
    def unknown_after_the_end(self) -> tuple[TaskId, ...]:
        """Tasks of unreachable hosts that may still run though the outcome is certain; they end when those are back."""
        if not self.verdict.outcome.decided:
            return ()
        return tuple(task for task, status in self.tasks.items() if status.state is TaskState.LOST)

    @property
    def is_over(self) -> bool:
        """Whether the outcome is certain and nothing runs any more."""
        return self.verdict.outcome.decided and not self.going_on_after_the_end

    @property
    def progress(self) -> RunProgress:
        """The progress, with the step of a checkpoint that was saved after the last reported step."""
        known = progress_of(self.tasks.values(), self.record.lead, self.record.target_step)
        saved = self.newest_complete
        if saved is None or saved["step"] is None or known.position is not None:
            return known
        if known.step is None or known.step_time is None:
            newer = known.step is None and bool(self.record.created) and saved["time"] > self.record.created
        else:
            newer = saved["step"] > known.step and saved["time"] >= known.step_time
        return dataclasses.replace(known, step=saved["step"], step_time=saved["time"]) if newer else known

    @property
    def restarts(self) -> int:
        """The restarts of all its tasks."""
        return sum(task.restarts for task in self.tasks.values())

    @property
    def newest_checkpoint(self) -> Checkpoints | None:
        return newest_of_run(self.checkpoints)

    @property
    def newest_complete(self) -> Checkpoint | None:
        return self.newest_checkpoint.report["newest_complete"] if self.newest_checkpoint else None

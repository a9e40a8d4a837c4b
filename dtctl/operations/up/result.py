"""The result of `up`, and the checkpoint from which the run begins, if any."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import field

from dtctl.agent.records.answers import Prepared
from dtctl.agent.records.checkpoints import Checkpoint, CheckpointReport
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, fact
from dtctl.agent.records.run_state import Past, RunEnd
from dtctl.agent.run.cause import names_taken_port
from dtctl.agent.run.policy import fingerprint, why_ended
from dtctl.bundle import Bundle
from dtctl.config.cluster import Recovery
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import TaskId, TaskState
from dtctl.operations.checkpoints import Checkpoints, each_once, newest_of_run
from dtctl.operations.client import Progress
from dtctl.operations.findings import Checked
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import Coordination, Outcome, TaskStatus, how_it_ended
from dtctl.operations.stop import Ending, Stopping, StopResult
from dtctl.operations.up.succession import Unended
from dtctl.transport.seam import Session

EXPECTED_S = 30.0
"""Most programs are ready within this time."""

SETTLE_S = 1.0
"""A program without a port runs as soon as it is started; within this time it shows whether it stays."""

_WITH_PORTS = 3
"""How often a program may end in the same way because of a used port, which may be free soon."""


@dataclass(frozen=True)
class FailedStart:
    """`cause` None: no task is responsible, but the run has failed."""

    seen: Coordination
    cause: TaskStatus | None
    gave_up: bool = False
    """Whether dtctl gave up a run that would fail the same way again and again."""

    @property
    def run_failed(self) -> bool:
        """Whether the whole run has failed. Otherwise the other tasks continue."""
        return self.seen.verdict.outcome is Outcome.FAILED

    @property
    def ends(self) -> list[Past]:
        """The relevant ends of the responsible task."""
        return _own(self.cause) if self.cause is not None else []

    @property
    def _is_ended_here(self) -> bool:
        return self.cause is not None and (self.gave_up or not self.run_failed)

    @property
    def ends_as(self) -> RunEnd | None:
        """The effect of the order to stop on the run; None if its coordinator has decided the outcome."""
        if self.cause is None or not self._is_ended_here:
            return None
        hung = any(past["hung"] for past in self.ends[-1:])
        return made(RunEnd, outcome="Failed", cause=str(self.cause.id), start="failed", hung=hung)

    @property
    def why(self) -> list[Fact]:
        """The reason that the hosts of the failed run report, or are given with the order to stop."""
        cause = self.cause
        if cause is None or not self._is_ended_here:
            return list(self.seen.verdict.why)
        last = self.ends[-1] if self.ends else None
        if last is None or cause.state is TaskState.FAILED:
            return [fact("start_failed", task=str(cause.id)), *how_it_ended(cause)]
        text = [fact("cause", text=last["cause"])] if last["cause"] else []
        if names_taken_port(last["cause"]):
            port = cause.exit["evidence"]["port"]
            held = [fact("port_held", port=port["port"], text=port["holder"])] if port is not None else []
            return [fact("cannot_bind", task=str(cause.id)), *text, *held]
        return [fact("start_failed", task=str(cause.id)), *why_ended(last), *text]


def has_begun(seen: Coordination) -> bool:
    """Whether every task that should run does, and those that others need are ready; or the run is decided."""
    if seen.view["phase"] in ("finishing", "ended"):
        return True
    return seen.view["phase"] != "starting" and not any(map(_is_to_come, present(seen)))


def present(seen: Coordination) -> list[TaskStatus]:
    """Tasks of the hosts that were not left out."""
    return [one for one in seen.tasks.values() if one.host not in seen.absent_hosts]


def _is_to_come(task: TaskStatus) -> bool:
    if task.held is not None:
        return False
    if task.state in (TaskState.PENDING, TaskState.STARTING):
        return True
    return task.state is TaskState.BACKOFF and bool(task.entry["history"]) and task.entry["history"][-1]["early"]


def not_listening(seen: Coordination) -> tuple[TaskId, ...]:
    """Running tasks that others wait for, and that have neither listened nor reported a step."""
    return tuple(one.id for one in present(seen) if one.state is TaskState.RUNNING and not one.entry["ready"])


def awaited(tasks: Iterable[TaskStatus], most: int = 3) -> str:
    """The tasks that a start waits for, with states: `ps:0 starting; worker:1 loading`."""
    waits = [
        f"{task.id} {_doing(task)}" for task in tasks if task.state is not TaskState.RUNNING or not task.entry["ready"]
    ]
    more = len(waits) - most
    return "; ".join(waits[:most]) + (f" and {more} more" if more > 0 else "")


def _doing(task: TaskStatus) -> str:
    return "loading" if task.state is TaskState.RUNNING else task.state.value


def failed_exits(seen: Coordination, known: Container[TaskId]) -> list[TaskStatus]:
    """Tasks whose first attempt has failed by itself, less those that are `known` already."""
    return [one for one in present(seen) if one.id not in known and _own(one) and not one.state.final]


def failed_start(seen: Coordination, recovery: Recovery) -> FailedStart | None:
    """Why the start has failed, or would again and again."""
    failed = [one for one in present(seen) if one.state is TaskState.FAILED]
    verdict = seen.verdict
    if verdict.outcome is Outcome.FAILED:
        return FailedStart(seen, seen.tasks.get(verdict.cause) if verdict.cause else None)
    if failed:
        return FailedStart(seen, failed[0])
    if not recovery.repeat or (has_begun(seen) and _others_run(seen)):
        return None
    again = next((one for one in present(seen) if _repeats(_own(one), recovery)), None)
    return FailedStart(seen, again, gave_up=True) if again is not None else None


def _others_run(seen: Coordination) -> bool:
    """Whether another task runs that has not failed, or the run is decided."""
    running = any(one.state is TaskState.RUNNING and not _own(one) for one in present(seen))
    return running or seen.view["phase"] in ("finishing", "ended")


def _own(task: TaskStatus) -> list[Past]:
    """Ends that were not requested, of attempts whose peers were ready."""
    return [one for one in task.entry["history"] if not (one["asked"] or one["early"]) and one["code"] != 0]


def _repeats(ends: list[Past], recovery: Recovery) -> bool:
    """Whether the last attempts ended in the same way, and none of them has reported a step."""
    if not ends or any(end["step"] is not None for end in ends):
        return False
    number = ends[-1]["code"] if ends[-1]["signal"] is None else 128 + ends[-1]["signal"]
    if number is None or number in recovery.retry:
        return False
    needed = _WITH_PORTS if names_taken_port(ends[-1]["cause"]) else 2
    last = [(end["code"], end["signal"], fingerprint(end["cause"])) for end in ends[-needed:]]
    return len(last) == needed and len(set(last)) == 1


@dataclass(frozen=True)
class UnusedCheckpoint:
    """A checkpoint of an earlier run that the new run will not find."""

    host: str
    run: str | None
    """The run that saved it; None if it was removed since."""
    directory: str = ""
    checkpoint: Checkpoint | None = None
    """None: `host` is no longer asked, so the content is unknown."""
    lead: str = ""
    """The host where the new run's lead is."""


@dataclass(frozen=True)
class UpResult:
    """The result of a start; `started` is empty if the run already existed and has not changed."""

    run: str
    started: Mapping[TaskId, TaskStatus]
    ended: tuple[TaskId, ...]
    """Tasks that no longer run, if the run was there already."""
    replaced: Mapping[str, StopResult] = field(default_factory=dict)
    """Runs that were replaced, and how they ended."""
    earlier: Checkpoints | None = None
    """A complete checkpoint that the lead's host already had."""
    without_revival: Mapping[str, str] = field(default_factory=dict)
    """Hosts on which the agent does not restart after a reboot, with the reason."""
    unsure_revival: Mapping[str, str] = field(default_factory=dict)
    """Hosts on which it is unknown whether the agent restarts after a reboot, with the reason."""
    revival: Mapping[str, str] = field(default_factory=dict)
    """Host -> what restarts the agent after a reboot: `systemd` or `cron`."""
    new_revival: Mapping[str, str] = field(default_factory=dict)
    """The same for hosts on which the entry is new."""
    aside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Host -> new paths of trainers' files that were moved because the code has a file of the same name."""
    unremembered: DtctlError | None = None
    """Why there is no record of the run on this machine."""
    unseen: UnusedCheckpoint | None = None
    """A checkpoint of an earlier run, if this run begins at step 0 without it."""
    checked: Checked | None = None
    """The findings of the checks that ran with the start."""
    absent: Mapping[str, DtctlError] = field(default_factory=dict)
    """Hosts that the run was started without, also spares and arbiters, and why."""
    unconfirmed: Mapping[str, DtctlError] = field(default_factory=dict)
    """Hosts that did not confirm that they keep the run, and why."""
    lead: Session | None = None
    """The conversation with the coordinator's host, which is still open."""
    failed: FailedStart | None = None
    """Why its tasks could not be started for good, as far as they were observed."""
    joined: Mapping[TaskId, TaskStatus] = field(default_factory=dict)
    """Tasks of hosts that have joined a run that was there already, and was started without them."""
    drained: Mapping[TaskId, TaskStatus] = field(default_factory=dict)
    """Tasks of a run that was there already, and that are held because a host is drained."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Hosts -> spares that have taken their places in a run that was there already, where the former are gone."""
    spares: tuple[str, ...] = ()
    """Hosts, new in the cluster file, that have joined a run that was there already as spares."""
    waiting: Mapping[str, tuple[TaskId, ...]] = field(default_factory=dict)
    """Spares that have joined -> the tasks that they have added, which `scale` starts."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Job -> the number of its tasks in the file, where the run that was there already has places for fewer."""


class UpReport:
    """Receives the progress of `up`; this one shows nothing.

    An exception from `consent` or `stopping` cancels the start.
    """

    def __call__(self, progress: Progress) -> None:
        """Called from the threads of the hosts."""

    def wheels(self, sent: Mapping[str, int], wheels: Bundle) -> None:
        """Called with the hosts that have the wheels, and the number of those that were sent."""

    def checked(self, checked: Checked) -> None:
        """Called with what the hosts reported about themselves, once all are prepared."""

    def moving_ports(self, taken: DtctlError) -> None:
        """Called if ports that the file does not set are in use, so the hosts choose others. May raise."""

    def at_zero(self, unseen: UnusedCheckpoint) -> None:
        """Called if an earlier run has saved a checkpoint that this one does not see."""

    def incomplete(self, found: Sequence[Checkpoints]) -> None:
        """Called if the newest checkpoint in directories that the run restores from is not complete."""

    def consent(self, runs: Collection[str]) -> None:
        """Called before these runs are replaced."""

    def stopping(self, found: Ending) -> None:
        """Called before a replaced run is stopped, with its live tasks."""

    def stopped(self, stopping: Stopping) -> None:
        """Called with the progress of that stop, if it takes long."""

    def unknown_end(self, left: Unended) -> None:
        """Called if tasks of the stopped run may still act on hosts that gave no answer. May raise."""

    def awaiting_end(self, left: Unended, seconds: int) -> None:
        """Called once a second while they may."""


def earlier(prepared: Mapping[str, Prepared]) -> Checkpoints | None:
    """The newest checkpoint in the directories that the run will restore from."""
    found = [Checkpoints(host, each) for host, answer in prepared.items() for each in answer["checkpoints"]]
    seen = [(host, one) for host, answer in prepared.items() for one in answer["saved"] if one["seen"]]
    for host, one in seen:
        newest_seen = one["checkpoint"]
        report = made(CheckpointReport, dir=one["dir"], newest_complete=newest_seen, incomplete=[], all=[newest_seen])
        found.append(Checkpoints(host, report))
    newest = newest_of_run(found)
    return newest if newest and newest.report["newest_complete"] else None


def incomplete(prepared: Mapping[str, Prepared]) -> list[Checkpoints]:
    """The directories in which the newest checkpoint is not complete, once where several hosts report it."""
    found = [Checkpoints(host, each) for host, answer in prepared.items() for each in answer["checkpoints"]]
    return [one for one in each_once(found) if one.report["incomplete"]]


def unseen(prepared: Mapping[str, Prepared], record: RunRecord, previous: RunRecord | None) -> UnusedCheckpoint | None:
    """The newest checkpoint that the run does not see, if it sees none. `previous`: the last run of this file."""
    lead = record.coordinator
    if earlier(prepared):
        return None
    unused = [(host, one) for host, answer in prepared.items() for one in answer["saved"] if not one["seen"]]
    if unused:
        host, newest = max(unused, key=lambda one: one[1]["checkpoint"]["time"])
        return UnusedCheckpoint(host, newest["run"], newest["dir"], newest["checkpoint"], lead)
    if previous is not None and previous.run and not previous.is_local and previous.coordinator not in record.hosts:
        return UnusedCheckpoint(previous.coordinator, previous.run, lead=lead)
    return None

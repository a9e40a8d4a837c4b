"""Start a run: everything is made ready on every host before anything starts on one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dtctl.agent.records import answers
from dtctl.agent.records.reasons import headline
from dtctl.errors import DtctlError, PreflightError
from dtctl.model import TaskId, TaskState
from dtctl.operations.asking.conversation import Report
from dtctl.operations.asking.ending import Before
from dtctl.operations.asking.tasks import TaskStatus
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.checks.checking import Checked
from dtctl.operations.memory.record import RunRecord
from dtctl.operations.up.earlier import Unseen, earlier, unseen
from dtctl.operations.up.interrupts import Interrupted, uninterrupted
from dtctl.operations.up.joining import Joining, newcomers, offered
from dtctl.operations.up.launch import Start
from dtctl.operations.up.ownership import refuse_outputs_of_others
from dtctl.operations.up.ports import holders, refuse_taken_ports
from dtctl.operations.up.start import Starting, statuses
from dtctl.operations.stop import StopResult
from dtctl.operations.stopping import OnStopping
from dtctl.operations.stopping import unseen as nobody
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class UpResult:
    """`started` is empty when the run was there already and nothing has changed."""

    run: str
    started: Mapping[TaskId, TaskStatus]
    ended: tuple[TaskId, ...]
    """Tasks that no longer run, if the run was there already."""
    replaced: Mapping[str, StopResult] = field(default_factory=dict)
    """Runs that were replaced, and how they ended."""
    earlier: Checkpoints | None = None
    """Where the lead's host has a complete checkpoint already."""
    without_revival: Mapping[str, str] = field(default_factory=dict)
    """Hosts on which nothing brings the agent back after a restart of the machine, and why."""
    revival: Mapping[str, str] = field(default_factory=dict)
    """Host -> what brings the agent back there: `systemd` or `cron`."""
    new_revival: Mapping[str, str] = field(default_factory=dict)
    """The same of the hosts on which it was written just now."""
    aside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Host -> where files of trainers are now that stood where the code has one."""
    unremembered: DtctlError | None = None
    """Why there is no record of the run on this machine."""
    unseen: Unseen | None = None
    """What an earlier run has saved, if this one begins at step 0 beside it."""
    checked: Checked | None = None
    """What the hosts told of themselves by the way."""
    absent: Mapping[str, DtctlError] = field(default_factory=dict)
    """Hosts that the run goes on without, and why."""
    joined: Mapping[TaskId, TaskStatus] = field(default_factory=dict)
    """Tasks of hosts that have joined a run that was there already, and was started without them."""

    @property
    def broken(self) -> Mapping[TaskId, TaskStatus]:
        """Tasks that could not start; where none has failed itself, those that were stopped because the run has."""
        failed = {task: one for task, one in self.started.items() if one.state is TaskState.FAILED}
        return failed or {task: one for task, one in self.started.items() if headline(one.why) == "run_failed"}


class Records(Protocol):
    """This machine's memory of runs. Each of these raises DtctlError when it cannot be written."""

    def begin(self, record: RunRecord) -> None: ...
    def save(self, record: RunRecord) -> None: ...
    def take_back(self, record: RunRecord) -> None: ...


def up(
    launch: Start,
    transport: Transport,
    report: Report,
    memory: Records,
    consent: Callable[[Collection[str]], None] = lambda runs: None,
    *,
    previous: RunRecord | None = None,
    at_zero: Callable[[Unseen], None] = lambda unseen: None,
    before: Before | None = None,
    stopping: OnStopping = nobody,
    checked: Callable[[Checked], None] = lambda checked: None,
) -> UpResult:
    """Prepares all hosts, ends the run that is replaced, starts all hosts, then tells them to keep what they started.

    A host that fails, an interrupt or the death of this process before that takes everything back: hosts that
    lose their controller do so by themselves. The run is written down before any host hears of it, as one that is
    begun, and as one that has started before any host is told to keep it; where it was taken back for certain it is
    forgotten. When all is prepared, `checked` is called with what the hosts told of themselves, `at_zero` with a
    checkpoint of an earlier run that this one does not see (`previous`: the last of this file), and `consent` with the
    runs that are to be ended: what they raise takes everything back. `before` hears of each of those what of it is
    still there, and `stopping` of tasks that take long to end. Raises Interrupted for Ctrl-C, with what is certain
    about what it has left.
    """
    starting = Starting(launch, transport, report)
    unbegun = _error_of(memory.begin, launch.record)
    if unbegun is not None and launch.record.is_local:
        raise _without_trace(unbegun)
    try:
        with starting:
            outcome = _up(starting, memory, consent, unbegun, previous, at_zero, before, stopping, checked)
    except BaseException as error:
        left = starting.left(unbegun)
        if not (left.kept or left.unclear):
            _error_of(memory.take_back, launch.record)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(left) from None
        raise
    if not outcome.started:
        _error_of(memory.take_back, launch.record)
    return outcome


def _up(
    starting: Starting,
    memory: Records,
    consent: Callable[[Collection[str]], None],
    unbegun: DtctlError | None,
    previous: RunRecord | None,
    at_zero: Callable[[Unseen], None],
    before: Before | None,
    stopping: OnStopping,
    checked: Callable[[Checked], None],
) -> UpResult:
    launch, record = starting.launch, starting.launch.record
    assert record.run is not None
    starting.choose_ports()
    prepared = starting.prepare_everywhere()
    joining = offered(prepared, record.coordinator)
    new = newcomers(prepared, joining)
    there = {host: answer for host, answer in prepared.items() if host not in new}
    running = _already_running(there)
    if running is not None:
        return _joined(starting, UpResult(running, {}, starting.ended(there), absent=starting.absent), joining, new)
    brief = starting.checked(prepared)
    if brief is not None:
        checked(brief)
    starting.pass_over(holders(prepared))
    prepared = {host: answer for host, answer in prepared.items() if host not in starting.absent}
    refuse_taken_ports(prepared, launch.plan.cluster)
    if not launch.adopt_output:
        refuse_outputs_of_others(
            prepared, record.cluster, launch.controller, Path(os.path.realpath(launch.plan.cluster.file))
        )
    old = dict.fromkeys(answer["replaces"] for answer in prepared.values() if answer["replaces"])
    if (out_of_sight := unseen(prepared, record, previous)) is not None:
        at_zero(out_of_sight)
    consent(old)
    replaced = {run: starting.replace(run, before, stopping) for run in old}
    started = starting.start_everywhere()
    with uninterrupted():
        unsaved = _error_of(memory.save, record)
        kept = starting.keep_everywhere()
    return UpResult(
        run=record.run,
        started=statuses(record.roster, started),
        ended=(),
        replaced=replaced,
        earlier=earlier(prepared),
        unseen=out_of_sight,
        checked=brief,
        without_revival=_without_revival(kept) if launch.expects_revival else {},
        revival=_revival(kept),
        new_revival=_revival({host: told for host, told in kept.items() if told["reboot_new"]}),
        aside={host: tuple(told["aside"]) for host, told in kept.items() if told["aside"]},
        absent=starting.absent,
        unremembered=unsaved and unbegun,  # what was begun is found again
    )


def _joined(starting: Starting, found: UpResult, joining: answers.Joining | None, new: tuple[str, ...]) -> UpResult:
    """The run that is there already, with the hosts that can join it now."""
    if joining is None or not new:
        return found
    hosts = starting.give_back(new)
    outcomes = Joining(starting.launch, joining, starting.transport, starting.report).join(hosts)
    joined = statuses(starting.launch.record.roster, outcomes.results)
    return dataclasses.replace(found, joined=joined, absent={**found.absent, **outcomes.errors})


def _error_of(write: Callable[[RunRecord], None], record: RunRecord) -> DtctlError | None:
    """A record that cannot be written is no reason to end a run that its hosts know."""
    try:
        write(record)
    except DtctlError as error:
        return error
    return None


def _without_trace(error: DtctlError) -> DtctlError:
    """Nobody else knows a run on this machine: no command would find it again."""
    detail = f"{error.detail}; without a record no command could find a run on this machine again".lstrip("; ")
    return PreflightError(
        error.summary, detail=detail, hint="free some space or fix the directory, then dtctl up again"
    )


def _already_running(prepared: Mapping[str, answers.Prepared]) -> str | None:
    """The run that continues unchanged on all hosts. If it does so on some hosts only, that is an error."""
    unchanged = {host: answer["run"] for host, answer in prepared.items() if answer["unchanged"]}
    if not unchanged:
        return None
    runs: set[str] = set(unchanged.values())
    # A host whose tasks have all ended still belongs to the run that goes on elsewhere.
    others = [host for host, answer in prepared.items() if host not in unchanged and answer["current"] not in runs]
    if len(runs) > 1 or others:
        from dtctl.config.ranges import fold

        raise PreflightError(
            f"run {min(runs)} continues on {fold(unchanged)}, but not on {fold(others or prepared)}",
            hint="dtctl stop    and then dtctl up again",
        )
    return runs.pop()


def _revival(kept: Mapping[str, answers.UpResult]) -> dict[str, str]:
    return {host: told["reboot"] for host, told in kept.items() if told["reboot"]}


def _without_revival(kept: Mapping[str, answers.UpResult]) -> dict[str, str]:
    return {host: told["reboot_why"] for host, told in kept.items() if told["reboot_why"]}

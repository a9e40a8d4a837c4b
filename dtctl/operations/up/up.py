"""Start a run: everything that can fail is made ready on every host before anything ends or starts on one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from dtctl.agent.records import answers
from dtctl.config.ranges import fold
from dtctl.errors import AgentError, DtctlError, PreflightError
from dtctl.operations.credentials import Authority
from dtctl.operations.engines import engine_of_record, still_held
from dtctl.operations.history import CodeRecord
from dtctl.operations.run_record import RunRecord
from dtctl.operations.status import status
from dtctl.operations.stop import StopResult
from dtctl.operations.up.adding import add_hosts, addition
from dtctl.operations.up.conflicts import explained, holders, may_move, refuse_taken_ports, taken_ports
from dtctl.operations.up.launch import Start
from dtctl.operations.up.readying import Interrupted, uninterrupted
from dtctl.operations.up.result import UpReport, UpResult, earlier, incomplete, unseen
from dtctl.operations.up.start import Joining, Starting, newcomers, offered, statuses
from dtctl.operations.up.succession import Unended, left_open, pause, unended
from dtctl.transport.fanout import SomeHostsFailed
from dtctl.transport.seam import Transport

Prepared = Mapping[str, answers.Prepared]
"""Host -> its answer to `up`."""


class Records(Protocol):
    """This machine's records of runs. Each method raises DtctlError if it cannot write."""

    def begin(self, record: RunRecord) -> None: ...
    def save(self, record: RunRecord) -> None: ...
    def take_back(self, record: RunRecord) -> None: ...
    def keep_code(self, run: str, code: CodeRecord) -> None: ...
    def code_of(self, run: str) -> CodeRecord | None: ...
    def keep_authority(self, run: str, authority: Authority) -> None: ...
    def authority_of(self, run: str) -> Authority | None: ...
    def change(self, record: RunRecord, **fields: Any) -> None: ...

    def note_failure(self, record: RunRecord, error: DtctlError) -> None:
        """Keeps why nothing was started; raises nothing."""


def up(
    launch: Start, transport: Transport, report: UpReport, memory: Records, *, previous: RunRecord | None = None
) -> UpResult:
    """Returns when every host has been asked to keep the run; `Awaiting` (awaiting.py) watches its tasks from there on.

    Until then a host that fails, an interrupt or the death of this process cancels everything: hosts that lose their
    controller do so by themselves. The run is written down before any host hears of it, and as one that has started
    before any host is asked to keep it; where it was cancelled for certain it is forgotten. A run that is replaced is
    stopped when every host has prepared all that can fail. `previous`: the last run of this file. Raises Interrupted
    for Ctrl-C, with what is certain about what it has left.
    """
    try:
        return _less_moved(_up(launch, transport, report, memory, previous), launch, transport)
    except DtctlError as error:
        try:
            live = _live_run(launch.record, transport) if _is_refused(error) or launch.record.idle_hosts else None
            there = _there_already(live, launch, transport, report, memory) if live is not None else None
        except KeyboardInterrupt:
            raise error from None
        if there is not None:
            return there
        for text in taken_places(error, live, str(launch.plan.cluster.file)) if live is not None else ():
            explained(error, text)
        if live is not None and _is_refused(error):
            for text in other_code(live, launch, memory):
                explained(error, text)
        raise


def _up(launch: Start, transport: Transport, report: UpReport, memory: Records, previous: RunRecord | None) -> UpResult:
    starting = Starting(launch, transport, report)
    unbegun = _write_down(memory, launch)
    try:
        with starting:
            outcome = _start(starting, report, memory, unbegun, previous)
    except BaseException as error:
        left = starting.left(unbegun)
        if not (left.kept or left.unclear):
            _error_of(memory.take_back, launch.record)
            if isinstance(error, DtctlError):
                memory.note_failure(launch.record, error)
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(left) from None
        if isinstance(error, DtctlError) and left.ended:
            explained(error, f"dtctl up    again: {', '.join(left.ended)} was stopped to make room for this run")
        elif isinstance(error, DtctlError) and launch.replace:
            explained(error, "dtctl status    no run was stopped for this one")
        raise
    if not outcome.started:
        _error_of(memory.take_back, launch.record)
    return outcome


def _start(
    starting: Starting, report: UpReport, memory: Records, unbegun: DtctlError | None, previous: RunRecord | None
) -> UpResult:
    """The steps of a start."""
    record = starting.launch.record
    assert record.run is not None
    elsewhere = live_elsewhere(starting.launch, starting.transport, previous)
    starting.choose_ports()
    starting.bring_wheels()
    prepared: Prepared = starting.prepare_everywhere()
    if (there := _already_there(starting, prepared)) is not None:
        return there
    prepared = _move_ports(starting, report, prepared)
    brief = starting.check(prepared)
    prepared = _refuse_conflicts(starting, prepared)
    out_of_sight = None if starting.saw_checkpoint else unseen(prepared, record, previous)
    if out_of_sight is not None:
        report.at_zero(out_of_sight)
    if damaged := incomplete(prepared):
        report.incomplete(damaged)
    replaced = _make_room(starting, report, prepared, elsewhere)
    started = starting.start_everywhere()
    with uninterrupted():
        unsaved = _error_of(memory.save, record)
        if starting.launch.authority is not None and starting.launch.plan.marked:
            memory.keep_authority(record.run, starting.launch.authority)  # hosts can join the run
        kept = starting.keep_everywhere()
    return UpResult(
        run=record.run,
        started=statuses(record.roster, started),
        ended=(),
        replaced=replaced,
        earlier=earlier(prepared),
        unseen=out_of_sight,
        checked=brief,
        without_revival=_reported(kept, "reboot_why") if starting.launch.expects_revival else {},
        unsure_revival=_reported(kept, "reboot_unsure"),
        revival=_reported(kept, "reboot"),
        new_revival=_reported({host: answer for host, answer in kept.items() if answer["reboot_new"]}, "reboot"),
        aside={host: tuple(answer["aside"]) for host, answer in kept.items() if answer["aside"]},
        absent=starting.absent,
        unconfirmed=starting.unconfirmed,
        unremembered=unsaved and unbegun,  # so that the begun run is found again
        lead=starting.hand_over(),
    )


def _write_down(memory: Records, launch: Start) -> DtctlError | None:
    """Records the run; returns why that failed. Raises that for a run on this machine, which no command would find
    without a record.
    """
    record = launch.record
    assert record.run is not None
    error = _error_of(memory.begin, record)
    diff = launch.inspected.diff if launch.inspected is not None else ""
    memory.keep_code(record.run, CodeRecord.of(launch.bundle.manifest, diff))
    if error is not None and record.is_local:
        detail = f"{error.detail}; without a record no command could find a run on this machine again".lstrip("; ")
        raise PreflightError(
            error.summary, detail=detail, hint="free some space or fix the directory, then dtctl up again"
        )
    return error


def _error_of(write: Callable[[RunRecord], None], record: RunRecord) -> DtctlError | None:
    """The error of a record that cannot be written, which is no reason to stop a run that its hosts know."""
    try:
        write(record)
    except DtctlError as error:
        return error
    return None


def _already_there(starting: Starting, prepared: Prepared) -> UpResult | None:
    """The run that continues unchanged on all hosts, with the hosts that can join it now; None if there is none.

    If it continues on some hosts only, that is an error.
    """
    joining = offered(prepared, starting.launch.record.coordinator)
    new = newcomers(prepared, joining)
    there = {host: answer for host, answer in prepared.items() if host not in new}
    run = _unchanged(there, starting.launch.plan.hosts)
    if run is None:
        return None
    ended, drained = starting.not_running(there)
    found = UpResult(run, {}, ended, absent=starting.absent, drained=drained)
    if joining is None or not new:
        return found
    hosts = starting.give_back(new)
    outcomes = Joining(starting.launch, joining, starting.transport, starting.report).join(hosts)
    joined = statuses(starting.launch.record.roster, outcomes.results)
    return dataclasses.replace(found, joined=joined, absent={**found.absent, **outcomes.errors})


def _unchanged(prepared: Prepared, with_tasks: Collection[str]) -> str | None:
    unchanged = {host: answer["run"] for host, answer in prepared.items() if answer["unchanged"]}
    if not unchanged:
        return None
    runs: set[str] = set(unchanged.values())
    # A host whose tasks have all ended still belongs to the run that continues elsewhere.
    there = {host: prepared[host]["current"] for host in with_tasks if host in prepared and host not in unchanged}
    others = [host for host, current in there.items() if current not in runs]
    if len(runs) > 1 or others:
        raise PreflightError(
            f"run {min(runs)} continues on {fold(unchanged)}, but not on {fold(others or prepared)}",
            hint="dtctl stop    and then dtctl up again",
        )
    return runs.pop()


def _less_moved(up_result: UpResult, launch: Start, transport: Transport) -> UpResult:
    """The result of an existing run, in which hosts that were replaced do not count as missing."""
    if up_result.started or not launch.record.idle_hosts or up_result.absent.keys().isdisjoint(launch.plan.hosts):
        return up_result
    live = _live_run(launch.record, transport)
    taken = live.moved if live is not None and live.run == up_result.run else {}
    return dataclasses.replace(
        up_result,
        absent={host: error for host, error in up_result.absent.items() if host not in taken},
        moved={host: new for host, new in taken.items() if host in up_result.absent},
    )


def _there_already(
    live: RunRecord, launch: Start, transport: Transport, report: UpReport, memory: Records
) -> UpResult | None:
    """The existing run that this `up` describes, but for places that spares have taken, and for hosts that it adds."""
    try:
        adding = None if launch.replace else addition(launch, live, transport)
    except PreflightError:
        raise
    except DtctlError:  # the first error is shown
        adding = None
    found = _continues(live, launch if adding is None else adding.before, transport, report)
    if found is None or adding is None or found.run != adding.known["run"]:
        return found if live.moved or adding is not None else None
    spares, errors = add_hosts(adding, live, transport, report, memory)
    if spares:
        hosts = {**live.hosts, **{host: launch.record.hosts[host] for host in spares}}
        roster = {**live.roster, **{task: host for host in spares for task in adding.tasks.get(host, ())}}
        memory.change(live, hosts=hosts, roster=roster)
    waiting = {host: adding.tasks[host] for host in spares if host in adding.tasks}
    places, absent = adding.places, {**found.absent, **errors}
    return dataclasses.replace(found, spares=spares, waiting=waiting, places=places, absent=absent)


def _continues(live: RunRecord, launch: Start, transport: Transport, report: UpReport) -> UpResult | None:
    """The existing run that this `up` describes, if `up` failed only because its tasks were moved to other hosts."""
    launch = dataclasses.replace(launch, replace=False, record=dataclasses.replace(launch.record, roster=live.roster))
    try:
        with Starting(launch, transport, report, without=live.moved) as starting:
            starting.choose_ports()
            found = _already_there(starting, starting.prepare_everywhere())
    except DtctlError:  # the first error is shown
        return None
    return dataclasses.replace(found, moved=live.moved) if found is not None else None


def taken_places(error: DtctlError, live: RunRecord, file: str) -> list[str]:
    """Hints if `up` failed because hosts of the live run were replaced, by `replace` or by spares."""
    if _is_refused(error):
        return [
            f"{new} has taken the place of {old} in the live run: write it into {file}"
            for old, new in live.replaced.items()
        ]
    return [
        f"{new} has taken the place of {old} in the live run, which goes on without dtctl up; "
        f"a new run needs {new} in the place of {old} in {file}"
        for old, new in live.moved.items()
    ]


_MOST_SHOWN = 5


def other_code(live: RunRecord, launch: Start, memory: Records) -> list[str]:
    """How the code of the live run differs from that of this start; nothing for the same code."""
    assert live.run is not None
    if live.settings.get("trainer.code") == launch.bundle.code_id[:12]:
        return []
    shown = []
    old, new = live.revision, launch.record.revision
    if old is not None or new is not None:
        shown.append(f"the code of the live run is {old.shown if old else 'in no repository'}")
        shown.append(f"this code is {new.shown if new else 'in no repository'}")
    known = memory.code_of(live.run)
    if known is not None and (paths := known.differing(launch.bundle.manifest)):
        more = [f"and {len(paths) - _MOST_SHOWN} more"] * (len(paths) > _MOST_SHOWN)
        shown.append(f"files that differ: {', '.join([*paths[:_MOST_SHOWN], *more])}")
    return shown


def _live_run(record: RunRecord, transport: Transport) -> RunRecord | None:
    """The record of the live run, as its hosts report it; None if there is none."""
    try:
        found = status(dataclasses.replace(record, run=None), transport)
    except DtctlError:  # the error of `up` is shown
        return None
    return None if found.verdict.outcome.decided else found.record


def _is_refused(error: DtctlError) -> bool:
    causes = error.errors.values() if isinstance(error, SomeHostsFailed) else [error]
    return any(isinstance(cause, AgentError) and cause.code == "changed_run" for cause in causes)


def _move_ports(starting: Starting, report: UpReport, prepared: Prepared) -> Prepared:
    """Lets the hosts choose other ports if ports that the file does not set are in use.

    Once, and only if no host may be missing, because each host must answer.

    The digest stays that of the file, so the next `up` finds the run unchanged.
    """
    launch = starting.launch
    if launch.replan is None or launch.allow_missing or not may_move(prepared, launch.plan.cluster):
        return prepared
    if (taken := taken_ports(prepared, launch.plan.cluster)) is not None:
        report.moving_ports(taken)
    return starting.move_ports()


def _refuse_conflicts(starting: Starting, prepared: Prepared) -> Prepared:
    """Refuses ports and output directories in use. Returns the answers of the hosts with which the start continues."""
    launch = starting.launch
    starting.pass_over(holders(prepared))
    prepared = {host: answer for host, answer in prepared.items() if host not in starting.absent}
    refuse_taken_ports(prepared, launch.plan.cluster)
    if not launch.adopt_output and any(answer["outputs"] for answer in prepared.values()):
        from dtctl.operations.outputs import refuse_outputs_of_others

        file = Path(os.path.realpath(launch.plan.cluster.file))
        refuse_outputs_of_others(prepared, launch.record.cluster, launch.controller, file)
    return prepared


def live_elsewhere(launch: Start, transport: Transport, previous: RunRecord | None) -> RunRecord | None:
    """The file's last run, if it is live on hosts of which the new run uses none, so that none of these reports it.

    Raises PreflightError unless it is to be replaced. None also where its hosts cannot be asked.
    """
    if previous is None or not previous.run or previous.outcome:
        return None
    lent = engine_of_record(previous) is not None  # hosts of the file may be called like them
    if not lent and not previous.hosts.keys().isdisjoint(launch.record.hosts):
        return None
    try:
        found = status(previous, transport)
    except DtctlError:
        return None
    if not found.time or found.verdict.outcome.decided:
        return None
    if not launch.replace:
        if found.allocation is not None:
            raise still_held(previous, found.allocation, launch.plan.cluster)
        raise PreflightError(
            f"another run of {previous.cluster} is live on {fold(found.record.task_hosts)}: {previous.run}",
            detail="it was started from this file, which names other hosts for its tasks now",
            hint="dtctl up --replace    stops it and starts the new one",
        )
    return found.record


def _make_room(
    starting: Starting, report: UpReport, prepared: Prepared, elsewhere: RunRecord | None
) -> dict[str, StopResult]:
    old = dict.fromkeys(answer["replaces"] for answer in prepared.values() if answer["replaces"])
    others = [elsewhere.run] if elsewhere is not None and elsewhere.run and elsewhere.run not in old else []
    report.consent([*old, *others])
    replaced = {run: starting.replace(run) for run in old}
    replaced.update({run: starting.replace(run, elsewhere) for run in others})
    if not starting.launch.lent:
        await_ends([*(unended(run, result) for run, result in replaced.items()), *left_open(prepared)], report)
    return replaced


def await_ends(unended_runs: Iterable[Unended | None], report: UpReport) -> None:
    """Returns when no task of the ended runs acts any more, or when the user accepts that this is unknown."""
    open_ = [left for left in unended_runs if left is not None]
    for left in open_:
        if left.wait_s is None:
            report.unknown_end(left)
    waiting = [(left.wait_s, left) for left in open_ if left.wait_s]
    if waiting:
        seconds, longest = max(waiting, key=lambda one: one[0])
        pause(seconds, lambda left_s: report.awaiting_end(longest, left_s))


def _reported(kept: Mapping[str, answers.UpResult], field: str) -> dict[str, str]:
    """Host -> value of `field`, for hosts with a value."""
    return {host: str(answer[field]) for host, answer in kept.items() if answer[field]}  # type: ignore[literal-required]

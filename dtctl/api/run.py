"""A run, as one that was started or found again: each call asks its hosts."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dtctl.api.cluster import Cluster, Finding, all_of, log, memory, one_at_a_time
from dtctl.api.values import Checkpoint, Command, Event, LogLine, Status, checkpoints_of, event_of, status_of
from dtctl.errors import DtctlError, UsageError
from dtctl.operations.checkpoints import Checkpoints, chosen, each_once
from dtctl.operations.client import Progress, controller_name, silent
from dtctl.operations.client.streams import Disconnected
from dtctl.operations.engines import Allocation, engine_of_record, forget, require_here
from dtctl.operations.events import read_events
from dtctl.operations.findings import fails
from dtctl.operations.logs import LogLines, LogRequest, checked_pattern
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.selection import select_tasks
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.status import placed, status, with_checkpoints, with_storage
from dtctl.operations.stop import StopOrder, StopResult, stop
from dtctl.operations.waiting import status_of_waiting
from dtctl.plan import plan_roster
from dtctl.rooms.metrics.operation import Series, read_metrics

if TYPE_CHECKING:
    from dtctl.operations.history import Memory
    from dtctl.operations.restart import RestartResult
    from dtctl.rooms.speed.operation import Speed
    from dtctl.transport.seam import Transport


class Run:
    """One run of a cluster, made by `up` or `attach`. It continues whatever becomes of this object.

    Its methods may be called from several threads at once. Each raises errors.TransportError when no host can be
    reached, and errors.AgentError for what a host refuses.
    """

    def __init__(self, record: RunRecord, transport: Transport, remembered: Memory) -> None:
        """Internal: `up` and `attach` create runs."""
        assert record.run is not None
        self._noted, self._transport, self._memory = record, transport, remembered
        self.id = record.run
        """The id as `dtctl runs` lists it, for `--run`."""
        self.cluster = record.cluster
        """The name of its cluster."""

    def _known(self) -> RunRecord:
        """Its record, with the starts of the runs that have followed it."""
        return dataclasses.replace(self._record, starts=self._memory.starts_of(self._record))

    def __repr__(self) -> str:
        return f"<dtctl.Run {self.id}>"

    @property
    def _record(self) -> RunRecord:
        """What is known of it here. A run that waits for the nodes of a job is written down again when it has them."""
        if not self._noted.begun:
            self._noted = self._memory.load(self.id) or self._noted
        return self._noted

    def status(self) -> Status:
        """How it is now. Raises errors.DtctlError if no host that answers knows it, after `down` for example."""

        found = with_storage(status(self._known(), self._transport))
        if not found.time:
            raise next(iter(found.errors.values()), _gone(self._record))
        return self._seen(found)

    def wait(self, timeout: float | None = None, *, progress: Callable[[Status], None] | None = None) -> Status:
        """Waits until the run has ended. Its outcome is in the result; a run that fails is no exception.

        `timeout` in seconds: raises TimeoutError then, and the run continues. `progress` is called, in this thread,
        with each change. An interrupt ends the wait, never the run. Hooks of the file that run commands here do not
        run: the caller can act on the result. With `on: slurm` it waits for the job's nodes, too; if the job waits
        again, it goes on with the run that continues this one.
        """
        from dtctl.operations.waiting import await_machines, is_queued_again

        deadline = None if timeout is None else time.monotonic() + timeout
        record, report = self._known(), progress or (lambda status: None)
        while True:

            def seen(held: Allocation, record: RunRecord = record) -> None:
                report(status_of(status_of_waiting(record, held)))

            try:
                record = await_machines(record, self._newer, seen, deadline)
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                ended = self._end_of(record, left, report)
            except TimeoutError:
                raise TimeoutError(f"run {self.id} has not ended within {timeout:g} s") from None
            if not is_queued_again(ended):
                return self._seen(ended)

    def _newer(self, record: RunRecord, held: Allocation) -> RunRecord | None:
        run = held.run or record.run
        return self._memory.load(run) if run is not None else None

    def _end_of(self, record: RunRecord, timeout: float | None, report: Callable[[Status], None]) -> RunStatus:
        """How the run has ended."""
        from dtctl.operations.follow import Ended, follow_for

        with closing(follow_for(record, self._transport, LogRequest(()), timeout)) as events:
            for event in events:
                if isinstance(event, Ended):
                    return with_storage(event.status)
                if isinstance(event, RunStatus):
                    report(status_of(event))
        raise AssertionError("following ends with Ended")

    def logs(
        self,
        *tasks: str,
        follow: bool = False,
        lines: int | None = 100,
        since: float | None = None,
        grep: str | None = None,
        errors: bool = False,
        all_attempts: bool = False,
        exclude: Sequence[str] = (),
    ) -> Iterator[LogLine]:
        """The output of tasks, merged by time.

        `tasks`: such as worker:1, worker, worker:0-3 or @HOST; all if none is named. `exclude`: words for those that
        are left out. `follow`: goes on until the run has ended. `lines`: the newest of each task; None: all. `since`:
        in epoch seconds. `grep`: a regular expression, which the hosts search for. `errors`: tracebacks, errors and
        last lines alone. `all_attempts`: earlier attempts, too. Hosts that give no answer are logged as warnings.
        Raises errors.UsageError for a task that is not there, and for what is no regular expression.
        """
        if lines is not None and lines < 0:
            raise UsageError(f"lines is {lines}, expected None or 0 and more")
        if errors and grep is not None:
            raise UsageError("errors and grep exclude each other", hint="leave one of them out")
        wanted = LogRequest(
            select_tasks(self._record, tasks, exclude),
            lines=lines,
            since=since,
            grep=checked_pattern(grep, "grep"),
            errors=errors,
            all_attempts=all_attempts or errors,
        )
        return self._followed(wanted) if follow else self._read(wanted)

    def metrics(self, *tags: str, points: int = 1000) -> list[Series]:
        """The scalars that its trainers write for TensorBoard, a series for each tag and directory.

        `tags`: names or patterns such as 'eval*'; all if none is named. `points`: the most of each series, evenly
        spread, up to 2000. A point is (step, time, value), with its time in epoch seconds. Hosts that give no answer
        are logged as warnings. Raises errors.DtctlError if no host knows the run.
        """
        if not 1 <= points <= 2000:
            raise UsageError(f"points is {points}, expected 1 to 2000")

        found = read_metrics(self._placed(), self._transport, tags, points=points)
        if found.run is None:
            raise next(iter(found.errors.values()), _gone(self._record))
        _warn(found.errors)
        return list(found.series)

    def events(self, last: int | None = None) -> list[Event]:
        """The event history: events and decisions with reasons; `last`: only so many.

        Hosts without an answer are logged.
        """

        found = read_events(self._record, self._transport, last=last)
        _warn(found.errors)
        return list(map(event_of, found.lines))

    def diagnose(self) -> list[Finding]:
        """Problems of the run with causes, the most important first; its hosts are inspected.

        Hosts that give no answer are logged as warnings. Raises errors.DtctlError if no host knows the run.
        """
        from dtctl.render.findings import paragraph
        from dtctl.rooms.diagnose.operation import diagnose

        found = diagnose(self._placed(), self._transport)
        if not found.status.time:
            raise next(iter(found.errors.values()), _gone(self._record))
        _warn(found.errors)
        return [
            Finding(fails(one), one.signature.name, one.seen.hosts, tuple(paragraph(one, typed="diagnose")))
            for one in found.found
        ]

    def speed(self, minutes: int = 5) -> Speed:
        """Why it is not faster, by the last minutes in which all tasks trained: at most 30.

        `verdicts` is empty if nothing stands out, or if `judged`, the number of those minutes, is 0. Hosts that give no
        answer are logged as warnings. Raises errors.DtctlError if no host knows the run.
        """
        from dtctl.rooms.speed.operation import speed

        if not 1 <= minutes <= 30:
            raise UsageError(f"minutes is {minutes}, expected 1 to 30")
        found = speed(self._placed(), self._transport, minutes)
        if found.run is None:
            raise next(iter(found.errors.values()), _gone(self._record))
        _warn(found.errors)
        return found

    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that its hosts find, the newest first. Hosts that give no answer are logged as warnings."""
        return checkpoints_of(self._checkpoints())

    def pull(
        self,
        directory: str | os.PathLike[str],
        step: int | str | None = None,
        *,
        progress: Callable[[Progress], None] = silent,
    ) -> list[Path]:
        """Brings a checkpoint here: the newest complete one, or that of `step`, which may be its name, too.

        Returns its files. Raises errors.DtctlError for one that is damaged or not there. What has arrived by an
        interrupt is kept for the next call. `progress` is called once at a time, from other threads.
        """
        from dtctl.rooms.checkpoints.pull import pull
        from dtctl.rooms.checkpoints.upkeep import refuse_damaged

        one = chosen(self._checkpoints(), None if step is None else str(step))
        refuse_damaged(self._record, self._transport, one)
        report = one_at_a_time(progress)
        return list(pull(self._record, self._transport, one, Path(directory).expanduser(), report).files)

    def exec(
        self, command: Sequence[str], *places: str, home: bool = False, exclude: Sequence[str] = ()
    ) -> dict[str, Command]:
        """Runs a command where tasks run it, or on hosts, without a shell; by place: worker:1, or @HOST.

        `places`: such as worker, or @gpu-1; every host if none is named. `exclude`: words for those that are left
        out. `home`: in the home directory, not in that of the code. Any exit code is a result; raises errors.DtctlError
        where it could not be run. Long output is cut to its end.
        """
        from dtctl.rooms.execute.document import Outputs
        from dtctl.rooms.execute.operation import execute, exit_code, targets

        outputs = Outputs()
        where = targets(self._record, places, exclude)
        cwd: Literal["home", "code"] = "home" if home else "code"
        outcome = execute(self._record, self._transport, where, list(command), outputs.print, cwd=cwd)
        return {
            place: Command(exit_code(done), outputs.text(place, 1), outputs.text(place, 2))
            for place, done in outcome.or_raise(f"run {command[0]}").items()
        }

    def restart(self, *tasks: str, exclude: Sequence[str] = ()) -> tuple[str, ...]:
        """Stops tasks (all, if none is named) and starts them again within the run. Returns those that start.

        `exclude`: words for those that are left out.
        """
        from dtctl.operations.restart import restart

        some = select_tasks(self._record, tasks, exclude)
        return _started(restart(self._record, self._transport, some, by=controller_name()))

    def scale(self, job: str, count: int, *, grace: float | None = None) -> tuple[str, ...]:
        """Lets so many tasks of a job run, the first ones. Returns those that start or stop.

        Where tasks train together, the others restart from the newest checkpoint.

        Raises errors.UsageError for a number that the run has no place for, or cannot continue with.
        """
        from dtctl.operations.drain import plan_scaling, scale

        scaling = plan_scaling(self._record, self._transport, job, count)
        scaled = scale(scaling, self._transport, StopOrder(controller_name(), grace))
        if scaled.stopped:
            _check(scaled.stopped)
        if scaled.started:
            _started(scaled.started)
        return tuple(map(str, (*scaling.starts, *scaling.stops)))

    def drain(self, host: str, *, grace: float | None = None) -> tuple[str, ...]:
        """Ends the tasks of a host for its maintenance, and holds them; the run pauses if it needs them.

        Returns the tasks that ran. Raises as `stop`.
        """
        from dtctl.operations.drain import drain

        result = drain(self._record, self._transport, host, StopOrder(controller_name(), grace))
        _check(result)
        return tuple(map(str, result.stopped))

    def undrain(self, host: str) -> tuple[str, ...]:
        """Lets the tasks run again that `drain` holds. Returns those that start."""
        from dtctl.operations.drain import undrain

        return _started(undrain(self._record, self._transport, host, by=controller_name()))

    def stop(self, *tasks: str, grace: float | None = None, exclude: Sequence[str] = ()) -> tuple[str, ...]:
        """Stops tasks (all, if none is named) and makes sure of it. Returns those that ran.

        `exclude`: words for those that are left out. `grace`: seconds from SIGTERM to SIGKILL; None: as in the cluster
        file. Raises errors.DtctlError if a process outlives SIGKILL, or a host cannot be asked.
        """

        result = stop(
            self._record,
            self._transport,
            select_tasks(self._record, tasks, exclude),
            StopOrder(controller_name(), grace),
        )
        _check(result)
        if not (tasks or exclude) and result.stopped:
            self._memory.change(self._record, outcome="Stopped")
        return tuple(map(str, result.stopped))

    def down(self, *, grace: float | None = None) -> None:
        """Stops it, and removes its logs and code from the hosts; what the trainers wrote is kept. Raises as `stop`."""
        from dtctl.operations.down import down

        result = down(self._record, self._transport, StopOrder(controller_name(), grace, "taken_down"))
        _check(result.stop)
        forget(self._record, [self.id])
        self._memory.forget_removed(self._record.cluster, result.removed)

    def _placed(self) -> RunRecord:
        """The record with the current hosts of tasks: a spare may have taken the place of a host."""

        return placed(self._record, self._transport) if self._record.idle_hosts else self._record

    def _checkpoints(self) -> list[Checkpoints]:

        found = with_checkpoints(self._record, self._transport)
        if not found.time:
            raise next(iter(found.errors.values()), _gone(self._record))
        _warn(found.errors)
        return each_once(found.checkpoints)

    def _seen(self, found: RunStatus) -> Status:
        self._memory.remember(found)
        return status_of(found)

    def _read(self, wanted: LogRequest) -> Iterator[LogLine]:
        from dtctl.operations.logs.reading import log_lines

        with closing(log_lines(self._placed(), self._transport, wanted)) as parts:
            while True:
                try:
                    part = next(parts)
                except StopIteration as ended:
                    return _warn(ended.value.errors)
                yield from _lines_of(part)

    def _followed(self, wanted: LogRequest) -> Iterator[LogLine]:
        from dtctl.operations.follow import follow

        with closing(follow(self._placed(), self._transport, wanted)) as events:
            for event in events:
                if isinstance(event, LogLines):
                    yield from _lines_of(event)
                elif isinstance(event, Disconnected):
                    _warn({event.host: event.error})


def attach(cluster: Cluster, run: str | None = None) -> Run:
    """A run that is there already, started here or by a colleague: after a restart of Python, or in another notebook.

    `run`: its id; None: the newest of the cluster that its hosts know. Raises errors.DtctlError if they know none,
    errors.UsageError for an id that no host knows.
    """
    remembered, found = find_run(cluster, run)
    return Run(found.record, cluster.transport, remembered)


def find_run(cluster: Cluster, run: str | None = None) -> tuple[Memory, RunStatus]:
    from dtctl.operations.runs import check_known

    require_here(cluster.checked.cluster, "dtctl.attach() in Python")
    remembered = memory()
    known = remembered.load(run) if run is not None else remembered.newest_of(cluster.file, cluster.name)
    place = remembered.place_of(cluster.file)
    where = place if place is not None and place.cluster == cluster.name else None
    record = known or where or record_of(plan_roster(cluster.checked.cluster))
    if known is not None and engine_of_record(known) is not None:
        run = known.run  # it has its machines for itself: no other run is there
    record = dataclasses.replace(remembered.follow(record).record, run=run)
    if run is not None and known is None:
        check_known(record, cluster.transport, [])
    found = status(record, cluster.transport)
    if not found.time:
        raise next(iter(found.errors.values()), _gone(record))
    return remembered, found


def _started(result: RestartResult) -> tuple[str, ...]:
    all_of("start tasks again", {task.host for task in result.tasks}, result.errors)
    return tuple(str(task.id) for task in result.tasks)


def _gone(record: RunRecord) -> DtctlError:
    what = f"run {record.run}" if record.run else f"a run of {record.cluster}"
    return DtctlError(f"no host knows {what}", hint="dtctl.up(cluster)    starts one; dtctl runs    lists them")


def _lines_of(part: LogLines) -> Iterator[LogLine]:
    for text in part.texts():
        yield LogLine(part.log["task"], text, part.log["time"], part.log["attempt"])


def _warn(errors: Mapping[str, DtctlError]) -> None:
    for host, error in errors.items():
        log.warning("%s: %s", host, error)


def _check(result: StopResult) -> None:
    """Raises DtctlError, with the command's exit code, for what was not ended."""
    from dtctl.render.result import stop_exit_code, stopped_tasks

    code = stop_exit_code(result)
    if not code:
        return
    survivors = [f"{one.task} on {one.host}: process {one.pid} is still there" for one in result.survivors]
    failed = [f"{host}: {error.summary}" for host, error in result.errors.items()]
    error = DtctlError(f"not everything was stopped: {stopped_tasks(result)}", detail="\n".join([*survivors, *failed]))
    error.exit_code = code
    raise error

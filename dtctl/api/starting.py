"""`up` and `replace`: as the commands, with their progress passed to a function."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtctl.api.cluster import Cluster, log, memory, one_at_a_time, warn_of_missing_content
from dtctl.api.run import Run, find_run
from dtctl.config.load import Checked
from dtctl.errors import DtctlError
from dtctl.operations.client import Progress, silent
from dtctl.operations.consent import Consents, programs_of_hosts
from dtctl.operations.findings import Level
from dtctl.operations.history import Memory, of_other_directory
from dtctl.operations.local import LocalPorts, exposure, make_local
from dtctl.operations.logs import LogRequest
from dtctl.operations.up.readying import Interrupted
from dtctl.operations.up.result import SETTLE_S, UnusedCheckpoint, UpReport, UpResult

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.config.cluster import Cluster as Config
    from dtctl.operations.checkpoints import Checkpoints
    from dtctl.operations.engines import Engine
    from dtctl.operations.findings import Checked as CheckedHosts
    from dtctl.operations.up.launch import Start
    from dtctl.operations.up.succession import Unended


def up(
    cluster: Cluster,
    *,
    local: bool = False,
    replace: bool = False,
    adopt_output: bool = False,
    check: bool = True,
    force: bool = False,
    allow_missing: int = 0,
    progress: Callable[[Progress], None] = silent,
) -> Run:
    """Pushes the code, starts every task, and returns when all have begun.

    A run that continues and has not changed is returned as it is. `local`: all hosts are this machine, without SSH.
    `replace`: a live run that differs is stopped first. `adopt_output`: continue in an output directory that another
    cluster has written. `check`: check versions, GPUs, disks and the network first; what is found is logged as
    warnings of the logger `dtctl`. `force`: start even if that finds what will make tasks fail. `allow_missing`: start
    without up to so many worker hosts. `progress` is called once at a time, from other threads. With `on: slurm` the
    run is submitted, and returned while its job waits for nodes; `check` is done when the job starts.

    Raises errors.ConfigError for what in the file cannot work; errors.PreflightError, before anything is started, for
    what hosts or this machine lack; errors.TransportError if a host cannot be reached; errors.UsageError; and
    errors.DtctlError for a start that has failed, with the task that is to blame and the end of its log. An interrupt
    cancels the start until every host runs its tasks; afterwards the run continues, and `attach` finds it. The
    KeyboardInterrupt says which.
    """
    from dtctl.operations.engines import engine_of, require_here
    from dtctl.operations.up.launch import prepare_launch

    said = cluster.checked.cluster
    engine = None if local else engine_of(said.on)
    if engine is not None:
        require_here(said, "dtctl.up() in Python")
    placed = said if engine is None else engine.place(said)
    ports = LocalPorts()
    launch = prepare_launch(
        placed,
        cluster.transport.hostname,
        os.environ,
        _reviewed(cluster, placed, local=local, force=force),
        local=local,
        replace=replace,
        adopt_output=adopt_output,
        check=check,
        allow_missing=allow_missing,
        make_local=lambda config: make_local(config, ports),
    )
    warn_of_missing_content(launch.inspected)
    if engine is not None:
        return _submit(
            engine, cluster, launch, adopt_output=adopt_output, check=check, force=force, allow_missing=allow_missing
        )
    try:
        return _start(launch, cluster, progress, force=force)
    finally:
        ports.give_back()


def replace(
    cluster: Cluster, host: str, new: str | None = None, *, progress: Callable[[Progress], None] = silent
) -> Run:
    """Moves the tasks of a host to another one; all restart from the checkpoints, and this is the new run.

    `new`: the first of `spares` if it is None. The new host gets the data set first. Raises errors.UsageError where
    nothing runs or a host cannot give or take tasks, errors.PreflightError where file and run differ, and as `up`.
    """
    from dtctl.operations.engines import require_own_hosts
    from dtctl.operations.replace import bring, check_replaceable, plan_replacement, prepare_replacement

    config = cluster.checked.cluster
    require_own_hosts(config, "dtctl.replace() in Python")
    exchange = plan_replacement(config, host, new)
    _, found = find_run(cluster)
    check_replaceable(config, exchange, found)
    _consent(exchange.cluster, cluster.overrides, local=found.record.is_local, typed=False)
    launch = prepare_replacement(exchange, found, cluster.transport.hostname, os.environ)
    bring(exchange, launch, cluster.transport, one_at_a_time(progress))
    return _start(launch, cluster, progress, force=True)


def _start(launch: Start, cluster: Cluster, progress: Callable[[Progress], None], *, force: bool) -> Run:
    from dtctl.operations.up.up import up as start

    remembered = memory()
    report = _Report(launch, remembered, progress, force=force)
    previous = remembered.newest_of(cluster.file, cluster.name)
    try:
        outcome = start(launch, cluster.transport, report, remembered, previous=previous)
        _warn(outcome)
        _await_tasks(launch, outcome, cluster, remembered)
    except Interrupted as interrupted:
        from dtctl.render.starting import what_is_left

        left = what_is_left(interrupted.left, cluster.file, brought=cluster.transport.reached)
        raise KeyboardInterrupt("\n".join(left)) from None
    return Run(dataclasses.replace(launch.record, run=outcome.run), cluster.transport, remembered)


def _submit(engine: Engine, cluster: Cluster, launch: Start, **options: Any) -> Run:
    """`options`: those of `up` that count when the job starts."""
    from dtctl.operations.submit import submit, words_of

    remembered = memory()
    queued = submit(
        engine, cluster.checked.cluster, launch, remembered, cluster.transport, os.environ, words_of(**options)
    )
    if queued.short_of_s:
        log.warning("the time limit is so short that the run may be stopped as soon as it starts")
    return Run(queued.record, cluster.transport, remembered)


def _reviewed(cluster: Cluster, config: Config, *, local: bool, force: bool) -> Bundle:
    """The code, with the consent to what starts here. `config`: as it is placed."""
    from dtctl.operations.up.review import review

    checked = Checked(config, copy.deepcopy(cluster.checked.findings))  # a review adds its own
    reviewed = review(checked, os.environ, local=local, force=force)
    for doubt in reviewed.doubts:
        log.warning("%s: %s %s", doubt.place, doubt.summary, f"({doubt.hint})" if doubt.hint else "")
    if (exposed := exposure(config)) is not None:
        log.warning("%s %s (%s)", exposed.file, exposed.what, exposed.remedy)
    _consent(config, cluster.overrides, local=local, typed=local)
    return reviewed.bundle


def _consent(config: Config, overrides: Sequence[str], *, local: bool, typed: bool) -> None:
    """`typed`: the caller has said that it is to run on this machine."""
    consents = Consents()
    wanted = consents.missing(programs_of_hosts(config, overrides, local=local))
    if wanted and not typed:
        from dtctl.render.starting import not_allowed

        raise not_allowed(config, wanted, local=local)
    consents.allow(wanted)


class _Report(UpReport):
    def __init__(self, launch: Start, remembered: Memory, progress: Callable[[Progress], None], *, force: bool) -> None:
        self._record, self._memory, self._force = launch.record, remembered, force
        self._progress = one_at_a_time(progress)

    def __call__(self, progress: Progress) -> None:
        self._progress(progress)

    def wheels(self, sent: Mapping[str, int], wheels: Bundle) -> None:
        from dtctl.render.starting import wheels_lines

        for line in wheels_lines(sent, wheels):
            log.info("%s", line)

    def checked(self, checked: CheckedHosts) -> None:
        from dtctl.render.checked import refuse_certain_failure, worded

        certain = () if self._force else checked.certain_failures
        for one in (one for one in checked.found if one not in certain and one.signature.level < Level.NOTE):
            log.warning("%s", "\n".join(worded(one)))
        if not self._force:
            refuse_certain_failure(checked, hint="up(..., force=True)    starts them anyway")

    def moving_ports(self, taken: DtctlError) -> None:
        log.warning("%s; the hosts choose other ports", taken.summary)

    def at_zero(self, unseen: UnusedCheckpoint) -> None:
        from dtctl.render.starting import at_step_zero

        log.warning("%s", "\n".join(at_step_zero(unseen)))

    def incomplete(self, found: Sequence[Checkpoints]) -> None:
        from dtctl.render.starting import not_complete

        for one in found:
            log.warning("%s", "\n".join(not_complete(one)))

    def unknown_end(self, left: Unended) -> None:
        from dtctl.render.starting import unknown_end

        log.warning("%s", unknown_end(left.hosts, left.run, "").summary)

    def consent(self, runs: Collection[str]) -> None:
        for run in runs:
            if (other := self._memory.other_file_of(run, self._record)) is not None:
                raise of_other_directory(run, other, self._record.file, hint=f"dtctl.load({str(other)!r})")


def _warn(outcome: UpResult) -> None:
    for host, error in outcome.absent.items():
        log.warning("the run continues without %s: %s", host, error)
    if outcome.unremembered is not None:
        log.warning("%s", outcome.unremembered)


def _await_tasks(launch: Start, outcome: UpResult, cluster: Cluster, remembered: Memory) -> None:
    """Waits until the tasks of a started run have begun. The run goes on if its coordinator cannot be followed."""
    if not outcome.started:
        if outcome.lead is not None:
            outcome.lead.close()
        return None
    from dtctl.operations.follow import follow
    from dtctl.operations.up.awaiting import Awaiting
    from dtctl.render.starting import failed_start

    record = dataclasses.replace(launch.record, run=outcome.run)
    waiting = Awaiting(launch, record, cluster.transport)
    cluster.transport.resume(outcome.lead)
    try:
        for event in follow(record, cluster.transport, LogRequest(()), look_again_s=SETTLE_S):
            if waiting.is_over(event):
                break
        ended = waiting.end(waiting.failed) if waiting.failed is not None else ""
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"run {outcome.run} continues: dtctl.attach(cluster) finds it") from None
    except DtctlError as error:
        return log.warning("%s", error)
    if waiting.failed is not None:
        if ended:
            remembered.change(record, outcome=ended)
        raise failed_start(waiting.failed, waiting.tail(waiting.failed))
    return None

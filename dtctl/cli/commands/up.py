"""dtctl up, push, replace"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.ending import on_interrupt, report_errors
from dtctl.cli.late import console, document, errors, operations, render, results
from dtctl.cli.options import (
    ClusterFile,
    Exclude,
    Local,
    On,
    OutputOption,
    Overrides,
    PortsFrom,
    Quiet,
    Raw,
    Scope,
    on_cluster,
    with_place,
    with_ports_from,
)
from dtctl.cli.watching import follow_to_the_end, require_consent, require_sending
from dtctl.errors import DtctlError, ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.config.cluster import Cluster
    from dtctl.operations.engines import Engine
    from dtctl.operations.replace import Replacement
    from dtctl.operations.snapshot import RunStatus
    from dtctl.operations.up.launch import Start
    from dtctl.operations.up.result import UpResult
    from dtctl.render.progress import UpProgress


@on_cluster
def up(
    scope: Scope,
    cluster_file: ClusterFile = None,
    overrides: Overrides = None,
    local: Local = False,
    on: On = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the logs; end with the run's result.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Stop a live run that differs, then start.")] = False,
    ports_from: PortsFrom = None,
    adopt_output: Annotated[
        bool, typer.Option("--adopt-output", help="Continue in an output directory that another cluster has written.")
    ] = False,
    require_private: Annotated[
        bool, typer.Option("--require-private", help="Refuse if machines other than the hosts reach the tasks' ports.")
    ] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Skip the checks of network, versions, disks, memory and clocks.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start even if the check finds what will make tasks fail.")
    ] = False,
    allow_missing: Annotated[
        int, typer.Option("--allow-missing", metavar="N", min=0, help="Start without up to N worker hosts.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and start nothing.")] = False,
    quiet: Quiet = False,
    raw: Raw = False,
    output: OutputOption = "text",
) -> None:
    """Push the code and start every task."""
    overrides = with_place(with_ports_from(overrides, ports_from), on)
    if dry_run:
        from dtctl.cli.commands.cluster_file import show_plan

        return show_plan(scope, cluster_file, overrides, [], [], local=local, every=scope.verbose, output=output)
    from dtctl.cli.starting import await_tasks, start

    lent = operations.engines.lent_by(on)
    checked = scope.checked(cluster_file, overrides, lent=lent)
    if local:
        _remember_place(scope, checked.cluster)
    engine = None if local else operations.engines.engine_of(checked.cluster.on)
    said = checked.cluster
    if engine is not None:
        checked = dataclasses.replace(checked, cluster=engine.place(said))
    kept = lent.bundle if lent is not None else None
    reviewed = operations.up.review.review(checked, os.environ, local=local, force=force, bundle=kept)
    cluster = checked.cluster
    errors.show_doubts(reviewed.doubts)
    require_consent(cluster, overrides, local=local, typed=local, sends=operations.sending.START)
    launch = operations.up.launch.prepare_launch(
        cluster,
        scope.transport.hostname,
        os.environ,
        reviewed.bundle,
        local=local,
        replace=replace,
        adopt_output=adopt_output,
        check=not no_check,
        allow_missing=allow_missing,
        lent=lent,
    )
    render.plan.show_left_out(launch.bundle, launch.plan.cluster.file)
    render.plan.show_code(launch.inspected)
    render.plan.show_exposure(operations.local.exposure(cluster))
    if engine is not None and lent is None:
        words = operations.submit.words_of(
            adopt_output=adopt_output,
            require_private=require_private,
            check=not no_check,
            force=force,
            allow_missing=allow_missing,
        )
        return _submit(scope, engine, said, launch, words, follow=follow, quiet=quiet, raw=raw, output=output)

    def first(bars: UpProgress) -> None:
        if require_private:
            operations.up.inspecting.require_private(launch.plan, launch.content, launch.record, scope.transport, bars)

    outcome = start(
        scope,
        launch,
        quiet=quiet,
        output=output,
        first=first,
        previous=None if lent is not None else scope.memory.newest_of(cluster.file, cluster.name),
        force=force,
        beside=force,
        keep_ports=require_private,  # it has already read these
    )
    if follow and outcome.lead is not None:
        outcome.lead.close()
    if not follow:
        outcome = await_tasks(scope, launch, outcome, quiet=quiet or output == "json", raw=raw)
    _show(outcome, launch, output)
    if follow:
        return _follow(scope, launch, outcome, raw=raw)
    if outcome.failed is not None:
        raise typer.Exit(ExitCode.RUN_FAILED)
    if len({*outcome.absent} & {*launch.plan.hosts}) > allow_missing:  # they were to join a run that continues
        raise typer.Exit(ExitCode.PARTIAL)
    if output == "text" and not quiet:
        render.starting.show_next_steps()
    return None


def _submit(
    scope: Scope,
    engine: Engine,
    cluster: Cluster,
    launch: Start,
    words: tuple[str, ...],
    *,
    follow: bool,
    quiet: bool,
    raw: bool,
    output: str,
) -> None:
    """Queues the run at an engine; `cluster`: as the file has it."""
    queued = operations.submit.submit(engine, cluster, launch, scope.memory, scope.transport, os.environ, words)
    if output == "json" and not follow:
        document.print_json("Up", {"cluster": cluster.name, "run": queued.record.run, "job": queued.job})
    else:
        render.allocation.show_submitted(queued)
    if follow:
        follow_to_the_end(scope, queued.record, lines=None, raw=raw, started=cluster, fresh=True)
    elif output == "text" and not quiet:
        render.starting.show_next_steps()


def _remember_place(scope: Scope, cluster: Cluster) -> None:
    """Later commands ask this machine even if this start is refused; hosts of the file may not exist."""
    from dtctl.plan import plan_roster

    if scope.memory.newest_of(cluster.file) is None:
        with suppress(DtctlError):
            record = operations.run_record.record_of(plan_roster(operations.local.make_local(cluster)))
            scope.memory.keep_place(record, cluster.file)


def _show(outcome: UpResult, launch: Start, output: str) -> None:
    with on_interrupt(f"run {outcome.run} continues", "dtctl stop    ends it"):
        render.starting.show_start_warnings(outcome)
        if output == "json":
            fields = {
                **document.started(launch.plan.cluster.name, outcome),
                **render.machine.status.in_passing(outcome),
            }
            fields |= {**document.not_pushed(launch.bundle), **document.without_content(launch.inspected)}
            document.print_json("Up", fields)
        elif outcome.failed is None:
            render.starting.show_started(outcome, launch.plan)


def _follow(scope: Scope, launch: Start, outcome: UpResult, *, raw: bool) -> None:
    record = dataclasses.replace(launch.record, run=outcome.run)
    cluster, fresh = launch.plan.cluster, bool(outcome.started)
    follow_to_the_end(scope, record, lines=None, raw=raw, started=cluster, fresh=fresh, without=outcome.absent)


@on_cluster
def push(
    scope: Scope,
    cluster_file: ClusterFile = None,
    exclude: Exclude = None,
    overrides: Overrides = None,
    local: Local = False,
    quiet: Quiet = False,
    output: OutputOption = "text",
) -> None:
    """Send the code to the hosts and start nothing."""
    from dtctl.plan import plan_roster

    cluster = scope.cluster(cluster_file, overrides, needs_files=True)
    if not local:
        operations.engines.require_own_hosts(cluster, "push")
    record = operations.run_record.record_of(plan_roster(operations.local.make_local(cluster) if local else cluster))
    wanted = operations.selection.select_hosts(record, [*record.hosts], exclude or [])
    require_sending(cluster, operations.sending.CODE, local=local)
    bundle = operations.sending.scan_code(cluster)
    inspected = operations.sending.inspect(bundle)
    render.plan.show_left_out(bundle, cluster.file)
    render.plan.show_without_content(inspected)
    kept = "nothing was started; the hosts keep the received files"
    with (
        scope.on_interrupt(kept, "dtctl push    sends the rest"),
        render.progress.UpProgress(wanted, quiet=quiet or output == "json") as progress,
    ):
        outcome = operations.push.push(record, bundle, scope.transport, progress, wanted)
    if output == "json":
        document.print_json("Push", results.push(outcome, bundle, inspected))
    else:
        for sent, hosts in render.format.by_value(outcome.results).items():
            what = f"{render.format.count(sent, 'file')} sent" if sent else "already had everything"
            console.say(f"{render.format.summarize_hosts(hosts)}: {what}")
        files, size = render.format.count(len(bundle.manifest.files), "file"), render.format.size(bundle.total_bytes)
        errors.note(f"code {bundle.id[:12]}: {files}, {size}")
    report_errors(outcome.errors, others=outcome.results)


@on_cluster
def replace(
    scope: Scope,
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host whose tasks move.")],
    new: Annotated[
        str | None,
        typer.Argument(metavar="[NEWHOST]", help="The host that takes them; the first of spares: if omitted."),
    ] = None,
    overrides: Overrides = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start even if tasks may still run on a host that gives no answer.")
    ] = False,
    quiet: Quiet = False,
    output: OutputOption = "text",
) -> None:
    """Move the tasks of a host to another; all restart from the checkpoints."""
    from dtctl.cli.starting import await_tasks, start

    cluster = scope.cluster(None, overrides, needs_files=True)
    operations.engines.require_own_hosts(cluster, "replace")
    exchange = operations.replace.plan_replacement(cluster, host, new)
    found = operations.status.status(scope.record(), scope.transport)
    report_errors(operations.replace.unanswered(exchange, found), others=found.without_run)
    operations.replace.check_replaceable(cluster, exchange, found)
    beside = force or _agrees_to_unknown_end(scope, exchange, found)
    sends = (*operations.sending.START, operations.sending.DATA)
    require_consent(exchange.cluster, overrides, local=found.record.is_local, sends=sends)
    launch = operations.replace.prepare_replacement(exchange, found, scope.transport.hostname, os.environ)
    render.plan.show_left_out(launch.bundle, launch.plan.cluster.file)
    render.plan.show_exposure(operations.local.exposure(cluster))

    with (
        scope.on_interrupt("the run is unchanged; the new host keeps the received files"),
        render.progress.UpProgress([exchange.new], quiet=quiet or output == "json", rates=True) as progress,
    ):
        operations.replace.bring(exchange, launch, scope.transport, progress)

    def agree(runs: Collection[str]) -> None:
        if not yes:
            _ask(exchange, runs)

    again = f"{_command(exchange)} --yes --force"
    outcome = start(scope, launch, quiet=quiet, output=output, agree=agree, beside=beside, again=again)
    outcome = await_tasks(scope, launch, outcome, quiet=quiet or output == "json")
    if outcome.failed is not None:
        raise typer.Exit(ExitCode.RUN_FAILED)
    with scope.on_interrupt(f"run {outcome.run} has started and continues", "dtctl status    shows it"):
        render.starting.show_start_warnings(outcome)
        if output == "json":
            return document.print_json("Replace", results.replace(exchange, outcome))
        render.starting.show_started(outcome, launch.plan)
        render.starting.show_replacement(exchange)
    return None


def _agrees_to_unknown_end(scope: Scope, exchange: Replacement, status: RunStatus) -> bool:
    """Asks, before anything is changed, whether to continue if tasks of the old host may still act.

    False where there is nothing to ask.
    """
    hosts = operations.up.succession.unknown_ends(status, scope.transport)
    if not hosts:
        return False
    run = status.record.run or status.record.cluster
    if not console.can_ask():
        raise render.starting.unknown_end(hosts, run, f"{_command(exchange)} --yes --force")
    render.starting.show_unknown_end(hosts, run)
    console.confirm("Move the tasks all the same?")
    return True


def _command(exchange: Replacement) -> str:
    return f"dtctl replace {exchange.old} {exchange.new}"


def _ask(exchange: Replacement, runs: Collection[str]) -> None:
    if not sys.stdin.isatty():
        raise UsageError("replace stops the run, so it asks first", hint=f"{_command(exchange)} --yes")
    moved = ", ".join(map(str, exchange.tasks))
    what = f"stop {', '.join(runs)} and start again" if runs else "start again"
    console.confirm(f"Move {moved} from {exchange.old} to {exchange.new}: {what}?")

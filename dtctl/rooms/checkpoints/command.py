"""dtctl checkpoints"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.ending import exit_for, report_errors
from dtctl.cli.late import console, document, errors, operations, render, rooms
from dtctl.cli.options import OutputOption, Scope, check_action, on_run, seconds
from dtctl.cli.watching import require_to_write
from dtctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.operations.snapshot import RunStatus


_OWN = {"verify": ("--all", "--limit"), "prune": ("--keep", "--dry-run", "--yes"), "push": ("--into", "--local")}
"""Options that only apply to this action."""


@on_run
def checkpoints(
    scope: Scope,
    action: Annotated[
        str, typer.Argument(metavar="[ls|verify|pull|push|prune]", help="What to do; ls if omitted.")
    ] = "ls",
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STEP] [DIR]",
            help="verify [STEP], pull [STEP] DIR, push PATH; a step, or a checkpoint's name.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="With verify: read all of them, not the newest alone.")] = False,
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="TIME", help="With verify: read no longer than this; 10m.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="With prune: how many complete ones stay.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With prune: show what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="With prune: do not ask for confirmation.")] = False,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="DIR", help="With push: a directory in that of the checkpoints, or another."),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="With push: for runs of up --local.")] = False,
    output: OutputOption = "text",
) -> None:
    """List, verify, pull, push or prune the checkpoints on the hosts."""
    named = words or []
    given = {"--all": every, "--limit": limit, "--keep": keep, "--dry-run": dry_run, "--yes": yes}
    given |= {"--into": into, "--local": local}
    _check(action, named, given)
    if action == "verify":
        return _verify(scope, named, every=every, limit_s=seconds(limit or "10m"), output=output)
    if action == "pull":
        return _pull(scope, named, output=output)
    if action == "push":
        changing = dataclasses.replace(scope, command="checkpoints push")
        return push(changing, named[0], into=into, local=local, output=output)
    if action == "prune":
        changing = dataclasses.replace(scope, command="checkpoints prune")
        return _prune(changing, keep or 0, dry_run=dry_run, yes=yes, output=output)
    return _list(scope, output)


def _check(action: str, arguments: list[str], given: Mapping[str, object]) -> None:
    most = {"ls": 0, "verify": 1, "pull": 2, "push": 1, "prune": 0}
    check_action("checkpoints", action, most, _OWN, given)
    if len(arguments) > most[action]:
        raise UsageError(
            f"{action} does not take {arguments[most[action]]!r}",
            hint="dtctl checkpoints verify    or ls, pull, push, prune",
        )
    if action == "pull" and not arguments:
        raise UsageError("where to?", hint="dtctl checkpoints pull DIR    or pull STEP DIR")
    if action == "push" and not arguments:
        raise UsageError("which one?", hint="dtctl checkpoints push ./best    or ./best/model.ckpt-500")
    if action == "prune" and not given["--keep"]:
        raise UsageError("how many checkpoints to keep?", hint="dtctl checkpoints prune --keep 5")


def _find(scope: Scope) -> RunStatus:
    """The checkpoints that the hosts report, with each directory once."""
    found = operations.status.with_checkpoints(scope.record(), scope.transport)
    if not found.time and not found.errors and scope.run is None:
        found = _before_first_run(scope, found)
    return dataclasses.replace(found, checkpoints=tuple(operations.checkpoints.each_once(found.checkpoints)))


def _before_first_run(scope: Scope, status: RunStatus) -> RunStatus:
    """Shows the checkpoints from which the first run would continue, in the directories that the cluster file names."""
    from dtctl.agent.records.values import paths_of
    from dtctl.plan import plan_roster
    from dtctl.plan.hosts import checkpoint_places, directories

    if status.record.file is None or not status.record.file.exists():
        return status
    cluster = scope.cluster(status.record.file)
    record = operations.run_record.record_of(plan_roster(cluster))
    dirs = {
        name: list(paths_of(checkpoint_places(cluster, directories(cluster, host))))
        for name, host in cluster.hosts.items()
    }
    known = operations.status.before_first_run(record, scope.transport, dirs)
    return operations.status.with_storage(known, fresh=True)


def _list(scope: Scope, output: str) -> None:
    known = _find(scope)
    record, found, now, failed = known.record, known.checkpoints, known.time, known.errors
    if output == "json":
        document.print_json(
            "Checkpoints", {"run": record.run, "checkpoints": rooms.checkpoints.document.directories(found)}
        )
    else:
        render.checkpoints.show_checkpoints(
            found, now, lambda place, one: operations.checkpoints.missing_elsewhere(found, place, one)
        )
        if not found and not failed:
            errors.note("no checkpoint directory: set dirs.output or checkpoint.dir in the cluster file")
    report_errors(failed, others=now)


def _verify(scope: Scope, arguments: list[str], *, every: bool, limit_s: float, output: str) -> None:
    known = _find(scope)
    record, failed = known.record, known.errors
    wanted = operations.checkpoints.named(known.checkpoints, arguments[0] if arguments else None, all_of_them=every)
    if not wanted and not failed:
        errors.note("no checkpoint to verify")
    outcome = rooms.checkpoints.upkeep.verify(record, scope.transport, wanted, limit_s=limit_s)
    if output == "json":
        document.print_json(
            "Verification", {"run": record.run, "checkpoints": rooms.checkpoints.document.verified(outcome)}
        )
    else:
        rooms.checkpoints.screen.show_verified(outcome)
    failed = {**failed, **outcome.errors}
    errors.show_host_errors(failed)
    if any(one.report["problems"] for one in outcome.checked):
        raise typer.Exit(ExitCode.RUN_FAILED)
    exit_for(failed, others=known.time)


def _pull(scope: Scope, words: list[str], *, output: str) -> None:
    directory = Path(words[-1]).expanduser()
    known = _find(scope)
    record = known.record
    errors.show_host_errors(known.errors)
    one = operations.checkpoints.chosen(known.checkpoints, words[0] if len(words) == 2 else None)
    rooms.checkpoints.screen.show_pull(one, directory)
    again = "dtctl checkpoints pull    resumes the transfer"
    with (
        scope.on_interrupt(f"what has arrived is kept in {directory}, without its final name", again),
        render.progress.UpProgress(one.hosts) as progress,
    ):
        if unchecked := rooms.checkpoints.upkeep.refuse_damaged(record, scope.transport, one):
            errors.note(unchecked)
        pulled = rooms.checkpoints.pull.pull(record, scope.transport, one, directory, progress)
    if output == "json":
        document.print_json("Pulled", {"run": record.run, **rooms.checkpoints.document.pulled(pulled)})
    else:
        rooms.checkpoints.screen.show_pulled(pulled)
    if one.checkpoint["kind"] == "keras":
        errors.note(
            f"checkpoints push takes no file of Keras; to begin with this one, {rooms.checkpoints.local.FOR_KERAS}"
        )


def _prune(scope: Scope, keep: int, *, dry_run: bool, yes: bool, output: str) -> None:
    if not (dry_run or yes or sys.stdin.isatty()):
        raise UsageError("prune removes checkpoints, so it asks first", hint="dtctl checkpoints prune --keep N --yes")
    known = _find(scope)
    record, found, failed = known.record, known.checkpoints, known.errors
    scope.refuse_others(record, record.run)
    outcome = None
    if dry_run or not yes:
        outcome = rooms.checkpoints.upkeep.prune(
            record, scope.transport, found, keep=keep, dry_run=True, live=not known.is_over
        )
    if outcome is not None and not dry_run and outcome.removed:
        rooms.checkpoints.screen.show_pruned(outcome, dry_run=True)
        console.confirm(f"Remove {render.format.count(outcome.removed, 'checkpoint')}?")
    if not dry_run and (outcome is None or outcome.removed):
        if outcome is not None:
            failed = {**failed, **outcome.errors}
            found = tuple(outcome.as_reported(found))
        with scope.on_interrupt(
            "hosts that were already asked remove theirs", "dtctl checkpoints    shows what is left"
        ):
            outcome = rooms.checkpoints.upkeep.prune(
                record, scope.transport, found, keep=keep, dry_run=False, live=not known.is_over
            )
    assert outcome is not None
    if output == "json":
        document.print_json(
            "Pruned", {"run": record.run, "dryRun": dry_run, "directories": rooms.checkpoints.document.pruned(outcome)}
        )
    else:
        rooms.checkpoints.screen.show_pruned(outcome, dry_run=dry_run)
    failed = {**failed, **outcome.errors}
    report_errors(failed, others=known.time)


AGAIN = "dtctl checkpoints push    resumes the transfer"


def push(scope: Scope, argument: str, *, into: str | None, local: bool, output: str) -> None:
    """Pushes the checkpoint that `word` names to the hosts on which the next run of the cluster file restores it."""
    if scope.run is not None:
        raise UsageError("push is for the next run, so it takes no --run", hint="dtctl checkpoints push PATH")
    cluster = scope.cluster()
    if not local:
        require_to_write(cluster)
    plan = operations.up.launch.make_plan(cluster, scope.transport.hostname, local=local)
    record, last = operations.run_record.record_of(plan), scope.memory.newest_of(cluster.file, cluster.name)
    if last is not None and last.is_local and not record.is_local:
        errors.note("the last run of this file was on this machine; this goes to its hosts", "--local    keeps it here")
    where = rooms.checkpoints.push.targets(plan, into)
    prefix = rooms.checkpoints.local.find(Path(argument), anywhere=cluster.send_anywhere)
    rooms.checkpoints.screen.show_reading(prefix)
    own = rooms.checkpoints.local.read(prefix)
    if own.unread:
        errors.note(f"not all of it was checked: {own.unread}")
    with (
        scope.on_interrupt("received files are kept under temporary names", AGAIN),
        render.progress.UpProgress([one.host for one in where], quiet=output == "json") as progress,
    ):
        pushed = rooms.checkpoints.push.push(
            record, scope.transport, own, where, operations.client.controller_name(), progress
        )
    if output == "json":
        document.print_json("CheckpointPush", rooms.checkpoints.document.pushed(pushed))
    else:
        rooms.checkpoints.screen.show_pushed(pushed)

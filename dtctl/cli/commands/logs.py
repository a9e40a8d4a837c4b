"""dtctl logs, events"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dtctl.cli.ending import exit_for, report_errors
from dtctl.cli.late import console, document, errors, operations, render
from dtctl.cli.options import Exclude, OutputOption, Raw, Scope, Tasks, on_run, seconds_ago
from dtctl.cli.watching import chosen, follow_logs
from dtctl.errors import UsageError

if TYPE_CHECKING:
    from dtctl.model import TaskId
    from dtctl.operations.events import Folding, Ordering
    from dtctl.operations.logs import LogRequest
    from dtctl.operations.run_record import RunRecord


LogsOutput = Literal["text", "json", "jsonl"]


@on_run
def logs(
    scope: Scope,
    tasks: Tasks = None,
    exclude: Exclude = None,
    follow: Annotated[
        bool,
        typer.Option(
            "-f",
            "--follow",
            help="Go on until the run ends, and in one that replaces it; its result is the exit code.",
        ),
    ] = False,
    tail: Annotated[
        str | None, typer.Option("-n", "--tail", metavar="N|all", help="Lines per task; 100, or 10 with -f.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="10m|TIME", help="Only lines written since then.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="10m|TIME", help="Only lines written until then.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("-t", "--timestamps", help="When each line was written.")] = False,
    grep: Annotated[
        str | None, typer.Option("-g", "--grep", metavar="REGEX", help="Only lines that match; found on the hosts.")
    ] = None,
    errors: Annotated[
        bool, typer.Option("--errors", help="Only tracebacks, errors and last lines, of all attempts.")
    ] = False,
    context: Annotated[
        int,
        typer.Option("-C", "--context", metavar="N", min=0, max=1000, help="With -g, --errors: N lines around each."),
    ] = 0,
    previous: Annotated[bool, typer.Option("-p", "--previous", help="The previous attempt.")] = False,
    all_attempts: Annotated[
        bool, typer.Option("-a", "--all-attempts", help="Earlier attempts, too, each under its number.")
    ] = False,
    setup: Annotated[
        bool,
        typer.Option("--setup", help="What the last start printed that made environments and ran the setup."),
    ] = False,
    no_prefix: Annotated[bool, typer.Option("--no-prefix", help="Lines without the names of their tasks.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="DIR", help="Into a new directory, a file for each attempt.")
    ] = None,
    output: Annotated[
        LogsOutput, typer.Option("-o", "--output", metavar="text|jsonl", help="jsonl: each line as a JSON object.")
    ] = "text",
    raw: Raw = False,
) -> None:
    """Show what tasks print, merged by time, each line with the name of its task."""
    _refuse_together({"-f": follow, "--until": until})
    _refuse_together({"-f": follow, "--save": save})
    _refuse_together({"--errors": errors, "-g": grep})
    _refuse_together({"-p": previous, "--all-attempts": all_attempts})
    if context and not errors and grep is None:
        raise UsageError("-C is about lines that are found", hint="add -g PATTERN, or --errors")
    if setup:
        _refuse_together({"--setup": setup, "-f": follow})
        _refuse_together({"--setup": setup, "TASKS": tasks})
        _refuse_together({"--setup": setup, "--exclude": exclude})
        return _show_setup(scope, _lines(tail, all_of_it=False, follow=False), as_json=output != "text")
    record, now = scope.placed(), time.time()
    scope.note_failed_start(record)
    some = chosen(record, tasks, exclude)
    wanted = operations.logs.LogRequest(
        tasks=some,
        lines=_lines(tail, all_of_it=bool(since or save), follow=follow),
        since=seconds_ago(since, now) if since is not None else None,
        until=seconds_ago(until, now, "--until") if until is not None else None,
        grep=operations.logs.checked_pattern(grep, "--grep"),
        errors=errors,
        context=context,
        previous=previous,
        all_attempts=all_attempts or ((errors or save is not None) and not previous),
    )
    if save is not None:
        return _save(scope, record, wanted, save, as_json=output != "text")

    def printer_for(shown: Sequence[TaskId]) -> render.logs.LogPrinter:
        return (render.logs.LogPrinter if output == "text" else render.logs.LogObjects)(
            shown,
            prefix=not no_prefix and len(shown) > 1,
            timestamps=timestamps,
            raw=raw,
            gaps=bool(context) or errors,
            all_attempts=wanted.all_attempts,
            found=errors or grep is not None,
        )

    if follow:
        follow_logs(scope, record, tasks, wanted, printer_for, exclude)
    printer = printer_for(some)
    found = operations.logs.reading.read_logs(record, scope.transport, wanted, printer.print)
    if errors and not printer.printed:
        render.errors.note("no line of these logs looks like an error", "dtctl logs    shows their last lines")
    report_errors(found.errors, others=found.answered)
    return None


def _show_setup(scope: Scope, lines: int | None, *, as_json: bool) -> None:
    from dtctl.agent.records.answers import SetupLogsResult

    record = scope.record_of_start()
    found = operations.client.ask_hosts(
        record,
        operations.away.ImpatientTransport(scope.transport, record),
        operations.client.Request("setup_logs", SetupLogsResult, lambda _: {"run": None}),
    )
    render.logs.show_setup_logs({host: one["logs"] for host, one in found.results.items()}, lines, as_json=as_json)
    report_errors(found.errors, others=found.results)


def _save(scope: Scope, record: RunRecord, wanted: LogRequest, directory: Path, *, as_json: bool) -> None:
    found = operations.logs.reading.save_logs(record, scope.transport, wanted, directory)
    render.logs.show_saved(found.files, directory, as_json=as_json)
    report_errors(found.errors, others=found.answered)


def _refuse_together(options: dict[str, object]) -> None:
    named = [name for name, value in options.items() if value]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other", hint="leave one of them out")


def _lines(tail: str | None, *, all_of_it: bool, follow: bool) -> int | None:
    if tail is None:
        return None if all_of_it else 10 if follow else 100
    if tail == "all":
        return None
    if not (tail.isascii() and tail.isdecimal()):
        raise UsageError(f"--tail {tail!r} is not a number of lines", hint="a number, or all")
    return int(tail)


@on_run
def events(
    scope: Scope,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run ends.")] = False,
    tail: Annotated[int | None, typer.Option("-n", "--tail", metavar="N", min=1, help="Only the last N.")] = None,
    output: OutputOption = "text",
) -> None:
    """Show the event history: attempts, requests and decisions (-v: every state)."""
    record = scope.record()
    scope.note_failed_start(record)
    states = scope.verbose or output == "json"
    if follow:
        return _follow(scope, record, tail, output, states=states)
    events = operations.events.read_events(record, scope.transport, last=tail if states else None)
    if output == "json":
        happenings = [document.event(line) for line in events.lines]
        document.print_json("Events", {"events": happenings, "errors": document.errors(events.errors)})
    else:
        told = render.events.Told()
        for one in (events.lines if states else operations.events.folded(events.lines))[-(tail or 0) :]:
            render.events.show_entry(one, told)
        render.result.show_away(events)
        errors.show_host_errors(events.errors)
    exit_for(events.errors, others=events.lines)
    return None


def _follow(scope: Scope, record: RunRecord, tail: int | None, output: OutputOption, *, states: bool) -> None:
    """Follows the log; with -o json every event is one line."""
    folding, ordering, told = operations.events.Folding(), operations.events.Ordering(), render.events.Told()
    before, begin = _read(scope, record, tail, folding, ordering) if tail and not states else ([], None)
    for line in before:
        console.say(line)
    with scope.detached("dtctl events -f    follows it again"):
        for event in operations.events.follow_events(record, scope.transport, last=tail, begin=begin):
            if isinstance(event, operations.client.streams.Disconnected | operations.client.streams.Reconnected):
                errors.show_contact(event)
            elif output == "json":
                document.print_json_line(document.event(event))
            else:
                for entry in [event] if states else map(ordering.take, folding.take(event)):
                    render.events.show_entry(entry, told)
        for rest in folding.rest():
            render.events.show_entry(rest, told)


def _read(
    scope: Scope, record: RunRecord, tail: int, folding: Folding, ordering: Ordering
) -> tuple[list[str], int | None]:
    """The last lines so far, and the number of the first event that is not in them."""
    events = operations.events.read_events(record, scope.transport, last=None)
    if events.away is not None:
        return [], None  # the numbers are those of single hosts
    lines = [render.events.history_line(ordering.take(entry)) for one in events.lines for entry in folding.take(one)]
    return lines[-tail:], (events.lines[-1]["n"] + 1 if events.lines else None)

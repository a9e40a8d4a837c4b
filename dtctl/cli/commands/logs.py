"""dtctl logs"""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from dtctl.cli.durations import seconds_ago
from dtctl.cli.exits import exit_for
from dtctl.cli.options import Raw, Scope, Tasks, on_run
from dtctl.cli.watching import chosen, finish, watch
from dtctl.errors import UsageError


@on_run
def logs(
    scope: Scope,
    tasks: Tasks = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run ends; its result is the exit code.")
    ] = False,
    tail: Annotated[
        str | None, typer.Option("-n", "--tail", metavar="N|all", help="Lines per task; 100, or 10 with -f.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="10m|TIME", help="Only lines written since then.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("-t", "--timestamps", help="When each line was written.")] = False,
    grep: Annotated[str | None, typer.Option("-g", "--grep", metavar="REGEX", help="Only lines that match.")] = None,
    previous: Annotated[bool, typer.Option("-p", "--previous", help="The previous attempt.")] = False,
    no_prefix: Annotated[bool, typer.Option("--no-prefix", help="Lines without the names of their tasks.")] = False,
    raw: Raw = False,
) -> None:
    """Show what tasks print, merged, each line with the name of its task."""
    from dtctl.operations.logs import LogRequest, read_logs
    from dtctl.render import errors
    from dtctl.render.logs import LogPrinter

    record = scope.record()
    some = chosen(record, tasks)
    wanted = LogRequest(
        tasks=some,
        lines=_lines(tail, since, follow=follow),
        since=seconds_ago(since, time.time()) if since is not None else None,
        grep=_pattern(grep),
        previous=previous,
    )
    printer = LogPrinter(some, prefix=not no_prefix and len(some) > 1, timestamps=timestamps, raw=raw)
    if follow:
        finish(watch(scope, record, wanted, printer), printer)
    found = read_logs(record, scope.transport, wanted, printer.print)
    errors.show_host_errors(found.errors)
    exit_for(found.errors, others=found.answered)


def _lines(tail: str | None, since: str | None, *, follow: bool) -> int | None:
    if tail is None:
        return None if since else 10 if follow else 100
    if tail == "all":
        return None
    if not (tail.isascii() and tail.isdecimal()):
        raise UsageError(f"--tail {tail!r} is not a number of lines", hint="a number, or all")
    return int(tail)


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise UsageError(
                f"--grep {text!r} is not a regular expression: {error}",
                hint="put a backslash before each of [ ( ) * + ? . that stands for itself",
            ) from error
    return text

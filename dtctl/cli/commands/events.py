"""dtctl events"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import ExitCode

if TYPE_CHECKING:
    from dtctl.operations.memory.record import RunRecord


@on_run
def events(
    scope: Scope,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run ends.")] = False,
    tail: Annotated[int | None, typer.Option("-n", "--tail", metavar="N", min=1, help="Only the last N.")] = None,
    output: OutputOption = "text",
) -> None:
    """Tell the run's story: who did what, what happened, each decision and its reason."""
    from dtctl.operations.events import read_events
    from dtctl.render import errors, result
    from dtctl.render.machine import document
    from dtctl.render.story import happening_line
    from dtctl.render.terminal.console import say

    record = scope.record()
    if follow:
        return _follow(scope, record, tail, output)
    story = read_events(record, scope.transport, last=tail)
    if output == "json":
        told = [document.happening(one) for one in story.happenings]
        document.print_json("Events", {"events": told, "errors": document.errors(story.errors)})
    else:
        for one in story.happenings:
            say(happening_line(one))
        result.show_away(story)
        errors.show_host_errors(story.errors)
    exit_for(story.errors, others=story.happenings)
    return None


def _follow(scope: Scope, record: RunRecord, tail: int | None, output: OutputOption) -> None:
    """With -o json every event is one line."""
    from dtctl.operations.asking.streams import Away
    from dtctl.operations.events import Happening, follow_events
    from dtctl.render import errors
    from dtctl.render.machine import document
    from dtctl.render.story import happening_line
    from dtctl.render.terminal.console import say

    try:
        for told in follow_events(record, scope.transport, last=tail):
            if isinstance(told, Happening) and output == "json":
                document.print_json_line(document.happening(told))
            elif isinstance(told, Happening):
                say(happening_line(told))
            elif isinstance(told, Away):
                errors.show_host_errors({told.host: told.error})
            else:
                errors.note(f"{told.host} can be reached again")
    except KeyboardInterrupt:
        if not scope.transport.reached:
            raise
        errors.below()
        errors.note("detached: the run continues", "dtctl events -f    follows it again")
        raise typer.Exit(ExitCode.INTERRUPTED) from None

"""dtctl events"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import ExitCode

if TYPE_CHECKING:
    from dtctl.operations.attempts import Folding
    from dtctl.operations.history.record import RunRecord


@on_run
def events(
    scope: Scope,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run ends.")] = False,
    tail: Annotated[int | None, typer.Option("-n", "--tail", metavar="N", min=1, help="Only the last N.")] = None,
    output: OutputOption = "text",
) -> None:
    """Tell the run's story: each attempt of a task, who did what, each decision and its reason; -v: every state."""
    from dtctl.operations.attempts import folded
    from dtctl.operations.events import read_events
    from dtctl.render import errors, result
    from dtctl.render.events import story_line
    from dtctl.render.machine import document
    from dtctl.render.terminal.console import say

    record = scope.record()
    states = scope.verbose or output == "json"
    if follow:
        return _follow(scope, record, tail, output, states=states)
    story = read_events(record, scope.transport, last=tail if states else None)
    if output == "json":
        told = [document.happening(one) for one in story.happenings]
        document.print_json("Events", {"events": told, "errors": document.errors(story.errors)})
    else:
        for one in (story.happenings if states else folded(story.happenings))[-(tail or 0) :]:
            say(story_line(one))
        result.show_away(story)
        errors.show_host_errors(story.errors)
    exit_for(story.errors, others=story.happenings)
    return None


def _follow(scope: Scope, record: RunRecord, tail: int | None, output: OutputOption, *, states: bool) -> None:
    """With -o json every event is one line."""
    from dtctl.operations.attempts import Folding
    from dtctl.operations.client.streams import Away
    from dtctl.operations.events import Happening, follow_events
    from dtctl.render import errors
    from dtctl.render.events import story_line
    from dtctl.render.machine import document
    from dtctl.render.terminal.console import say

    folding = Folding()
    before, begin = _read(scope, record, tail, folding) if tail and not states else ([], None)
    for line in before:
        say(line)
    try:
        for told in follow_events(record, scope.transport, last=tail, begin=begin):
            if isinstance(told, Happening) and output == "json":
                document.print_json_line(document.happening(told))
            elif isinstance(told, Happening):
                for entry in [told] if states else folding.take(told):
                    say(story_line(entry))
            elif isinstance(told, Away):
                errors.show_host_errors({told.host: told.error})
            else:
                errors.note(f"{told.host} can be reached again")
        for rest in folding.rest():
            say(story_line(rest))
    except KeyboardInterrupt:
        if not scope.transport.reached:
            raise
        errors.below()
        errors.note("detached: the run continues", "dtctl events -f    follows it again")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _read(scope: Scope, record: RunRecord, tail: int, folding: Folding) -> tuple[list[str], int | None]:
    """The last lines so far, and the number of the first event that is not in them."""
    from dtctl.operations.events import read_events
    from dtctl.render.events import story_line

    story = read_events(record, scope.transport, last=None)
    if story.away is not None:
        return [], None  # the numbers are those of single hosts
    lines = [story_line(entry) for one in story.happenings for entry in folding.take(one)]
    return lines[-tail:], (story.happenings[-1].number + 1 if story.happenings else None)

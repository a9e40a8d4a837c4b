"""What a command is about to end is named before it is ended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.cli.scope import Scope
    from dtctl.operations.asking.ending import Ending
    from dtctl.operations.memory.record import RunRecord


def announced(scope: Scope, record: RunRecord, doing: str, *, say: bool = True) -> Callable[[Ending], None]:
    """Called with what is about to be ended: names it on stderr, unless it is another directory's run (UsageError)."""

    def before(found: Ending) -> None:
        scope.refuse_others(record, found.run)
        if say and found.run and found.tasks:
            _tell(f"{doing} {facts(found)}")

    return before


def announce_replaced(scope: Scope, record: RunRecord, runs: Collection[str], *, say: bool = True) -> None:
    """The same of runs that a new one replaces, as far as this machine knows them."""
    from dtctl.operations.asking.ending import Ending, ending

    for run in runs:
        scope.refuse_others(record, run)
        known = scope.memory.load(run)
        if say:
            _tell(f"stopping {facts(ending(known, known.roster) if known else Ending(run))}")


def facts(found: Ending) -> str:
    from dtctl.render.words import count

    if not found.tasks:
        return f"{found.run}"
    return f"{found.run}: {count(len(found.tasks), 'task')} on {count(len(found.hosts), 'host')}"


def _tell(line: str) -> None:
    """Where something may be moving."""
    from dtctl.render.errors import note
    from dtctl.render.terminal.moving import still

    with still():
        note(line)

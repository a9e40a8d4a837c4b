"""What a command is about to end is named before it is ended."""

from __future__ import annotations

from collections.abc import Callable
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

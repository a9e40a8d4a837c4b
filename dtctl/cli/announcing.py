"""What a command is about to end is named before it is ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.cli.scope import Scope
    from dtctl.operations.client.ending import Ending
    from dtctl.operations.history.record import RunRecord


class Announced:
    """Called with what is about to be ended: names it on stderr, unless it is another directory's run (UsageError).

    `agreed` asks whether it may be, and raises where it may not. `made`: until then no host was asked to end anything.
    """

    def __init__(
        self,
        scope: Scope,
        record: RunRecord,
        doing: str,
        *,
        say: bool = True,
        agreed: Callable[[Ending], None] = lambda found: None,
    ) -> None:
        self.made = False
        self._scope, self._record, self._doing, self._say, self._agreed = scope, record, doing, say, agreed

    def __call__(self, found: Ending) -> None:
        self._scope.refuse_others(self._record, found.run)
        if self._say and found.run and found.tasks:
            _tell(f"{self._doing} {facts(found)}")
        self._agreed(found)
        self.made = True


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

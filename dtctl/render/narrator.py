"""What a person sees while following a run: log lines on stdout, and on stderr what happens to the run."""

from __future__ import annotations

from dtctl.operations.asking.coordination import Coordination
from dtctl.operations.asking.streams import Away, Back
from dtctl.operations.follow import Event, Seen
from dtctl.operations.logs import LogLines
from dtctl.operations.logs.onward import PATIENCE_S, Onward, replaced_by
from dtctl.operations.status import RunStatus
from dtctl.render.errors import note, show_host_errors
from dtctl.render.logs import LogPrinter
from dtctl.render.story import news


class Narrator:
    """Each host that goes away or comes back is reported once, though two conversations with it may break."""

    def __init__(self, coordinator: str, printer: LogPrinter | None) -> None:
        self._coordinator = coordinator
        self._printer = printer
        self._seen: Coordination | None = None
        self._away: set[str] = set()

    def __call__(self, event: Event) -> None:
        if isinstance(event, LogLines):
            if self._printer is not None:
                self._printer.print(event)
        elif isinstance(event, Seen):
            for line in news(self._seen, event.coordination):
                note(line)
            self._seen = event.coordination
        elif isinstance(event, Away) and event.host not in self._away:
            self._away.add(event.host)
            show_host_errors({event.host: event.error})
            if event.host == self._coordinator and not event.final:
                note("the run continues without it; trying again")
        elif isinstance(event, Back) and event.host in self._away:
            self._away.discard(event.host)
            note(f"{event.host} can be reached again")


def show_onward(ended: RunStatus, newer: Onward) -> None:
    """That the logs of another run follow, or why they do not."""
    old = ended.record.run or ended.record.cluster
    if newer.record is None:
        return note(f"{old} was stopped for {newer.run}, which has not begun within {PATIENCE_S:g} s")
    how = f"was replaced by {newer.run}" if replaced_by(ended) == newer.run else f"has ended; {newer.run} is newer"
    return note(f"{old} {how}: its logs follow")

"""What a person sees while following a run: log lines on stdout, and on stderr what happens to the run."""

from __future__ import annotations

import time
from collections.abc import Callable

from dtctl.errors import DtctlError
from dtctl.operations.client.coordination import Coordination
from dtctl.operations.client.streams import Away, Back
from dtctl.operations.follow import Event, Seen
from dtctl.operations.logs import LogLines
from dtctl.operations.logs.following import PATIENCE_S, Onward, made_room
from dtctl.operations.status import RunStatus
from dtctl.render.errors import note, show_host_errors
from dtctl.render.events import news
from dtctl.render.logs import LogPrinter

TOGETHER_S = 0.5
"""Hosts that go away within this time are told together, or as soon as nothing else comes."""


class Narrator:
    """Each host that goes away or comes back is reported once, though two conversations with it may break.

    None stands for a moment in which nothing has come.
    """

    def __init__(
        self, coordinator: str, printer: LogPrinter | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = coordinator
        self._printer = printer
        self._clock = clock
        self._seen: Coordination | None = None
        self._away: set[str] = set()
        self._leaving: dict[str, DtctlError] = {}
        """Of those that are away, the ones that nobody has been told of."""
        self._since = 0.0

    def __call__(self, event: Event | None) -> None:
        if isinstance(event, Back) or event is None or self._clock() - self._since >= TOGETHER_S:
            self.tell_away()
        if isinstance(event, LogLines):
            if self._printer is not None:
                self._printer.print(event)
        elif isinstance(event, Seen):
            for line in news(self._seen, event.coordination):
                note(line)
            self._seen = event.coordination
        elif isinstance(event, Away) and event.host not in self._away:
            self._away.add(event.host)
            self._since = self._since if self._leaving else self._clock()
            self._leaving[event.host] = event.error
            if event.host == self._coordinator and not event.final:
                self.tell_away()
                note("the run continues without it; trying again")
        elif isinstance(event, Back) and event.host in self._away:
            self._away.discard(event.host)
            note(f"{event.host} can be reached again")

    def tell_away(self) -> None:
        """Also at the end."""
        leaving, self._leaving = self._leaving, {}
        show_host_errors(leaving)


def show_onward(ended: RunStatus, newer: Onward) -> None:
    """That the logs of another run follow, or why they do not."""
    old = ended.record.run or ended.record.cluster
    if newer.record is None:
        return note(f"{old} was stopped to make room for another run, which has not begun within {PATIENCE_S:g} s")
    run = newer.record.run
    how = f"was replaced by {run}" if made_room(ended) else f"has ended; {run} is newer"
    return note(f"{old} {how}: its logs follow")

"""Orders that follow from what a majority of the voters does not hold yet, and the memos that it is to hold."""

from __future__ import annotations

from ..host import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple

    from ..records.messages import Orders
    from ..records.spec import Moved
    from ..records.whole_run import RunView
    from .view import View
    from .voting import Voter

PUBLISH_S = 8.0
"""Between two memos when nothing has been decided."""


class Commits:
    """Of a coordinator in whose place another may be elected. `voter`: that of its host."""

    def __init__(self, voter: Voter, now: float) -> None:
        self._voter = voter
        self._published = (0, 0)
        self._publish_at = now
        self._moves = 0
        self._held: List[Tuple[Tuple[int, int], str, Orders]] = []
        """In which version is what they follow from."""
        self._end: Optional[Tuple[int, int]] = None
        """The first version in which the outcome is decided."""

    def publish(self, view: RunView, now: float, *, at_once: bool) -> None:
        """To the voters, from among whom the next coordinator would come."""
        if not self._voter.election.leads or not (at_once or now >= self._publish_at):
            return
        try:
            self._published = self._voter.publish(view, now)
            self._moves = view["moved"]["number"]
        except OSError as error:
            log.note("memo: %s" % error)
        self._publish_at = now + PUBLISH_S

    def has_published(self, moved: Moved) -> bool:
        return self._moves >= moved["number"]

    def has(self, moved: Moved) -> bool:
        """A majority holds these moves: whoever coordinates after this knows them."""
        return self.has_published(moved) and self._voter.election.committed >= self._published > (0, 0)

    @property
    def knows_end(self) -> bool:
        return self._end is not None

    def note_end(self) -> None:
        """The outcome is decided, as the newest memo says."""
        self._end = self._published

    def waits(self, now: float) -> bool:
        """Whether orders that are given now wait for the voters."""
        return bool(self._held) or self._awaits_voters(now)

    def hold(self, host: str, message: Orders) -> None:
        self._held.append((self._published, host, message))

    def released(self, view: View, decided: bool, now: float) -> Iterator[Tuple[str, Orders]]:
        """Those that go out now."""
        while self._held and self._voter.election.committed >= self._held[0][0]:
            _, host, message = self._held.pop(0)
            yield host, message
        if self._held and decided and not self._awaits_voters(now):
            held, self._held = self._held, []
            for _, host, message in held:  # what was to be started before is to end now
                intents = {task: view.intents[task].copy() for task in message["intents"]}
                yield host, {**message, "intents": intents}

    def _awaits_voters(self, now: float) -> bool:
        """Without a lease nothing is started; nor when the outcome is decided, which the voters are to know: later
        orders find ever fewer of them, as hosts where nothing is left leave.
        """
        if not self._voter.election.has_lease(now):
            return False
        return self._end is None or self._voter.election.committed < self._end

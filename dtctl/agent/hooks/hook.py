"""One hook: tells its receiver of one thing after another, a few times each, until it is taken or given up."""

from __future__ import annotations

import time

from ..records.hooks import MOST_TOLD, Told
from ..records.kinds import made
from ..records.reasons import fact
from ..run import telling
from .delivery import Delivery

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Mapping, Optional

    from ..records.hooks import Post, Sent
    from ..records.reasons import Fact
    from ..run.telling import Happened

PAUSES_S = (1.0, 5.0, 20.0)
"""Before each further try."""

MOST_WAITING = 50
"""How far it may be behind; of more the oldest are left out."""

_KINDS = {"answer": "hook_refused", "redirect": "hook_redirects", "unreachable": "hook_unreached"}


class Hook:
    """`told` is its part of told.json, which is written between `step` and `begin`."""

    def __init__(
        self,
        post: Post,
        cluster: str,
        inherited: Mapping[str, str],
        told: Optional[Told],
        tell: Callable[[List[Fact]], None],
    ) -> None:
        self.name = post["name"]
        self.told: Told = told or made(Told)
        self._post = post
        self._cluster = cluster
        self._inherited = inherited
        self._tell = tell
        self._waiting: List[Happened] = []
        self._current: Optional[Happened] = None
        """What is being told."""
        self._delivery: Optional[Delivery] = None
        self._try_at = 0.0
        self._passed = set(self.told["events"])

    @property
    def settled(self) -> bool:
        return not self._waiting

    def step(self, found: List[Happened], now: float) -> bool:
        """Listens, and chooses what to tell next; whether `told` has changed."""
        before = (len(self._passed), self.told["tries"])
        sent = self._delivery.look(now) if self._delivery is not None else None
        if sent is not None:
            self._delivery = None
            self._heard(sent, now)
        self._take_up(found)
        if self._current is None and self._waiting and now >= self._try_at:
            # counted before it is tried: an agent that is killed again and again does not post for ever
            self._current = self._waiting[0]
            self.told["tries"] += 1
        return before != (len(self._passed), self.told["tries"])

    def begin(self, now: float) -> None:
        if self._current is None or self._delivery is not None:
            return
        body = telling.payload(self._current, self._cluster, rfc3339(self._current.time))
        try:
            self._delivery = Delivery(self._post, body, self._inherited, now)
        except OSError as error:  # too many processes, or no memory
            self._heard({"problem": "unreachable", "text": error.strerror or "", "again": True}, now)

    def readers(self) -> List[int]:
        return [] if self._delivery is None else [self._delivery.reader]

    def due(self) -> Optional[float]:
        if self._delivery is not None:
            return self._delivery.deadline
        return self._try_at if self._waiting else None

    def give_up(self) -> bool:
        """The run ends without the rest; whether there was any."""
        if not self._waiting:
            return False
        self.close()
        self._fail(fact("hook_unreached", what=self.name, text="no answer before the end of the run"))
        self._pass(self._waiting)
        return True

    def close(self) -> None:
        if self._delivery is not None:
            self._delivery.end()
        self._delivery = self._current = None

    def _take_up(self, found: List[Happened]) -> None:
        wanted = self._post["on"]
        self._waiting = [
            one for one in found if one.id not in self._passed and any(kind in wanted for kind in one.kinds)
        ]
        if self._current is None and len(self._waiting) > MOST_WAITING:
            left_out = self._waiting[:-MOST_WAITING]
            self._tell([fact("hook_behind", what=self.name, count=len(left_out))])
            self._pass(left_out)

    def _heard(self, sent: Sent, now: float) -> None:
        assert self._current is not None
        told, self._current = self._current, None
        if sent["problem"] is None:
            if self.told["broken"]:
                self._tell([fact("hook_works", what=self.name)])
            self.told["broken"] = False
            self._pass([told])
        elif sent["again"] and self.told["tries"] <= len(PAUSES_S):
            self._try_at = now + PAUSES_S[self.told["tries"] - 1]
        else:
            self._fail(fact(_KINDS[sent["problem"]], what=self.name, text=sent["text"]))
            self._pass([told])

    def _fail(self, why: Fact) -> None:
        """The first time after it has worked."""
        if not self.told["broken"]:
            tries = self.told["tries"]
            self._tell([why, *([fact("hook_tried", count=tries)] if tries > 1 else [])])
        self.told["broken"] = True

    def _pass(self, done: List[Happened]) -> None:
        """It is not told of these any more."""
        ids = [one.id for one in done]
        self._passed.update(ids)
        self.told["events"] = [*self.told["events"], *ids][-MOST_TOLD:]
        self.told["tries"] = 0
        self._try_at = 0.0
        self._waiting = [one for one in self._waiting if one.id not in self._passed]


def rfc3339(epoch_s: float) -> str:
    whole = int(epoch_s)
    return "%s.%03dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)), int((epoch_s - whole) * 1000))

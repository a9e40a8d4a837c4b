"""Whether a checkpoint that a trainer could not restore is the only one there is."""

from __future__ import annotations

import os
import time

from ..host import patience
from ..host.budget import Budget
from ..records.words import brief
from . import reading, verifying

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence

    from ..records.answers import Checkpoint

_LIMIT_S = reading.LOOK_S + 1.0


class Loss:
    """A checkpoint that cannot be restored, and no sound one beside it. `elsewhere`: the path of one that may be."""

    def __init__(self, path: str, problem: str, elsewhere: Optional[str]) -> None:
        self.path = path
        self.problem = problem
        self.elsewhere = elsewhere


def loss(directories: Sequence[str], others: Sequence[str] = ()) -> Optional[Loss]:
    """The newest checkpoint, when neither it nor any other in its directory can be restored; None when that is unsure.

    `others`: directories in which there may be one that can.
    """
    until = time.monotonic() + reading.LOOK_S
    try:
        return patience.within(_LIMIT_S, "loss", lambda: _loss(directories, others, until))
    except patience.Silent:
        return None


def _loss(directories: Sequence[str], others: Sequence[str], until: float) -> Optional[Loss]:
    found = []
    for directory in directories:
        told = reading.look(directory, until)
        if told["problem"] is not None:
            return None  # there may be more
        ours = [one for one in told["all"] if one["kind"] == "tensorflow"]
        found += [(directory, one) for one in distrusted(directory, ours, until)]
    if not found:
        return None
    directory, newest = max(found, key=lambda one: one[1]["time"])
    place = os.path.dirname(os.path.join(directory, newest["prefix"]))
    complete = [os.path.join(directory, one["prefix"]) for directory, one in found if one["complete"]]
    if any(os.path.dirname(path) == place for path in complete):
        return None
    for other in others:
        good = reading.look(other, until + reading.LEAST_S)["newest_complete"]
        if good is not None:
            complete.append(os.path.join(other, good["prefix"]))
    path = os.path.join(directory, newest["prefix"])
    return Loss(path, newest["problem"] or "", next(iter(complete), None))


def distrusted(directory: str, found: Sequence[Checkpoint], until: float) -> List[Checkpoint]:
    """The same, newest first, with what is damaged within its files told as such, as far down as the first sound one.

    What there is no time to read is left as it looks.
    """
    budget, sound, told = Budget(until, 0), set(), []
    for one in found:
        below = os.path.dirname(one["prefix"])
        if one["complete"] and below not in sound:
            problems = verifying.verify(os.path.join(directory, one["prefix"]), budget.check).problems
            if problems:
                damaged: Checkpoint = {**one, "complete": False, "problem": brief(problems[0])}
                told.append(damaged)
                continue
            sound.add(below)
        told.append(one)
    return told

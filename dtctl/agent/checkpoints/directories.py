"""Finds a run's checkpoint directories: those of its settings, or else by its lead's command line and directory.

It also finds checkpoints of earlier runs of the cluster, to report them if a run would start at step 0 without them.
"""

from __future__ import annotations

import os
import re

from ..host.budget import Silent, within
from ..records.spec import Spec, has_lead
from . import formats, reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

    from ..records.checkpoints import CheckpointReport, Saved

    Expand = Callable[[List[str]], List[str]]

MOST_SAVED = 5
_MOST_PLACES = 20
_MOST_RUNS = 20
_LIMIT_S = 2.0
_CLOCK_S = 2.0
"""The tolerance for a checkpoint's age compared with its run's, as file systems round their times."""

_FLAG = r"(?s)-{0,2}[A-Za-z_][\w.-]*=(.+)\Z"


class Run:
    """The data of a run that matters here.

    `code`: its tasks' working directory; `words` replaces the marks in its spec.
    """

    def __init__(self, spec: Spec, code: Optional[str], expand: Expand) -> None:
        self.id = spec["run"]
        self.created = spec["created"]
        self.leads = has_lead(spec)
        self.known = expand(spec["checkpoint_dirs"])
        self._code = code
        self._argv = [word for task in spec["tasks"] if task["id"] == spec["lead"] for word in expand(task["argv"])]

    def places(self) -> List[str]:
        """Its checkpoint directories; candidates if it has none."""
        return self.known or self.guessed()

    def guessed(self) -> List[str]:
        """Directories that the lead is given by its command line, and the one that it works in."""
        if not self.leads:
            return []
        try:
            return within(_LIMIT_S, "places of %s" % self.id, self._guess)
        except Silent:
            return []

    def _guess(self) -> List[str]:
        own = [self._code] if self._code is not None else []
        base = os.path.realpath(self._code or os.path.expanduser("~"))
        named = [os.path.join(base, value) for value in values(self._argv)]
        others = [path for path in named if os.path.isdir(path) and not (own and _is_looked_into(path, base))]
        return list(dict.fromkeys([*own, *others]))[:_MOST_PLACES]

    def names(self, place: str) -> bool:
        """Whether its settings or its command line name a directory, or one above it."""
        base = self._code or os.path.expanduser("~")
        named = {os.path.realpath(os.path.join(base, path)) for path in (*self.known, *values(self._argv))}
        return bool(named & {place, os.path.dirname(place)})

    def works_above(self, place: str) -> bool:
        return self._code is not None and (place + os.sep).startswith(os.path.realpath(self._code) + os.sep)


def _is_looked_into(path: str, base: str) -> bool:
    """Whether a search for checkpoints in `base` includes this path."""
    real = os.path.realpath(path)
    return base in (real, os.path.dirname(real))


def values(argv: Iterable[str]) -> List[str]:
    """Possible paths in a command line: of --name=VALUE the value, and words that are no flags."""
    found = []
    for word in argv:
        flag = re.match(_FLAG, word)
        text = flag.group(1) if flag else word
        if text and not text.startswith("-") and "\0" not in text and "://" not in text and len(text) < 4096:
            found.append(text)
    return found[:1000]


class BeforeFirstRun:
    """The same of a cluster that has no run here: its file says where the checkpoints will be."""

    def __init__(self, known: List[str]) -> None:
        self.known = known

    def places(self) -> List[str]:
        return self.known


def report(run: Run) -> List[CheckpointReport]:
    """The checkpoints as in `reading.report`; of candidates only those with a checkpoint."""
    reports = reading.report(run.places())
    if run.known:
        return reports
    guessed = [one for one in reports if one["all"]]
    for one in guessed:
        one["guessed"] = True
    return guessed


def saved(new: Run, before: Sequence[Run], marked: Iterable[str]) -> List[Saved]:
    """The newest complete checkpoints of earlier runs here, the newest first, and whether `new` finds them.

    `marked`: directories to which earlier runs were started to write, even if these runs were removed.
    """
    runs: Dict[str, List[Run]] = {}
    for run in sorted(before, key=lambda one: one.created, reverse=True)[:_MOST_RUNS]:
        for path in run.places() if run.leads else ():
            runs.setdefault(os.path.realpath(path), []).append(run)
    for path in marked:
        runs.setdefault(os.path.realpath(path), [])
    found = [one for each in reading.report(list(runs)[:_MOST_PLACES]) for one in _of_report(each, runs, new)]
    return sorted(found, key=lambda one: one["checkpoint"]["time"], reverse=True)[:MOST_SAVED]


def _of_report(found: CheckpointReport, runs: Mapping[str, Sequence[Run]], new: Run) -> Iterator[Saved]:
    """The newest of each directory. `runs`: those that may have saved in it, the newest first; none of a mark alone."""
    seen_places = set()
    for one in found["all"]:
        below = formats.home(os.path.dirname(one["prefix"]))
        place = os.path.realpath(os.path.join(found["dir"], below))
        if not one["complete"] or place in seen_places:
            continue
        seen_places.add(place)
        savers = runs[found["dir"]]
        run = next((run for run in savers if one["time"] >= run.created - _CLOCK_S), None)
        if run is not None or not savers:  # other tasks were given it, and have not saved it
            hidden = any(run.names(place) for run in savers)  # it was named then, and must be named now
            visible = new.leads and (new.names(place) or (not hidden and not new.known and new.works_above(place)))
            yield {"run": None if run is None else run.id, "dir": found["dir"], "checkpoint": one, "seen": visible}

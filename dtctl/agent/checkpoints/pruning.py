"""Removes old checkpoints, and never one that a restore may need.

Kept are the newest complete ones, among them one that was read and is sound; the one that TensorFlow's file
`checkpoint` names; what is incomplete, as a save may be going on, or other shards lie elsewhere; what Keras wrote.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import files
from ..records.words import brief
from . import reading, state_file, verifying
from .mending import OpenDirectory
from .reading import MOST_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple

    from ..host.budget import Budget
    from ..records.checkpoints import Checkpoint, Pruned

MOST_LOOKED_AT = 10_000


def prune(directory: str, keep: int, dry_run: bool, live: bool, budget: Budget) -> Pruned:
    """`live`: somebody may be saving there, who writes the file `checkpoint` himself."""
    told = reading.look(directory, budget.until, MOST_LOOKED_AT)
    answer: Pruned = {
        "dir": directory,
        "removed": [],
        "kept": [],
        "freed_bytes": 0,
        "problem": told["problem"],
        "listed": not live,
    }
    by_place: Dict[str, List[Checkpoint]] = {}
    for one in told["all"]:
        if one["complete"] and one["kind"] == "tensorflow":
            by_place.setdefault(os.path.dirname(one["prefix"]), []).append(one)
    for below, found in by_place.items():
        kept, doomed = _parted(directory, found, keep, budget.check)
        answer["kept"] += kept
        try:
            place = OpenDirectory.of(directory, below, budget.until)
        except OSError as error:
            answer["problem"] = brief("%s: %s" % (error.filename or directory, error.strerror))
            continue
        try:
            _clear(place, doomed, answer, dry_run, live)
        except OSError as error:
            answer["problem"] = brief("%s: %s" % (error.filename or directory, error.strerror))
        finally:
            os.close(place.descriptor)
    return answer


def _parted(
    directory: str, found: List[Checkpoint], keep: int, check: Callable[[], None]
) -> Tuple[List[Checkpoint], List[Checkpoint]]:
    """What stays and what may go, the newest first. Where those that are to stay are damaged, older ones stay too."""
    for number, one in enumerate(found):
        verdict = verifying.verify(os.path.join(directory, one["prefix"]), check)
        if not verdict.problems:
            stays = max(keep, number + 1)
            return found[:stays], found[stays:]
    return found, []


def _clear(place: OpenDirectory, doomed: List[Checkpoint], answer: Pruned, dry_run: bool, live: bool) -> None:
    state = place.state()
    going: List[Checkpoint] = []
    for one in doomed:
        named = state_file.named(state) == os.path.basename(one["prefix"])
        (answer["kept"] if named else going).append(one)
    if not dry_run and not live and going:
        place.forget_in_state([os.path.basename(one["prefix"]) for one in going])
    with os.scandir(place.descriptor) as listed:
        names = [entry.name for _, entry in zip(range(MOST_NAMES), listed)]
    for one in going:
        own = [name for name in names if reading.belongs(name, os.path.basename(one["prefix"]))]
        own.sort(key=lambda name: not name.endswith(".index"))  # first what makes it a checkpoint
        for name in own:
            size = 0
            with suppress(OSError):
                size = files.look(name, place.descriptor).st_size
            if not dry_run:
                with suppress(FileNotFoundError):  # its trainer has removed it
                    os.unlink(name, dir_fd=place.descriptor)
            answer["freed_bytes"] += size
        answer["removed"].append(one)

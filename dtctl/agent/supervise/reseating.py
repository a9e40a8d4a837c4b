"""Hosts take the places of others: the agent ends what its host has no more, and the next one begins with the rest."""

from __future__ import annotations

from ..host import log
from ..records.kinds import InvalidValue
from ..records.reasons import fact
from ..records.values import FINAL
from ..run import intents, seats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.run_state import Entries, Intents
    from ..records.spec import Moved, Spec
    from ..run.runfiles import RunFiles


def orders(files: RunFiles, spec: Spec, moved: Moved, wanted: Intents) -> Optional[Intents]:
    """Those that end what the host has no more, at once: others may have it already. None where the moves are no such.

    They are in the answer when they are obeyed as well.
    """
    try:
        leaving = set(seats.leaving(spec, seats.seated(files.original(), moved)))
    except InvalidValue as wrong:
        log.note("moves: %s" % wrong)
        return None
    held = {task: intent for task, intent in wanted.items() if task in leaving}
    ended = intents.stopped(held, by="coordinator", why=fact("moved_away", host=spec["host"]))
    for intent in ended.values():
        intent["grace_s"] = 0.0
    return {**held, **ended}


def are_gone(ended: Intents, entries: Entries) -> bool:
    return all(entries[task]["state"] in FINAL for task in ended)


def write(files: RunFiles, moved: Moved) -> bool:
    """Whether the next agent will read it."""
    try:
        files.write_moved(moved)
    except OSError as error:  # a full disk: later
        log.note("moves: %s" % error)
        return False
    return True

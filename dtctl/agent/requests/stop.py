"""stop: of the whole run where its coordinator answers, or else of what this host has of it."""

from __future__ import annotations

import time

from ..host.errors import Refused
from ..records.answers import MOST_PROCESSES
from ..records.reasons import because, fact
from ..records.spec import inventory_of
from . import part, runs
from .own_part import OwnPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..protocol.conversation import Conversation
    from ..records.answers import StopResult
    from ..records.requests import StopRequest
    from ..records.run_state import How
    from .part import Part

END_LIMIT_S = 15.0
"""How long a stop waits after SIGKILL before it tells what is left."""

REACH_S = 5.0
"""How long an agent that is away is waited for; a revived coordinator is dialled again within that time, as a rule."""


def stop(talk: Conversation, request: StopRequest) -> StopResult:
    """Returns when the tasks have ended wherever they can be reached, or it is clear that some do not."""
    run = runs.need(talk, request)
    how: How = {"by": request["by"], "grace_s": request["grace_s"], **because(request["why"] or [fact("stopped")])}
    reached = part.reached(talk, run)
    try:
        return end(run, reached, request["tasks"], how, request["others_ended"])
    except _NotTaken as away:
        return end(run, OwnPart(run, away), request["tasks"], how, request["others_ended"])


def stop_run(run: runs.Run, how: How) -> StopResult:
    """Ends what this host has of a run that ends everywhere, and waits for nobody else."""
    return end(run, OwnPart(run), None, how, others_ended=True)


class _NotTaken(Refused):
    """Nobody has heeded the request."""


def end(run: runs.Run, of: Part, named: Optional[List[str]], how: How, others_ended: bool) -> StopResult:
    """Ends those of the `named` tasks (None: all) that belong to this part of the run."""
    part.refuse_strangers(of, run, named)
    of.look()
    open_ = [task for task in of.tasks(named) if not part.has_ended(of, task)]
    first = of.first_to_end(named, others_ended)
    to_stop = [task for task in open_ if task in first]
    if of.waits_for(named, to_stop):
        serial = of.post_stop(named, to_stop, how)
        grace_s = run.spec["grace_s"] if how["grace_s"] is None else how["grace_s"]
        limit_s = of.longest_end_s(grace_s) + END_LIMIT_S
        if of.until(lambda: of.has_taken(serial), min(limit_s, of.answer_s)):
            _await_end(of, to_stop, limit_s)
        elif of.view is not None:
            raise _NotTaken("not_answering", "the coordinator has not taken the request within %.0f s" % of.answer_s)
    of.look()
    return _told(run, of, of.tasks(named), to_stop, [task for task in open_ if task not in to_stop])


def _await_end(of: Part, to_stop: List[str], limit_s: float) -> None:
    patience = time.monotonic() + REACH_S

    def ended() -> bool:
        open_ = [task for task in to_stop if not part.has_ended(of, task)]
        away = of.unreached(open_)
        waiting = [task for task in open_ if of.hosts[task] not in away]
        return not waiting and not (away and time.monotonic() < patience)

    of.until(ended, limit_s)


def _told(run: runs.Run, of: Part, tasks: List[str], to_stop: List[str], waiting: List[str]) -> StopResult:
    entries = {task: entry for task in tasks for entry in [of.entry(task)] if entry is not None}
    stopped = [task for task in to_stop if task in entries and entries[task]["state"] == "stopped"]
    exits = {task: entries[task]["exit"] for task in stopped}
    survivors = of.survivors([task for task in tasks if task not in waiting])
    return {
        "run": run.id,
        "stopped": stopped,
        "killed": {task: end["killed_after_s"] for task, end in exits.items() if end and end["killed_after_s"]},
        "already": [task for task in tasks if part.has_ended(of, task) and task not in stopped],
        "waiting": waiting,
        "survivors": survivors[:MOST_PROCESSES],
        "omitted": max(0, len(survivors) - MOST_PROCESSES),
        "unreached": of.unreached([task for task in tasks if not part.has_ended(of, task)]),
        "coordination": of.view,
        "away": part.told(of.away),
        "inventory": inventory_of(run.spec),
    }

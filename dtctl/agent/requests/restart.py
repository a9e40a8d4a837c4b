"""restart: new attempts of tasks, anywhere in the run where its coordinator answers, or else on this host."""

from __future__ import annotations

from ..host.errors import Refused
from ..records.spec import inventory_of
from ..survival import reboot
from . import part, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..protocol.conversation import Conversation
    from ..records.answers import RestartResult
    from ..records.requests import RestartRequest
    from .part import Part

RESTART_LIMIT_S = 60.0


def restart(talk: Conversation, request: RestartRequest) -> RestartResult:
    """Returns when the tasks have new attempts; those of hosts that are away get theirs when they are back."""
    run = runs.need(talk, request)
    of = part.reached(talk, run)
    part.refuse_strangers(of, run, request["tasks"])
    tasks = of.tasks(request["tasks"])
    of.look()
    of.refuse_restart()
    serial = of.post_restart(tasks, request["by"]) if tasks else 0

    def all_begun() -> bool:
        open_ = [task for task in tasks if not _has_begun(of, task)]
        away = of.unreached(open_)
        return of.has_taken(serial) and all(of.hosts[task] in away for task in open_)

    if not of.until(all_begun, run.spec["grace_s"] + RESTART_LIMIT_S):
        why = of.missing() or "it goes on trying"
        raise Refused(
            "not_started", "the tasks have not started again yet", why, "dtctl diagnose    tells what is in the way"
        )
    if run.spec["recovery"]["reboot"] == "auto":
        reboot.offer(talk.root)  # a run that had ended has taken it away
    of.look()
    unreached = of.unreached([task for task in tasks if not _has_begun(of, task)])
    here = [task for task in tasks if of.hosts[task] not in unreached]
    return {
        "run": run.id,
        "tasks": {task: entry for task in here for entry in [of.entry(task)] if entry is not None},
        "unreached": unreached + of.absent(request["tasks"]),
        "coordination": of.view,
        "away": part.told(of.away),
        "inventory": inventory_of(run.spec),
    }


def _has_begun(of: Part, task: str) -> bool:
    entry, generation = of.entry(task), of.generation(task)
    if entry is None or generation is None or entry["generation"] < generation:
        return False
    return entry["state"] not in ("pending", "starting")

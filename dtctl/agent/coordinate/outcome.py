"""What the states of all tasks say of the run: pure questions to the coordinator's view."""

from __future__ import annotations

from ..records.reasons import fact, facts
from ..run import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..records.answers import Checkpoint
    from ..records.reasons import Fact
    from ..records.run_state import Entry
    from .view import View

DECIDED = ("Succeeded", "Failed", "Stopped")
"""The last conditions of a run, by TFJob's words (kubeflow training-operator, JobConditionType), and Stopped."""


def has_succeeded(view: View) -> bool:
    """Every task that decides came to its own end, in the generation that is wanted.

    An exit that dtctl asked for is never an end of its own, nor is one of a generation that is being replaced: after
    the loss of a synchronous ps a worker's exit 0 means nothing.
    """
    deciding = [task for task, place in view.roster.items() if place["decides"]]
    return bool(deciding) and all(
        view.state(task) == "succeeded" and view.current(task) and view.intents[task]["want"] in ("run", "finish")
        for task in deciding
    )


def first_failure(view: View) -> Optional[str]:
    """The task whose failure for good fails the run: of several the one that has failed the longest."""
    failed = [task for task in view.tasks if view.state(task) == "failed" and view.current(task)]
    fatal = [task for task in failed if _is_fatal(view, task)]
    if not fatal:
        return None
    return min((task for task in failed if task in fatal), key=lambda task: failing_since(view.entry(task)))


def _is_fatal(view: View, task: str) -> bool:
    """Without `fail_fast` the others go on as long as the run can still succeed."""
    place = view.roster[task]
    return place["vital"] and (view.spec["fail_fast"] or place["decides"])


def failing_since(entry: Entry) -> float:
    """When the unbroken row of failures began that ended in the final one: a cause fails before its followers do."""
    since = entry["since"] or 0.0
    for past in reversed(entry["history"]):
        if past["asked"] or past["code"] == 0:
            break
        since = past["ended"]
    return since


def was_stopped(view: View) -> Optional[str]:
    """A deciding task that a person has stopped: without it the run comes to no end of its own."""
    for task, place in view.roster.items():
        if place["decides"] and view.intents[task]["want"] == "stop" and view.state(task) == "stopped":
            return task
    return None


def all_stop(view: View) -> bool:
    return all(intent["want"] == "stop" for intent in view.intents.values())


def going_on(view: View) -> List[str]:
    """Tasks that have not come to an end."""
    return [task for task in view.tasks if not view.final(task)]


def why_succeeded(view: View) -> List[Fact]:
    return [fact("lead_finished", task=view.lead) if view.spec["success"] == "lead" else fact("workers_finished")]


def why_failed(view: View, task: str) -> List[Fact]:
    entry = view.entry(task)
    how = facts(entry) or (policy.why_ended(entry["exit"]) if entry["exit"] else [fact("exit_unknown")])
    return [fact("task_failed", task=task), *how]


def target_warning(view: View, newest: Optional[Checkpoint]) -> Optional[Fact]:
    """What is odd about a success: the checkpoint does not reach the step that was asked for."""
    target = view.spec["target_step"]
    if target is None or newest is None or newest["step"] is None or newest["step"] >= target:
        return None
    return fact("short_of_target", step=newest["step"], of=target)

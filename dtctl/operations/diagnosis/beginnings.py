"""Tasks that have told no step since their start, and runs in which nobody has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dtctl.model import TaskState
from dtctl.operations.diagnosis.signature import Seen

if TYPE_CHECKING:
    from dtctl.operations.asking.tasks import TaskStatus
    from dtctl.operations.diagnosis.facts import Facts

PATIENCE_S = 120.0
"""So long a start may take, or everybody may do nothing, without a word."""

STARTS = 5
"""One that takes so many times as long as its peers for its first step has not begun."""

IDLE_SOON_S = 30.0
"""Who is idle so soon after its start, in twice the time that the lead took for a step, has not trained in silence."""

_APART_S = 10.0
"""Who was idle so much before everybody else is likely to be the one that the others wait for."""


def not_begun(facts: Facts) -> Iterator[Seen]:
    """Those that have told nothing while most of their peers have; or that have done nothing while the lead has."""
    for task in facts.tasks:
        took_s = _others_took(facts, task) if _is_new(task) else None
        age_s = facts.age(task.since)
        if took_s is not None and age_s >= max(PATIENCE_S, STARTS * took_s):
            idle = {"idle_s": facts.age(task.idle_since)} if task.idle_since is not None else {}
            yield Seen((task.id,), (task.host,), {"age_s": age_s, "others_s": took_s, **idle})


def _is_new(task: TaskStatus) -> bool:
    return task.state is TaskState.RUNNING and task.step is None and task.id.job not in ("ps", "evaluator")


def _others_took(facts: Facts, task: TaskStatus) -> float | None:
    """For their first steps. The lead is nobody's peer, as many programs let it alone speak."""
    lead = facts.status.tasks.get(facts.status.record.lead)
    peers = [one for one in facts.tasks if one.id.job == task.id.job and one not in (task, lead)]
    taught = [one.first_step_s for one in peers if one.step is not None and one.first_step_s]
    if taught and 2 * len(taught) > len(peers):
        return max(taught)
    if lead is None or lead.step is None or task.idle_since is None or task.since is None:
        return None
    soon = task.idle_since - task.since <= IDLE_SOON_S + 2 * lead.first_step_s
    return lead.first_step_s if lead.first_step_s and soon else None


def nobody_begins(facts: Facts) -> Iterator[Seen]:
    """A run that is to make steps, has told none, and in which no task does anything any more."""
    tasks = [task for task in facts.tasks if task.state is TaskState.RUNNING and task.id.job != "evaluator"]
    if facts.status.verdict.outcome.decided or not _is_to_begin(facts, tasks):
        return
    idle = sorted((task.idle_since, task.id) for task in tasks if task.idle_since is not None and task.id.job != "ps")
    if any(task.idle_since is None for task in tasks) or not idle or facts.age(idle[-1][0]) < PATIENCE_S:
        return
    since, first = idle[0]
    alone = len(idle) > 1 and idle[1][0] - since >= _APART_S
    told = {"first": (first,), "first_s": facts.age(since)} if alone else {}
    ages = {"age_s": facts.age(facts.status.record.created), "idle_s": facts.age(idle[-1][0])}
    every = tuple(task for _, task in idle)
    hosts = tuple(dict.fromkeys(facts.status.tasks[task].host for task in every))
    yield Seen(every, hosts, {"task": first, **ages, **told})


def _is_to_begin(facts: Facts, tasks: list[TaskStatus]) -> bool:
    """A program that counts no steps may wait for anything."""
    counts = facts.status.progress.target is not None or any(task.id.job == "ps" for task in tasks)
    told = any(task.step is not None or any(past.step is not None for past in task.history) for task in tasks)
    return counts and not told

"""When a run has succeeded. Pure."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from dtctl.model import LEAD_JOBS, Cluster, TaskId
from dtctl.strategies import PS, WORKER, Strategy

if TYPE_CHECKING:
    from dtctl.plan.values import Part, Roster, SuccessRule


_STEP_FLAG = re.compile(r"--?(?:train_steps|max_steps|target_step)(?:=(?P<value>.*))?")


def success_rule(cluster: Cluster) -> SuccessRule:
    """The lead decides where parameters live on ps; collectives need every worker to finish."""
    if cluster.success != "auto":
        return cluster.success
    return "lead" if PS in cluster.jobs or WORKER not in cluster.jobs else "all-workers"


def decides(task: TaskId, lead: TaskId, rule: SuccessRule) -> bool:
    """Its success is, with that of the others that decide, the run's."""
    return task == lead or (rule == "all-workers" and task.job in (WORKER, *LEAD_JOBS))


def known_target_step(cluster: Cluster) -> int | None:
    """The step that a complete training reaches, as the file or the lead's arguments say; None: they do not."""
    if cluster.target_step is not None:
        return cluster.target_step
    args = cluster.jobs[cluster.lead.job].launch.args
    for word, following in itertools.pairwise((*args, "")):
        flag = _STEP_FLAG.fullmatch(word)
        if flag is not None:
            text = following if flag["value"] is None else flag["value"]
            return int(text) if text.isascii() and text.isdecimal() else None
    return None


def restoring_hosts(roster: Roster) -> tuple[str, ...]:
    """The lead's host first, as the lead looks for the newest one.

    With parameters on ps tasks each of those restores its own, from the same files (RestoreV2 runs on the device of
    its variable); where all train alike each restores all.
    """
    lead = next(part.host for part in roster.tasks if part.id == roster.lead)
    return tuple(dict.fromkeys([lead, *(part.host for part in roster.tasks if _restores(part, roster.strategy))]))


def _restores(part: Part, strategy: Strategy) -> bool:
    if strategy.keeps_parameters_on_ps:
        return part.role == "ps"
    return strategy in (Strategy.COLLECTIVE, Strategy.KVSTORE) and part.role == "worker"

"""Who does what in the runs of a cluster. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtctl.plan.success import decides, success_rule
from dtctl.plan.values import Part, Roster, SuccessRule
from dtctl.strategies import Strategy, role_of, scope_of, serves, strategy_of

if TYPE_CHECKING:
    from dtctl.model import Cluster, TaskId


def plan_roster(cluster: Cluster) -> Roster:
    """The first half of every plan, and all that is to be known of a run that somebody else has started."""
    strategy, rule = strategy_of(cluster), success_rule(cluster)
    return Roster(
        cluster, tuple(_part(cluster, task, strategy, rule) for task in cluster.tasks()), cluster.lead, rule, strategy
    )


def _part(cluster: Cluster, task: TaskId, strategy: Strategy, rule: SuccessRule) -> Part:
    role = role_of(task, cluster.lead)
    return Part(
        id=task,
        host=cluster.host_of(task).name,
        role=role,
        scope=scope_of(role, strategy, cluster.recovery),
        vital=role != "evaluator",
        decides=decides(task, cluster.lead, rule),
        serves=serves(role, strategy),
    )

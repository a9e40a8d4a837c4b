"""Which hosts read a checkpoint when a run begins with it."""

from __future__ import annotations

import pytest

from dtctl.plan.roster import plan_roster, restoring_hosts
from tests.unit.clusters import cluster, job


@pytest.mark.parametrize(
    ("strategy", "hosts"),
    [
        ("auto", ("c", "a", "b")),
        ("sync-ps", ("c", "a", "b")),
        ("in-graph", ("c", "a", "b")),
        ("ps-strategy", ("c", "a", "b")),
        ("mirrored", ("c", "d")),
        ("single", ("c",)),
    ],
)
def test_the_lead_and_whoever_restores_a_part_of_its_own(strategy: str, hosts: tuple[str, ...]) -> None:
    """The lead is worker:0 on c, ps tasks are on a and b, worker:1 on d."""
    assert restoring_hosts(plan_roster(cluster(strategy=strategy))) == hosts


def test_a_host_is_named_once_and_an_evaluator_begins_nothing() -> None:
    jobs = (job("ps", ["a", "b"], [2222] * 2), job("worker", ["b", "a"], [2223] * 2), job("evaluator", ["c"], [2224]))
    assert restoring_hosts(plan_roster(cluster(*jobs))) == ("b", "a")

"""The tasks of one host move to another; nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.config.cluster import Cluster
from dtctl.errors import PreflightError, UsageError
from dtctl.model import TaskId
from dtctl.operations.history.record import record_of
from dtctl.operations.replace import check_same, plan_replacement
from dtctl.plan.roster import plan_roster
from tests.unit.clusters import cluster, ssh_host


def with_spares(**settings: Any) -> Cluster:
    hosts = [ssh_host(name) for name in "abcdef"]
    return cluster(hosts=hosts, **{"spares": ("e", "f"), **settings})


def test_the_first_spare_takes_the_place() -> None:
    exchange = plan_replacement(with_spares(), "b", None)
    assert (exchange.new, exchange.tasks) == ("e", (TaskId("ps", 1),))
    assert exchange.cluster.jobs["ps"].hosts == ("a", "e")
    assert exchange.cluster.jobs["worker"].hosts == ("c", "d")
    assert exchange.cluster.spares == ("f",)


def test_a_host_that_is_named_need_not_be_a_spare() -> None:
    assert plan_replacement(with_spares(spares=()), "b", "f").cluster.jobs["ps"].hosts == ("a", "f")


def test_the_lead_may_move() -> None:
    assert plan_replacement(with_spares(), "c", None).moves_the_lead
    assert not plan_replacement(with_spares(), "d", None).moves_the_lead


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("x", None, "x has no task"),
        ("e", None, "e has no task"),
        ("b", "x", "there is no host 'x'"),
        ("b", "c", "c has tasks of its own: worker:0"),
        ("b", "b", "b has tasks of its own: ps:1"),
    ],
)
def test_hosts_that_cannot_give_or_take_are_refused(old: str, new: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_replacement(with_spares(), old, new)


def test_without_a_spare_a_host_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="no spare"):
        plan_replacement(with_spares(spares=()), "b", None)


def test_a_file_that_does_not_agree_with_the_run_is_refused() -> None:
    run = record_of(plan_roster(plan_replacement(with_spares(), "b", "e").cluster))
    with pytest.raises(PreflightError, match="does not agree") as refused:
        check_same(with_spares(), run)
    assert "ps:1: b in the file, e in the run" in refused.value.detail
    check_same(with_spares(), record_of(plan_roster(with_spares())))

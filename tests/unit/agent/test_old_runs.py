"""Which runs that have ended are removed: a function of how they stand."""

from __future__ import annotations

from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.spec import Spec
from dtctl.agent.requests.down import Standing, expired
from tests.unit.agent.test_records import LED

ELSEWHERE = {**LED, "tasks": []}


def standing(number: int, ended: float | None, *, current: bool = False, **fields: Any) -> Standing:
    """Of the run rNUMBER, the younger the higher."""
    spec = {"run": f"r{number}", "cluster": "c", "host": "h", "created": float(number), "ttl_s": None, "keep": 2}
    return Standing(made(Spec, **{**ELSEWHERE, **spec, **fields}), ended, current)


def gone(*standings: Standing, now: float = 1000.0) -> list[str]:
    return sorted(run for run, _ in expired(standings, now))


def test_as_many_runs_that_have_ended_are_kept_as_the_newest_one_says() -> None:
    ended = [standing(number, 10.0) for number in range(4)]
    assert gone(*ended) == ["r0", "r1"]
    assert gone(*ended, standing(4, None, keep=0)) == ["r0", "r1", "r2", "r3"]
    assert gone(*ended, standing(4, None, keep=10)) == []


def test_a_run_that_lives_is_never_removed_and_not_counted() -> None:
    assert gone(standing(0, None), standing(1, None), standing(2, 10.0), standing(3, 10.0), standing(4, None)) == []
    assert gone(standing(0, None, ttl_s=1.0)) == []


def test_the_current_run_is_kept_whatever_the_number_but_not_past_its_ttl() -> None:
    assert gone(standing(0, 10.0, current=True, keep=0)) == []
    assert gone(standing(0, 10.0, current=True, ttl_s=900.0)) == ["r0"]


def test_each_run_has_its_own_ttl_counted_from_its_end() -> None:
    assert gone(standing(0, 10.0, ttl_s=100.0), standing(1, 950.0, ttl_s=100.0)) == ["r0"]
    assert gone(standing(0, 10.0, ttl_s=100.0), now=105.0) == []


def test_clusters_and_hosts_count_for_themselves() -> None:
    others = [standing(3, 10.0, cluster="d", keep=1), standing(4, 10.0, host="i", keep=1)]
    assert gone(standing(0, 10.0, keep=1), *others) == []
    assert gone(standing(0, 10.0, keep=1), standing(1, 10.0, keep=1), *others) == ["r0"]


def test_of_a_cluster_that_was_taken_down_every_run_that_is_over_goes() -> None:
    standings = [standing(0, 10.0, current=True), standing(1, None), standing(2, 10.0)]
    assert sorted(run for run, _ in expired(standings, 1000.0, over=True)) == ["r0", "r2"]


def test_the_reason_is_told() -> None:
    told = expired([standing(0, 10.0), standing(1, 10.0, ttl_s=1.0), standing(2, 10.0), standing(3, 10.0)], 1000.0)
    assert told == {
        ("r0", "h"): "newer runs that have ended: 3",
        ("r1", "h"): "it ended longer ago than its ttl",
    }

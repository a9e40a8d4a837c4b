"""Which hosts a start may go on without, and what is said where it may not."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.config.cluster import Recovery
from dtctl.errors import AgentError, DtctlError, TransportError, UsageError
from dtctl.operations.up.conflicts import check_may_go_without, is_dispensable, left_out
from dtctl.plan.roster import Roster, plan_roster
from tests.unit.clusters import cluster, job


def of_jobs(jobs: dict[str, list[str]], **settings: Any) -> Roster:
    """Job -> the host of each task."""
    return plan_roster(cluster(*(job(name, hosts, [2222] * len(hosts)) for name, hosts in jobs.items()), **settings))


def roster(**settings: Any) -> Roster:
    """worker:0 leads, on gpu-0."""
    return of_jobs({"ps": ["ps-1"], "worker": [f"gpu-{n}" for n in range(5)]}, **settings)


def down(*hosts: str) -> dict[str, DtctlError]:
    return {
        host: TransportError(f"{host} does not answer within 10 s", shared_summary="no answer within 10 s")
        for host in hosts
    }


def refusal(roster: Roster, allowed: int | None, errors: dict[str, DtctlError]) -> DtctlError:
    with pytest.raises(DtctlError) as caught:
        left_out(roster, allowed, "prepare", errors, {})
    return caught.value


def test_workers_of_asynchronous_training_that_do_not_lead_can_be_done_without() -> None:
    one = roster()
    assert [host for host in one.hosts if is_dispensable(one, host)] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert left_out(one, 2, "prepare", down("gpu-1", "gpu-4"), {}).keys() == {"gpu-1", "gpu-4"}


@pytest.mark.parametrize("strategy", ["sync-ps", "in-graph", "ps-strategy"])
def test_where_every_worker_is_waited_for_nobody_can(strategy: str) -> None:
    with pytest.raises(UsageError, match=f"with {strategy} every task waits for the others"):
        check_may_go_without(roster(strategy=strategy))


def test_a_gang_is_no_gang_without_one() -> None:
    with pytest.raises(UsageError, match="--allow-missing cannot help here"):
        check_may_go_without(roster(recovery=Recovery(mode="gang")))


def test_a_host_with_a_ps_as_well_is_needed() -> None:
    one = of_jobs({"ps": ["a", "b"], "worker": ["c", "a", "d"]})
    assert [host for host in one.hosts if is_dispensable(one, host)] == ["d"]


def test_an_evaluator_can_be_missing_in_every_way_of_training() -> None:
    one = of_jobs({"ps": ["a"], "worker": ["b"], "evaluator": ["e"]}, strategy="sync-ps")
    check_may_go_without(one)
    assert is_dispensable(one, "e")


def test_the_ps_and_the_lead_are_named_where_they_are_missing() -> None:
    error = refusal(roster(), 3, down("ps-1", "gpu-0", "gpu-1"))
    assert error.hint == "no run without gpu-0,ps-1: ps:0, worker:0 must be there"


def test_more_than_are_allowed_are_counted_with_the_option_that_allows_them() -> None:
    error = refusal(roster(), 1, down("gpu-1", "gpu-2", "gpu-3"))
    assert error.summary == "cannot prepare on 3 of 6 hosts"
    assert error.detail == "gpu-[1-3]: no answer within 10 s"
    assert error.hint == "3 hosts are missing, 1 may be: dtctl up --allow-missing 3    goes on without them"


def test_those_that_were_left_out_before_count_too() -> None:
    with pytest.raises(DtctlError, match="2 of 6 hosts"):
        left_out(roster(), 1, "look around", down("gpu-1"), down("gpu-2"))


def test_without_the_option_it_is_offered_where_it_would_help() -> None:
    assert refusal(roster(), 0, down("gpu-1")).hint == (
        "dtctl up --allow-missing 1    goes on without it, and takes it in later"
    )
    assert refusal(roster(), 0, down("ps-1")).hint == ""
    assert refusal(roster(), None, down("gpu-1")).hint == ""


@pytest.mark.parametrize("code", ["disk_full", "setup_failed", "python_too_old"])
def test_what_is_wrong_with_the_host_makes_it_a_missing_one(code: str) -> None:
    errors: dict[str, DtctlError] = {"gpu-1": AgentError(code, "no")}
    assert left_out(roster(), 1, "prepare", errors, {}) == errors


@pytest.mark.parametrize("code", ["changed_run", "locked", "internal"])
def test_what_concerns_the_run_or_dtctl_does_not(code: str) -> None:
    assert refusal(roster(), 1, {"gpu-1": AgentError(code, "no")}).hint == ""

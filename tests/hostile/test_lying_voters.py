"""A compromised host that votes, with its genuine credentials: what it claims moves nobody, and is shown with its name.

Real supervisors and real links over loopback: hosts a, b and c vote, b coordinates, and c is the one that lies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.agent.conftest import make_host
from tests.agent.coordinate.test_coordination import PLACES, Cluster, cluster
from tests.agent.coordinate.test_succession import ballot, elected, voting
from tests.agent.host import kill
from tests.hostile import evil_voter
from tests.reasons import warnings_of
from tests.waiting import eventually

__all__ = ["cluster", "make_host", "voting"]

LARGEST = 2**53
ATTACKS_S = 15.0
CLAIMS = {"claims_term", "claims_candidate", "claims_coordinator"}


@pytest.fixture
def agent_python() -> str:
    """One interpreter is enough: the same code counts the votes on all."""
    return sys.executable


@contextmanager
def lying(cluster: Cluster, name: str, term: int, growth: int = 20) -> Iterator[None]:
    """Nothing else runs on the host; the liar has its credentials and its port."""
    while processes := cluster.hosts[name].processes():  # its keeper would start another agent
        for pid in processes:
            kill(pid)
    directory = cluster.hosts[name].run_directory(cluster.specs[name])
    with evil_voter.lying(name, directory, term, 120, growth=growth):
        yield


def terms(cluster: Cluster) -> dict[str, int]:
    return {name: ballot(cluster, name)["term"] for name in ("a", "b")}


def claims(cluster: Cluster) -> list[tuple[str, str]]:
    lines: list[Any] = cluster.story()
    return [(line["host"], one["kind"]) for line in lines for one in line["why"] if one["kind"] in CLAIMS]


@pytest.mark.parametrize("term", [1000, LARGEST])
def test_a_voter_that_claims_a_newer_term_and_to_coordinate_is_obeyed_by_nobody(voting: Cluster, term: int) -> None:
    before = {task: voting.entry(task)["pid"] for task in ("ps:0", "chief:0")}
    with lying(voting, "c", term):
        end = time.monotonic() + ATTACKS_S
        while time.monotonic() < end:
            time.sleep(0.5)
            assert ballot(voting, "a")["coordinator"] != "c"
            assert ballot(voting, "b")["coordinator"] != "c"
        eventually(lambda: {kind for _, kind in claims(voting)} & CLAIMS, 30, "the claims to be recorded")
        assert {host for host, _ in claims(voting)} == {"c"}
        assert len(claims(voting)) <= len(CLAIMS), "once of each kind"
        eventually(lambda: any("c claims" in text for text in warnings_of(voting.view())), 30, "a warning")
        assert max(terms(voting).values()) < 30
        eventually(lambda: voting.view()["leased"] and voting.view()["hosts"]["a"]["connected"], 30, "the lease")
    for task in ("ps:0", "chief:0"):
        assert voting.entry(task)["state"] == "running", task
        assert voting.entry(task)["pid"] == before[task], task
    steps = {task: voting.entry(task)["step"] for task in ("ps:0", "chief:0")}
    eventually(lambda: all(voting.entry(task)["step"] != step for task, step in steps.items()), 30, "more steps")


def test_after_a_claim_of_the_largest_term_another_coordinator_is_elected(voting: Cluster) -> None:
    """The liar is repaired before the coordinator's host is lost: of three voters two have to be honest."""
    with lying(voting, "c", LARGEST):
        time.sleep(ATTACKS_S)
    host = voting.hosts["c"]
    voting.hosts["c"].begun(voting.specs["c"])
    host.ask("status")
    eventually(lambda: voting.view()["hosts"]["c"]["connected"], 60, "the genuine agent of c")
    voting.freeze_agent("b")
    eventually(lambda: elected(voting, "a", "c") not in (None, "b"), 60, "another coordinator")
    assert max(ballot(voting, name)["term"] for name in ("a", "c")) < 40
    assert set(PLACES.values()) == {"a", "b", "c"}


def test_what_a_former_coordinator_repeats_of_its_term_moves_nobody(voting: Cluster) -> None:
    """Its orders, its lease and its requests for votes, word for word as they were right before another was elected."""
    former = ballot(voting, "b")["term"]
    thaw = voting.freeze_agent("b")
    eventually(lambda: elected(voting, "a", "c") not in (None, "b"), 30, "another coordinator")
    thaw()
    eventually(lambda: elected(voting, "a", "b", "c") not in (None, "b"), 30, "agreement")
    before = {name: ballot(voting, name) for name in ("a", "c")}
    attempts = {task: voting.entry(task)["attempt"] for task in ("ps:0", "worker:0")}
    with lying(voting, "b", former, growth=0):
        end = time.monotonic() + ATTACKS_S
        while time.monotonic() < end:
            time.sleep(0.5)
            assert {name: ballot(voting, name)["coordinator"] for name in ("a", "c")} == {
                name: one["coordinator"] for name, one in before.items()
            }
        assert voting.view()["leased"]
        assert {name: ballot(voting, name)["term"] for name in ("a", "c")} == {
            name: one["term"] for name, one in before.items()
        }
        assert {task: voting.entry(task)["attempt"] for task in attempts} == attempts

"""Another host takes the coordinator's place: real supervisors and real links. tests/faults destroys its host."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.agent.coordinate.test_coordination import Cluster, cluster
from tests.agent.host import Fields
from tests.waiting import eventually

__all__ = ["cluster"]


@pytest.fixture
def voting(cluster: Cluster) -> Cluster:
    """Hosts a, b and c vote; b coordinates at first."""
    cluster.elect("b", "a", "c")
    cluster.up()
    eventually(cluster.running, what="the start")
    return cluster


def ballot(cluster: Cluster, name: str) -> Fields:
    path = cluster.hosts[name].run_directory(cluster.specs[name]) / "ballot.json"
    found: Fields = json.loads(path.read_text())
    return found


def elected(cluster: Cluster, *names: str) -> str | None:
    """The host on which these agree that it coordinates, and which has begun to."""
    known: set[Any] = {ballot(cluster, name)["coordinator"] for name in names}
    found = known.pop() if len(known) == 1 else None
    if found is None or not (cluster.hosts[found].run_directory(cluster.specs[found]) / "cluster.json").exists():
        return None
    cluster.leading = found
    return str(found)


def test_a_coordinator_whose_agent_is_killed_is_elected_again_at_once(voting: Cluster) -> None:
    voting.kill_agent("b")
    eventually(lambda: ballot(voting, "c")["term"] == 2 and ballot(voting, "c")["coordinator"] == "b", 10, "a new term")
    eventually(lambda: all(one["connected"] for one in voting.view()["hosts"].values()), 10, "every host")


def test_one_that_was_frozen_while_another_was_elected_follows_it(voting: Cluster) -> None:
    thaw = voting.freeze_agent("b")
    eventually(lambda: elected(voting, "a", "c") not in (None, "b"), 30, "another coordinator")
    thaw()
    eventually(lambda: elected(voting, "a", "b", "c") not in (None, "b"), 30, "agreement")
    eventually(lambda: voting.view()["hosts"]["b"]["connected"], 30, "the one that was frozen")
    assert voting.entry("chief:0")["attempt"] == 1
    time.sleep(2)
    history = voting.hosts[voting.leading].run_directory(voting.specs[voting.leading]) / "history.jsonl"
    assert history.read_text().count("it has connected again") <= 1, "its candidacy is over"


def test_agents_of_hosts_that_vote_leave_when_the_run_has_ended(cluster: Cluster) -> None:
    cluster.elect("b", "a", "c")
    cluster.up(seconds=8.0)
    eventually(lambda: cluster.view()["condition"]["type"] == "Succeeded", 60, "the end")
    eventually(cluster.all_ended, 60, "every agent to be gone")

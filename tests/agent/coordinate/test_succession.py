"""Another host takes the coordinator's place: real supervisors and real links. tests/faults destroys its host."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.checkpoints.test_repair import damaged_beside_a_sound_one, names
from tests.agent.coordinate.test_coordination import Cluster, cluster
from tests.agent.host import Fields, kill
from tests.reasons import reason_of, warnings_of
from tests.waiting import eventually

__all__ = ["cluster"]


@pytest.fixture
def voting(cluster: Cluster) -> Cluster:
    """Hosts a, b and c vote; b coordinates at first."""
    cluster.elect("b", "a", "c")
    cluster.up()
    eventually(cluster.running, 60, "the start")
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


def test_after_an_election_the_leads_host_sets_a_damaged_checkpoint_aside(cluster: Cluster, tmp_path: Path) -> None:
    """Without spares, so that no host has marked the directory as the lead's."""
    directory = damaged_beside_a_sound_one(tmp_path / "output")
    cluster.elect("b", "a", "c")
    cluster.up(checkpoint_dirs=[str(directory)])
    eventually(cluster.running, what="the start")
    thaw = cluster.freeze_agent("b")
    eventually(lambda: elected(cluster, "a", "c") not in (None, "b"), 60, "another coordinator")
    thaw()
    eventually(lambda: elected(cluster, "a", "b", "c") not in (None, "b"), 60, "agreement")
    eventually(lambda: cluster.view()["hosts"]["b"]["connected"], 60, "the lead's host")
    kill(cluster.entry("chief:0")["pid"])
    eventually(lambda: cluster.running(chief=2), 60, "the lead to train again")
    assert names(directory) == ["damaged", "model.ckpt-100.data-00000-of-00001", "model.ckpt-100.index"]
    [warning] = warnings_of(cluster.view())
    assert warning.startswith("checkpoint model.ckpt-200 is damaged")
    assert warning in [reason_of(line) for line in cluster.story() if line["kind"] == "decision"]
    assert cluster.view()["incidents"][-1]["back_to"] == 100

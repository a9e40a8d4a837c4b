"""`down` while a host is away: what its run leaves on the others ends the tasks there, and goes when that is done."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.agent.coordinate.test_coordination import PLACES, Cluster, cluster
from tests.agent.host import Fields
from tests.waiting import eventually

__all__ = ["cluster"]

PATIENCE_S = 60.0


def down(cluster: Cluster, *names: str) -> dict[str, Fields]:
    """As a controller does that reaches just these hosts; of each the answer."""
    how = {"by": "ada@laptop", "grace_s": 1, "reached": list(names)}
    return {name: cluster.hosts[name].ask("down", **how) for name in names}


def is_gone(directory: Path) -> bool:
    return not directory.exists()


def has_run(cluster: Cluster, name: str) -> bool:
    return cluster.hosts[name].run_directory(cluster.specs[name]).exists()


@pytest.mark.parametrize("away", ["c", "b"], ids=["a worker's host", "the coordinator's host"])
@pytest.mark.parametrize("voters", ["bac", ""], ids=["voters", "none"])
def test_host_that_was_away_during_down_is_ended_when_it_is_back(cluster: Cluster, away: str, voters: str) -> None:
    if voters:
        cluster.elect(*voters)
    cluster.up()
    eventually(cluster.running, what="the start")
    run = cluster.specs["a"]["run"]
    thaw = cluster.freeze_agent(away)
    others = [name for name in PLACES.values() if name != away]
    answers = down(cluster, *others)
    assert {name: answer["awaits"] for name, answer in answers.items()} == {name: {run: [away]} for name in others}
    waiting = [name for name in others if run in answers[name]["waits"]]
    assert waiting == (others if voters or away == "b" else ["b"]), "those to whom it listens"
    for name in waiting:
        directory = cluster.hosts[name].run_directory(cluster.specs[name])
        assert not (directory / "tasks").exists(), "its logs are gone"
        assert json.loads((directory / "awaited.json").read_text())["hosts"] == [away]
        status = cluster.hosts[name].ask("status")
        assert status["run"] is None, "it is no run any more"
    thaw()
    eventually(lambda: not cluster.hosts[away].processes(), PATIENCE_S, f"the end of {cluster.hosts[away].remains()}")
    eventually(cluster.all_ended, PATIENCE_S, "the end of every wait, also where the host has not asked")
    assert not any(has_run(cluster, name) for name in others)
    if voters:
        assert not has_run(cluster, away), "nothing is left there"
    assert next(iter(down(cluster, *PLACES.values()).values()))["awaits"] == {}
    assert cluster.all_ended()
    assert not any(has_run(cluster, name) for name in PLACES.values())


def test_wait_ends_when_a_newer_runs_agent_has_heard_that_the_host_has_left(cluster: Cluster) -> None:
    """The newer run has the port of b, and c has only b and a to ask."""
    cluster.elect("b", "a", "c")
    cluster.up()
    eventually(cluster.running, what="the start")
    earlier = dict(cluster.specs)
    thaw = cluster.freeze_agent("c")
    down(cluster, "a", "b")
    cluster.voters = []
    cluster.up(without="c")
    thaw()
    gone = cluster.hosts["c"].run_directory(earlier["c"])
    eventually(partial(is_gone, gone), PATIENCE_S, "the end of the earlier run on c")
    for name in ("a", "b"):
        directory = cluster.hosts[name].run_directory(earlier[name])
        eventually(partial(is_gone, directory), PATIENCE_S, f"the end of the wait on {name}")
    down(cluster, "a", "b", "c")


def test_down_that_reaches_everyone_leaves_nobody_waiting(cluster: Cluster) -> None:
    cluster.elect("b", "a", "c")
    cluster.up()
    eventually(cluster.running, what="the start")
    answers = down(cluster, "a", "b", "c")
    assert all(answer["awaits"] == {} for answer in answers.values())
    eventually(cluster.all_ended, what="every agent to be gone")
    assert not any(has_run(cluster, name) for name in PLACES.values())

"""A host that most others have left holds its tasks still until it is answered: real supervisors, links and signals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from dtctl.agent.host.processes import Process
from tests.agent.coordinate.test_coordination import Cluster, cluster
from tests.reasons import reason_of
from tests.waiting import eventually

__all__ = ["cluster"]

HOLD_S = 3.0
PATIENCE_S = 40.0
SILENT_S = 15.0
"""After this time an agent has given a silent connection up."""


@pytest.fixture
def voting(cluster: Cluster) -> Cluster:
    """Hosts a, b and c vote; b coordinates at first."""
    cluster.elect("b", "a", "c")
    cluster.up(hold_s=HOLD_S, grace_s=30.0)
    eventually(cluster.running, what="the start")
    return cluster


def is_frozen(pid: int) -> bool:
    process = Process.read(pid)
    return process is not None and process.frozen


def reasons(cluster: Cluster, task: str) -> list[str]:
    host, spec = cluster.of(task)
    lines = (host.run_directory(spec) / "events.jsonl").read_text().splitlines()
    return [reason_of(json.loads(line)) for line in lines]


def hold(voting: Cluster, task: str, others: str) -> tuple[int, list[Callable[[], None]]]:
    """The pid of the task, which is held because the agents of these hosts have gone silent; and what thaws them."""
    pid = int(voting.entry(task)["pid"])
    thaw = [voting.freeze_agent(name) for name in others]
    eventually(lambda: is_frozen(pid), PATIENCE_S, f"{task} to be held")
    assert voting.entry(task)["state"] == "running"
    eventually(lambda: voting.entry(task)["held"], what="its state")
    assert reason_of(voting.entry(task)).startswith("held still: the coordinator has not answered")
    return pid, thaw


@pytest.mark.parametrize(("task", "others"), [("worker:0", "ab"), ("chief:0", "ac")])
def test_task_of_a_host_without_a_majority_is_held_and_continues(voting: Cluster, task: str, others: str) -> None:
    pid, thaw = hold(voting, task, others)
    for one in thaw:
        one()
    eventually(lambda: not is_frozen(pid), PATIENCE_S, f"{task} to continue")
    host, spec = voting.of(task)
    steps = host.log(spec, task)
    eventually(lambda: host.log(spec, task) != steps, what="another step")
    eventually(lambda: not voting.entry(task)["held"], what="its state")
    assert (voting.entry(task)["attempt"], voting.entry(task)["pid"]) == (1, pid)
    assert reason_of(voting.entry(task)) == ""
    assert any("continues: the coordinator answers" in line for line in reasons(voting, task))


def test_held_task_of_a_run_that_has_ended_meanwhile_acts_no_more(voting: Cluster) -> None:
    host, spec = voting.of("worker:0")
    _, thaw = hold(voting, "worker:0", "ab")
    before = host.log(spec, "worker:0")
    time.sleep(SILENT_S)  # what is held for 30 s, as usual, has lost its connection
    how = {"by": "ada@laptop", "grace_s": None, "why": [{"kind": "makes_room"}]}
    for name, task in (("a", "ps:0"), ("b", "chief:0")):  # most voters know of the end before their agents run again
        voting.hosts[name].want(voting.specs[name], task, want="stop", ends_run=how)
    for one in thaw:
        one()
    eventually(lambda: voting.entry("worker:0")["state"] == "stopped", PATIENCE_S, "its end")
    assert voting.entry("worker:0")["exit"]["signal"] == 9
    assert host.log(spec, "worker:0") == before, "it has neither trained nor saved"


def test_next_agent_of_a_host_that_is_cut_off_holds_on(voting: Cluster) -> None:
    pid, thaw = hold(voting, "worker:0", "ab")
    host, spec = voting.of("worker:0")
    before = host.supervisor(spec)
    voting.kill_agent("c")
    eventually(lambda: host.supervisor(spec) not in (0, before), what="the next agent")
    time.sleep(2.0)
    assert is_frozen(pid)
    assert voting.entry("worker:0")["attempt"] == 1
    for one in thaw:
        one()
    eventually(lambda: not is_frozen(pid), PATIENCE_S, "it to continue")

"""A host on which a task fails again and again: left out, named, and remembered for the next run."""

from __future__ import annotations

import json

import pytest

from tests.desk import Desk, cluster_text
from tests.fleet.test_run import HOSTS, left
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

CLUSTER = cluster_text(
    jobs='{ps: {hosts: [gpu-1]}, worker: {hosts: "gpu-[2-4]"}}', recovery="{bad_host: 3, backoff: 100ms}"
)
SAID = (
    "worker:2 left out: the last 3 failures of the run were all on gpu-4 (dtctl undrain gpu-4 lets it take part again)"
)


def test_a_host_is_left_out_and_stays_out_of_the_next_run_until_it_is_undrained(user: Desk, fleet: Fleet) -> None:
    user.write_cluster(CLUSTER, hosts=HOSTS, only="worker:2", seconds=1.0, fail_attempts=99)
    user.dtctl("up")
    eventually(lambda: SAID in user.dtctl("status"), what="the host to be left out")
    assert user.states() == {"ps:0": "running", "worker:0": "running", "worker:1": "running", "worker:2": "pending"}
    run = user.status()["run"]
    problems = json.loads(user.dtctl("diagnose", "-o", "json"))["problems"]
    [finding] = [one for one in problems if one["signature"] == "bad_host"]
    assert (finding["hosts"], finding["remedies"][1].split("    ")[0]) == (["gpu-4"], "dtctl undrain gpu-4")
    assert SAID in user.dtctl("events")
    user.dtctl("stop")

    refused = user.run("up")
    assert (refused.returncode, f"gpu-4 was left out of run {run}" in refused.stderr) == (5, True), refused.stderr
    assert "dtctl undrain gpu-4 lets it take part again" in refused.stderr
    assert "dtctl up --allow-missing 1    continues without it" in refused.stderr
    assert left(fleet) == {}
    assert "gpu-4 takes part in the next run again" in user.run("undrain", "gpu-4").stderr
    user.write_cluster(CLUSTER, hosts=HOSTS)
    user.dtctl("up")
    assert set(user.states().values()) == {"running"}
    user.dtctl("stop")


SPARED = cluster_text(
    jobs='{ps: {hosts: [gpu-1]}, worker: {hosts: "gpu-[2-3]"}}',
    recovery="{bad_host: 3, backoff: 100ms, replace: 50s}",
    spares="[gpu-4]",
)


def test_a_spare_takes_the_place_of_a_host_that_answers_and_on_which_a_task_fails(user: Desk, fleet: Fleet) -> None:
    user.write_cluster(SPARED, hosts=HOSTS, only="worker:1", seconds=1.0, fail_attempts=3)
    user.dtctl("up")
    eventually(lambda: "gpu-4 has taken the place of gpu-3" in user.dtctl("status"), 60, "the spare to take over")
    eventually(lambda: set(user.states().values()) == {"running"}, 60, "all tasks to run")
    assert "the last failures of the run were all on gpu-3: gpu-4 takes its tasks" in user.dtctl("events")
    assert "spares: gpu-3 ready, but drained" in user.dtctl("status")
    user.dtctl("undrain", "gpu-3")
    eventually(lambda: "spares: gpu-3 ready\n" in user.dtctl("status"), what="gpu-3 to be a spare")
    eventually(lambda: "takes part in no run" not in user.dtctl("status"), 30, what="the warning to go")
    user.dtctl("stop")
    user.dtctl("up")
    assert set(user.states().values()) == {"running"}
    user.dtctl("stop")


def refused(user: Desk, run: str) -> None:
    """`up` does not put the task on gpu-3, and says what to type."""
    again = user.run("up")
    assert (again.returncode, f"gpu-3 was left out of run {run}" in again.stderr) == (5, True), again.stderr
    assert "dtctl undrain gpu-3 lets it take part again" in again.stderr
    assert "dtctl replace gpu-3 gpu-4    starts its tasks on gpu-4, a spare" in again.stderr


def test_a_host_that_a_spare_has_replaced_is_remembered_until_it_is_undrained(user: Desk, fleet: Fleet) -> None:
    user.write_cluster(SPARED, hosts=HOSTS, only="worker:1", seconds=1.0, fail_attempts=3)
    user.dtctl("up")
    said = (
        "gpu-3 takes part in no run until dtctl undrain gpu-3: the last failures of the run were all on it, and gpu-4 "
        "has its tasks"
    )
    eventually(lambda: said in user.dtctl("status"), 60, "the spare to take over")
    run = user.status()["run"]
    user.dtctl("stop")
    assert said in user.dtctl("status")
    assert f"gpu-3 takes part in no run: the last failures of {run} were all on it" in user.run("plan").stderr

    refused(user, run)
    user.dtctl("down", "--yes")
    refused(user, run)
    assert left(fleet) == {}
    wrong = user.run("undrain", "gpu-33")
    assert (wrong.returncode, "gpu-33" in wrong.stderr) == (2, True), wrong.stderr
    assert "gpu-3 takes part in the next run again" in user.run("undrain", "gpu-3").stderr
    assert "takes part in no run" not in user.run("plan").stderr
    user.write_cluster(SPARED, hosts=HOSTS)
    user.dtctl("up")
    assert set(user.states().values()) == {"running"}
    user.dtctl("stop")

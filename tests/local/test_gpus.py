"""`dtctl gpus` as it is typed: before any run, and about the trainer that uses a GPU."""

from __future__ import annotations

import json
from pathlib import Path

from tests.desk import Desk, cluster_text
from tests.hosts.gpus import GB, Gpus, gpu
from tests.waiting import eventually

CLUSTER = cluster_text(jobs='{worker: {hosts: "node-[1-2]"}}', trainer="command: [sleep, '1000'], dialect: none")
HERE = "hosts:\n  node-[1-2]: {transport: local}\n"


def test_gpus_are_shown_without_a_run_and_a_trainer_by_its_task(home: Desk, tmp_path: Path) -> None:
    fake = Gpus(tmp_path, gpu(used=0), gpu(users={1: 30 * GB}))
    home.env |= fake.env
    home.write_cluster(CLUSTER.replace(", args: {args}", ""), hosts=HERE)
    shown = home.dtctl("gpus").splitlines()
    assert [line.split()[:2] for line in shown[1:-1]] == [[f"node-{n}", i] for n in "12" for i in "01"]
    assert shown[-1] == "2 of 4 GPUs are free"
    assert home.dtctl("gpus", "@node-1").splitlines()[-1] == "1 of 2 GPUs is free"
    assert home.dtctl("gpus", "-x", "@node-1").splitlines()[-1] == "1 of 2 GPUs is free"
    home.dtctl("up")
    run = home.status()["run"]
    pid = home.task("worker:1")["pid"]
    fake.are(gpu(used=0), gpu(users={pid: 30 * GB}))

    def user() -> bool:
        found = json.loads(home.dtctl("gpus", "-o", "json"))
        assert (found["free"], found["total"]) == (2, 4)
        (one,) = found["hosts"][1]["gpus"][1]["users"]
        return (one["run"], one["task"]) == (run, "worker:1")

    eventually(user, what="the task that uses the GPU")
    assert f"worker:1 of {run}" in home.dtctl("gpus", "worker:1")
    assert home.run("gpus", "@nowhere").returncode == 2

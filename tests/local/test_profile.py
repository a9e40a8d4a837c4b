"""`dtctl profile` of live trainers on this machine, as it is typed."""

from __future__ import annotations

import json

from tests.desk import Desk
from tests.local.test_report import CLUSTER
from tests.waiting import eventually

TRAINER = """\
import time
def read_batch():
    time.sleep(0.3)
def train():
    for step in range(100000):
        read_batch()
        print("step", step, flush=True)
train()
"""


def test_the_line_that_takes_the_time_is_shown_and_training_continues(home: Desk) -> None:
    (home.project / "train.py").write_text(TRAINER)
    home.write_cluster(CLUSTER)
    home.dtctl("up", "--local")

    def both() -> bool:
        return home.run("profile", "--seconds", "1").stdout.count("train.py:3 in read_batch") == 2

    eventually(both, 60, "the stacks of both")
    document = json.loads(home.dtctl("profile", "worker:1", "--seconds", "2", "-o", "json"))
    (task,) = document["tasks"]
    assert (task["task"], task["state"], task["missing"]) == ("worker:1", "running", None)
    assert task["places"][0]["function"] == "read_batch"
    assert task["noFile"] == "no_tensorflow"
    assert {each["restarts"] for each in home.status()["tasks"]} == {0}
    home.dtctl("stop")
    ended = home.run("profile", "worker:0", "--seconds", "1")
    assert (ended.returncode, "no process of it is there" in ended.stdout) == (1, True)

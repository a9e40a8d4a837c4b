"""`dtctl metrics` of a run whose trainers write event files, and of one whose trainers write none."""

from __future__ import annotations

import csv
import json
import re
import shutil

from tests import event_files
from tests.desk import Desk, cluster_text
from tests.waiting import eventually, read_until

TRAINER = """\
import os, pathlib, sys, time
import event_files as events

place = pathlib.Path(sys.argv[1], "train")
place.mkdir(parents=True, exist_ok=True)
if os.environ["DTCTL_TASK"] == "worker:0":
    with open(place / "events.out.tfevents.1.host", "ab", buffering=0) as file:
        for step in range(1000):
            file.write(events.scalar(step, "loss", 1.0 / (step + 1)))
            time.sleep(0.02)
time.sleep(1000)
"""

CLUSTER = cluster_text(
    jobs='{worker: {hosts: "node-[1-2]"}}',
    dirs="{output: out}",
    trainer='command: [python, train.py, "{output_dir}"], dialect: none',
    grace="100ms",
)


def test_scalars_are_shown_in_every_form(home: Desk) -> None:
    shutil.copy(event_files.__file__, home.project / "event_files.py")
    (home.project / "train.py").write_text(TRAINER)
    home.write_cluster(CLUSTER)
    home.dtctl("up", "--local")
    rows = eventually(lambda: _rows(home), 60, "a scalar")
    assert rows[0][:2] == ["loss", "train"]
    assert len(rows) == 1, "both hosts tell the same directory"
    first = next(csv.DictReader(home.dtctl("metrics", "loss", "--csv").splitlines()))
    assert {**first, "time": ""} == {"step": "0", "time": "", "tag": "loss", "run": "train", "value": "1.0"}
    line = json.loads(home.dtctl("metrics", "--jsonl", "--points", "1"))
    assert (line["tag"], line["run"], line["host"]) == ("loss", "train", "node-1")
    (series,) = json.loads(home.dtctl("metrics", "-o", "json"))["series"]
    assert (series["max"], series["points"][0]["step"]) == (1.0, 0)
    drawn = home.dtctl("metrics", "--plot", "--log").splitlines()
    assert drawn[0].startswith("loss  train")
    assert any(re.search("[\u2801-\u28ff]", each) for each in drawn)
    with home.start("metrics", "--follow", "los*") as following:
        read_until(following.stdout, "loss step ")
        home.dtctl("stop")
        assert following.wait(60) == 0
    wrong = home.run("metrics", "accuracy")
    assert wrong.returncode == 2
    assert "there are loss" in wrong.stderr


def test_without_event_files_metrics_come_from_the_logs(home: Desk) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: any(task["step"] for task in home.status()["tasks"]), 60)
    done = home.run("metrics")
    assert done.returncode == 0
    assert re.search(r"^TASK +STEP +RATE +LOSS", done.stdout)
    assert re.search(r"^(ps|worker):[01] +[0-9]+", done.stdout, re.MULTILINE)
    assert "no event files below" in done.stderr
    assert "tf.summary.create_file_writer(DIR)" in done.stderr


def _rows(home: Desk) -> list[list[str]]:
    done = home.run("metrics")
    return [line.split() for line in done.stdout.splitlines()[1:]] if done.stdout.startswith("TAG") else []


def test_options_that_exclude_each_other_are_refused(home: Desk) -> None:
    assert "--csv and --plot exclude each other" in home.run("metrics", "--csv", "--plot").stderr
    assert "--follow and --plot exclude each other" in home.run("metrics", "-f", "--plot").stderr
    assert home.run("metrics", "--log").returncode == 2

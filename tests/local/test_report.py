"""`dtctl report` and goodput of a real run: a task is killed, restarted, and the run is stopped; in a browser, too."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dtctl.rooms.pages.report_page import page
from tests import event_files
from tests.desk import Desk, cluster_text
from tests.unit.report.reports import report
from tests.waiting import eventually, read_until


def test_goodput_and_report_of_a_run_with_a_restart(home: Desk) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: (home.task("worker:1")["step"] or 0) > 3, 60, "steps")
    os.kill(home.task("worker:1")["pid"], signal.SIGKILL)
    eventually(lambda: home.task("worker:1")["attempt"] == 2, 60, "another attempt")
    goodput: Any = eventually(lambda: _goodput_with_progress(home), 60, "progress that was kept")
    assert sum(goodput["seconds"].values()) == pytest.approx(goodput["elapsedSeconds"], abs=0.1)
    assert "goodput " in home.dtctl("status")
    home.dtctl("stop")
    assert "goodput " in home.dtctl("events")

    run = home.status()["run"]
    assert home.dtctl("report").startswith(f"{run}.html (")
    page = home.project / f"{run}.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text()
    assert "worker:1 on node-2: attempt 1 ended after" in text
    assert "killed by SIGKILL" in text
    assert "Linux" in text
    assert "went into steps that were" in text
    assert home.dtctl("report", "-O", f"{run}.html").startswith(run)
    refused = home.run("report", "-O", "cluster.yaml")
    assert refused.returncode == 2
    assert "not a report of dtctl" in refused.stderr
    assert (home.project / "cluster.yaml").read_text().startswith("name: demo")
    assert home.dtctl("report", "--format", "md", "-O", "-").startswith(f"# {run}")


def _goodput_with_progress(home: Desk) -> dict[str, Any] | None:
    goodput: dict[str, Any] | None = home.status()["goodput"]
    return goodput if goodput and goodput["seconds"]["kept"] > 0 else None


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_the_report_without_errors(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(report()), encoding="utf-8")
    shown_page = _shown(file, tmp_path)
    assert "CONSOLE" not in shown_page.stderr
    assert "&lt;script&gt;" in shown_page.stdout
    assert "<script" not in shown_page.stdout
    assert "<h2" in shown_page.stdout
    file.write_text(page(report()).replace("<main>", "<main><script>console.log('ran')</script>"), encoding="utf-8")
    shown_page = _shown(file, tmp_path)
    assert "'ran'" not in shown_page.stderr
    assert "Content Security Policy" in shown_page.stderr, "what would run is held up, and said"


def _shown(file: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *(f"--user-data-dir={home / 'browser'}", "--dump-dom", file.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


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

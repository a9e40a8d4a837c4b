"""examples/notebook/line.ipynb in a Jupyter kernel, with an event loop, where Ctrl-C is the kernel's interrupt."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import kernel
from tests.desk import Desk

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/notebook"


@pytest.fixture
def home(home: Desk) -> Desk:
    shutil.copytree(NOTEBOOK, home.project, dirs_exist_ok=True)
    return home


def shown(home: Desk, *cells: tuple[str, float | None]) -> list[str]:
    env = {**home.env, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""}
    done = subprocess.run(
        [sys.executable, kernel.__file__],
        input=json.dumps(cells),
        cwd=home.project,
        env=env,
        capture_output=True,
        text=True,
        timeout=kernel.PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_the_notebook_of_the_examples_runs_from_top_to_end(home: Desk) -> None:
    cells = json.loads((NOTEBOOK / "line.ipynb").read_text())["cells"]
    assert not any(one.get("outputs") for one in cells), "those of one machine on one day"
    code = [("".join(one["source"]), None) for one in cells if one["cell_type"] == "code"]
    loaded, started, followed, ended, several, losses, cleaned = shown(home, *code)
    assert loaded.startswith("line: 2 tasks on 2 hosts")
    assert "node-1: started" in started
    assert "worker:1 | step 200 loss" in followed
    assert "Succeeded, every worker finished, step 200 of 200" in ended
    assert several.count("dtctl.Run line-0.") == 3
    assert all(loss < 1 for loss in ast.literal_eval(losses).values())
    assert cleaned == ""
    assert home.processes() == {}


def test_an_interrupt_of_the_kernel_ends_the_wait_and_not_the_run(home: Desk) -> None:
    *_, waited, followed, outcome, stopped = shown(
        home,
        ("import dtctl", None),
        ('cluster = dtctl.load("cluster.yaml", {"trainer.args.train_steps": 100_000})', None),
        ("run = dtctl.up(cluster, local=True)", None),
        ("run.wait()", 1.5),
        ("for line in run.logs(follow=True): pass", 1.5),
        ("run.status().outcome.value", None),
        ("run.stop()", None),
    )
    assert (waited, followed) == ("KeyboardInterrupt", "KeyboardInterrupt")
    assert outcome == "'Running'"
    assert stopped == "('worker:0', 'worker:1')"

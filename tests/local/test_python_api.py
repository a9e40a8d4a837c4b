"""`import dtctl` as a script uses it: the same as the command line, without its output."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dtctl
from dtctl import errors
from dtctl.operations.history import Memory
from tests import event_files
from tests.desk import Desk, cluster_text
from tests.local.test_report import CLUSTER as WITH_SCALARS
from tests.local.test_report import TRAINER as WRITES_SCALARS
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


def examples(*, on_hosts: bool) -> str:
    """The examples of the page without the section that needs hosts, or those of that section."""
    page = (ROOT / "docs/python-api.md").read_text()
    before, _, rest = page.partition("## Data, hosts and checkpoints\n")
    there, _, after = rest.partition("\n## ")
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", there if on_hosts else before + after, re.M | re.S))


@pytest.fixture
def home(home: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk whose home and project this process uses."""
    for name in ("HOME", "PATH"):
        monkeypatch.setenv(name, home.env[name])
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "DTCTL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(home.project)
    return home


def test_a_run_from_its_start_to_its_end(home: Desk) -> None:
    home.write_cluster(until_file=str(home.project / "end"))
    cluster = dtctl.load(overrides={"grace": "3s"})
    assert cluster.tasks == {"ps:0": "node-1", "worker:0": "node-1", "worker:1": "node-2"}
    reported: list[dtctl.Progress] = []
    run = dtctl.up(cluster, local=True, progress=reported.append)
    assert {(one.host, one.phase) for one in reported} >= {("node-1", "started"), ("node-2", "started")}
    assert dtctl.up(cluster, local=True).id == run.id, "nothing has changed"
    running = run.status()
    assert (running.outcome, running.over, running.cause) == (dtctl.Outcome.RUNNING, False, None)
    assert running.tasks["worker:1"].state is dtctl.TaskState.RUNNING
    assert {line.task for line in run.logs("worker", lines=1)} == {"worker:0", "worker:1"}
    for wrong in ({"grep": "("}, {"lines": -1}, {"grep": "x", "errors": True}):
        with pytest.raises(errors.UsageError):
            run.logs(**wrong)
    with pytest.raises(errors.UsageError, match="no task worker:7"):
        run.logs("worker:7")
    with pytest.raises(TimeoutError, match=f"{run.id} has not ended within 0.1 s"):
        run.wait(timeout=0.1)
    lines = run.logs(follow=True, lines=1)
    assert str(next(lines)).startswith(("ps:0 | ps:0 ", "worker:0 | worker:0 ", "worker:1 | worker:1 "))
    lines.close()  # type: ignore[attr-defined]
    changes: list[dtctl.Status] = []
    (home.project / "end").touch()
    ended = dtctl.attach(cluster).wait(timeout=60, progress=changes.append)
    assert ended.succeeded
    assert ended.over
    assert changes[0].run == run.id
    assert "Succeeded" in home.dtctl("runs"), "and the command line knows of it"
    run.down()
    with pytest.raises(errors.DtctlError, match="no host knows"):
        run.status()


def test_the_examples_of_the_page_run_as_one_program(home: Desk) -> None:
    program = examples(on_hosts=False)
    shutil.copytree(ROOT / "examples/notebook", home.project, dirs_exist_ok=True)
    env = {**home.env, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=home.project, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for expected in (
        "worker:1 | step 200 loss",
        "Succeeded 200 0.0",
        "0.02 0.",
        "trainer.arg is not a key",
        "'--train_steps=200'",
        "node-1: started 0/0",
        "\n42\n",
        "('worker:1',)",
        "worker:1 on node-2 ",
        "{'name': ('line-0.02', 'line-0.1'), 'trainer.args.learning_rate': ('0.02', '0.1')}",
        "[('Succeeded', ",
        "\nTrue\n",
    ):
        assert expected in done.stdout


def test_metrics_and_checkpoints_are_values(home: Desk) -> None:
    shutil.copy(event_files.__file__, home.project / "event_files.py")
    saves = "(place.parent / 'model.keras').write_bytes(b'PK')\n"
    (home.project / "train.py").write_text(WRITES_SCALARS.replace("if os", f"{saves}if os"))
    home.write_cluster(WITH_SCALARS)
    run = dtctl.up(dtctl.load("cluster.yaml"), local=True)
    (series,) = eventually(lambda: run.metrics("los*"), 60, "a scalar")
    assert (series.tag, series.points[0].step, series.points[0].value) == ("loss", 0, 1.0)
    assert run.metrics("accuracy") == []
    (checkpoint,) = [one for one in run.checkpoints() if one.path.endswith("model.keras")][:1]
    assert not checkpoint.complete
    with pytest.raises(errors.DtctlError, match="is not complete"):
        run.pull(home.home / "best", "model.keras")
    assert checkpoint.problem
    assert run.stop("worker:1", grace=0.5) == ("worker:1",)
    assert run.stop() == ("worker:0",)


def test_concurrent_runs_within_a_running_event_loop(home: Desk) -> None:
    home.write_cluster(seconds=2)

    async def both() -> list[dtctl.Status]:
        clusters = [dtctl.load("cluster.yaml", {"name": name}) for name in ("demo", "other")]
        runs = [dtctl.up(clusters[0], local=True), await asyncio.to_thread(dtctl.up, clusters[1], local=True)]
        asked = await asyncio.gather(*(asyncio.to_thread(run.status) for run in runs * 4))
        assert {one.run for one in asked} == {run.id for run in runs}
        assert [dtctl.attach(one).id for one in clusters] == [run.id for run in runs], "each by its name"
        ends = await asyncio.gather(*(asyncio.to_thread(run.wait, 60) for run in runs))
        compared = home.dtctl("compare", *(run.id for run in runs))
        assert "Succeeded" in compared
        home.dtctl("report", "--run", runs[0].id, "--compare", runs[1].id, "-O", "page.html")
        assert runs[1].id in (home.project / "page.html").read_text()
        assert [line.split() for line in compared.splitlines() if line.startswith("name ")] == [
            ["name", "demo", "other"]
        ]
        await asyncio.gather(*(asyncio.to_thread(run.down) for run in runs))
        return ends

    assert all(one.succeeded for one in asyncio.run(both()))


def test_a_failed_start_raises_with_the_task_and_the_end_of_its_log(home: Desk) -> None:
    home.write_cluster(
        cluster_text(trainer="command: [sh, -c, 'echo unknown option --lr >&2; exit 2'], dialect: flags")
    )
    cluster = dtctl.load("cluster.yaml")
    with pytest.raises(errors.DtctlError, match=r"failed to start: \w+:\d on node-\d: exit code 2") as failed:
        dtctl.up(cluster, local=True)
    assert "unknown option --lr" in str(failed.value)
    assert dtctl.attach(cluster).status().outcome is dtctl.Outcome.FAILED


def test_a_progress_function_that_raises_cancels_the_start(home: Desk) -> None:
    home.write_cluster()
    cluster = dtctl.load("cluster.yaml")

    def refuse(progress: dtctl.Progress) -> None:
        if progress.phase == "prepared":
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        dtctl.up(cluster, local=True, progress=refuse)
    eventually(lambda: not home.processes())
    assert Memory().runs() == ()


def test_programs_of_a_file_are_refused_until_allowed(home: Desk) -> None:
    file = home.project / "cluster.yaml"
    file.write_text(
        "name: demo\nhosts: {here: {transport: local}}\njobs: {worker: {hosts: here}}\ntrainer: {command: [date]}\n"
    )
    with pytest.raises(errors.PreflightError, match="you have not allowed it") as refused:
        dtctl.up(dtctl.load(file))
    assert "worker on here: date" in str(refused.value)
    assert f"dtctl allow {file}" in str(refused.value)


def test_probable_mistakes_are_logged(home: Desk, caplog: pytest.LogCaptureFixture) -> None:
    (home.project / "train.py").write_text("import time; time.sleep(1000)")
    (home.project / "env").write_text("")
    (home.project / "env").chmod(0o644)
    Path("cluster.yaml").write_text(
        "name: demo\nhosts: {node-1: }\njobs: {worker: {hosts: node-1}}\n"
        "trainer: {command: [python, train.py], env_file: env}\ngrace: 100ms\n"
    )
    cluster = dtctl.load()
    with caplog.at_level(logging.WARNING, "dtctl"):
        began = time.time()
        run = dtctl.up(cluster, local=True)
    assert "can be read by other users" in caplog.text
    assert run.status().started >= began - 1
    run.down()

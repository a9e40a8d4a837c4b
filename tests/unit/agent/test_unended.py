"""What a host has to wait for in a run that has ended while others gave no answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate.view import first_view
from dtctl.agent.host import paths, processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Process
from dtctl.agent.records.whole_run import Awaited
from dtctl.agent.requests import runs, unended
from dtctl.agent.run import intents
from dtctl.agent.run.runfiles import RunFiles
from tests.unit.agent.coordinate.slots import on, with_spares

NOW = time.time()
SPEC = on(with_spares("async-ps", {"ps:0": "a", "chief:0": "b", "worker:0": "c"}, "s", run="demo-1"), "a")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    files = RunFiles(str(tmp_path / "runs" / "demo-1" / "a"))
    files.begin(files.stage(SPEC, {}, {}, made(Process, **processes.myself())), SPEC)
    return runs.Run(None, files.directory)  # type: ignore[arg-type]


def finish(run: Any) -> None:
    run.finish()


def test_agent_that_was_never_sent_the_end_awaits_every_other_host(run: Any) -> None:
    known = unended.awaited(run, NOW)
    assert known is not None
    assert set(known["hosts"]) == {"b", "c", "s"}
    assert unended.left(run, known, ["a", "c", "s"]) == ["b"]
    assert unended.left(run, known, ["a", "b", "c", "s"]) == []


def test_agent_that_was_sent_the_end_awaits_whom_the_coordinator_named(run: Any) -> None:
    finish(run)
    assert unended.awaited(run, NOW) is None
    run.files.write_awaited(made(Awaited, since=NOW - 100.0, hosts=["c"]))
    known = unended.awaited(run, NOW)
    assert known is not None
    assert known["hosts"] == ["c"]


def test_nobody_is_awaited_for_longer_than_a_day(run: Any) -> None:
    run.files.write_awaited(made(Awaited, since=NOW - intents.AWAIT_S - 1.0, hosts=["c"]))
    assert unended.awaited(run, NOW) is None


def test_coordinator_awaits_hosts_with_tasks_whose_end_it_has_not_heard(run: Any) -> None:
    view = first_view(SPEC, NOW)
    view["hosts"]["b"].update({"over": True})
    paths.write_text(run.files.path("cluster.json"), json.dumps(view))
    known = unended.awaited(run, NOW)
    assert known is not None
    assert known["hosts"] == ["c"], "b has ended, and s has no task"


def test_the_wait_that_a_newer_run_takes_over_is_not_forgotten(run: Any) -> None:
    unended.note_taken_over(run)
    run.finish()
    assert unended.awaited(run, NOW) is not None


@pytest.mark.parametrize(
    ("voters", "coordinator", "waits_for"),
    [
        (["a", "b", "c"], "b", ["b", "c"]),
        (["b", "c", "s"], "b", []),
        ([], "b", ["b"]),
        ([], "a", ["b", "c"]),
        ([], "s", []),
    ],
)
def test_a_host_waits_for_those_that_listen_to_it(
    run: Any, voters: list[str], coordinator: str, waits_for: list[str]
) -> None:
    run.spec["voters"] = [{"host": host, "address": f"{host}:1", "port": 1} for host in voters]
    run.spec["coordinator"] = {"host": coordinator, "address": f"{coordinator}:1", "port": 1}
    assert unended.waits_for(run, ["b", "c"]) == waits_for

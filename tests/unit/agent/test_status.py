"""The status of a host's tasks whose exits cannot be written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.agent.host import paths, processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry
from dtctl.agent.requests import status

ME = processes.myself()
LIVE = {"pid": ME["pid"], "start_time": ME["start_time"]}
GONE = {"pid": 2**22, "start_time": 1}
OLD_S = 100.0


@pytest.mark.parametrize(
    ("process", "left", "age_s", "probes", "unwritten"),
    [
        (LIVE, [], OLD_S, 0, False),
        (GONE, [{"pid": 8}], OLD_S, 0, False),
        (GONE, [], 0.0, 0, False),
        (GONE, [], OLD_S, 1, True),
    ],
    ids=["it runs", "a process is left", "the state was just written", "it has ended"],
)
def test_disk_is_probed_only_if_an_ended_task_is_recorded_as_running(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    process: dict[str, int],
    left: list[Any],
    age_s: float,
    probes: int,
    unwritten: bool,
) -> None:
    path = tmp_path / "state.json"
    path.touch()
    os.utime(path, (time.time() - age_s,) * 2)
    probed: list[str] = []

    def has_room(path: str) -> bool:
        probed.append(path)
        return False

    monkeypatch.setattr(paths, "has_room", has_room)
    state = {"tasks": {"worker:0": made(Entry, state="running", **process)}}
    run: Any = SimpleNamespace(
        state=lambda: state,
        files=SimpleNamespace(state_path=str(path)),
        survivors=lambda tasks: left,
        spec={"host": "h1"},
    )
    assert status._state(run)["tasks"]["worker:0"]["unwritten"] is unwritten
    assert len(probed) == probes

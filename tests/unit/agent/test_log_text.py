"""Which lines of a log a person needs, and what a line that redraws itself ends as."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from dtctl.agent.records.spec import TaskSpec
from dtctl.agent.run.cause import cause
from dtctl.agent.run.log_text import is_start_up, redrawn
from dtctl.agent.vitals import gpus

LINES = [
    line.split("\t", 1)
    for line in (Path(__file__).parent / "data" / "start_up.txt").read_text().splitlines()
    if not line.startswith("#")
]
IS_START_UP = {"always": (True, True), "without": (True, False), "other": (False, False)}
"""Where the program is to use no GPU, and where it is to use some."""


@pytest.mark.parametrize(("kind", "line"), LINES)
def test_what_tensorflow_writes_at_each_start_is_recognised(kind: str, line: str) -> None:
    found = is_start_up(line, without_gpus=True), is_start_up(line, without_gpus=False)
    assert found == IS_START_UP[kind]


BAR = " 1/40 [....] - loss: 2.05"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"\r{BAR}{len(BAR) * chr(8)}\r40/40 [====] - loss: 1.69", "40/40 [====] - loss: 1.69"),
        (f"\r{BAR}{len(BAR) * chr(8)}\r", BAR),
        (f"\r{BAR}{len(BAR) * chr(8)}", BAR),
        ("Progress: 50%\b\b\b51%", "Progress: 51%"),
        ("abc\b\b\b\b\bx", "xbc"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_a_line_that_redraws_itself_ends_as_a_terminal_shows_it(line: str, shown: str) -> None:
    assert redrawn(line) == shown


def test_a_cause_is_read_from_a_line_behind_a_progress_bar() -> None:
    assert cause(f"{BAR}{len(BAR) * chr(8)}ValueError: bad{' ' * len(BAR)}\n") == "ValueError: bad"


@pytest.mark.parametrize(
    ("env", "drivers", "none"),
    [
        ({}, (), True),
        ({}, ("/dev/null",), False),
        ({"CUDA_VISIBLE_DEVICES": ""}, ("/dev/null",), True),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ("/dev/null",), True),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, (), False),
    ],
)
def test_a_task_is_to_use_no_gpu_where_there_is_none_or_it_may_use_none(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], drivers: tuple[str, ...], none: bool
) -> None:
    monkeypatch.setattr(gpus, "_DRIVERS", drivers)
    assert gpus.to_use_none(cast("TaskSpec", {"env": env})) is none

"""What is told of hosts while a run is followed: those that go away together in one entry, each once."""

from __future__ import annotations

import pytest

from dtctl.errors import TransportError
from dtctl.operations.client.streams import Away, Back
from dtctl.render.logs import TOGETHER_S, Narrator


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def away(host: str) -> Away:
    return Away(host, TransportError(f"{host} ({host}:22) does not answer", shared_summary="no answer"))


def test_hosts_that_go_away_together_are_one_entry(capsys: pytest.CaptureFixture[str]) -> None:
    narrate = Narrator("gpu-1", None)
    for number in range(2, 12):
        narrate(away(f"gpu-{number}"))
        narrate(away(f"gpu-{number}"))
    assert capsys.readouterr().err == ""
    narrate(None)
    assert capsys.readouterr().err == "error: gpu-[2-11]: no answer\n"
    narrate(None)
    assert capsys.readouterr().err == "", "once"


def test_nobody_waits_long_to_be_told_where_something_comes_all_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    narrate = Narrator("gpu-1", None, clock)
    narrate(away("gpu-2"))
    clock.now += TOGETHER_S
    narrate(away("gpu-3"))
    assert capsys.readouterr().err == "error: gpu-2 (gpu-2:22) does not answer\n"
    narrate.tell_away()
    assert capsys.readouterr().err == "error: gpu-3 (gpu-3:22) does not answer\n"


def test_one_that_is_back_was_away_before(capsys: pytest.CaptureFixture[str]) -> None:
    narrate = Narrator("gpu-1", None)
    narrate(away("gpu-2"))
    narrate(Back("gpu-2"))
    assert capsys.readouterr().err.splitlines() == [
        "error: gpu-2 (gpu-2:22) does not answer",
        "gpu-2 can be reached again",
    ]


def test_the_coordinators_absence_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Narrator("gpu-1", None)(away("gpu-1"))
    assert capsys.readouterr().err.splitlines() == [
        "error: gpu-1 (gpu-1:22) does not answer",
        "the run continues without it; trying again",
    ]

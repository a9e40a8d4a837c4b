"""The line that moves until `dtctl tensorboard` has an address."""

from __future__ import annotations

import itertools
import time

import pytest

from dtctl.render.terminal import console, moving
from dtctl.rooms.tensorboard import Location
from dtctl.rooms.tensorboard.screen import beginning
from tests.waiting import eventually

WAITING = "waiting for TensorBoard on gpu-1"


def test_the_line_counts_seconds_and_is_erased_when_the_address_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr(moving, "REDRAWN_S", 0.01)
    seconds = itertools.count()
    shown: list[str] = []

    def drawn() -> bool:
        shown.append(capsys.readouterr().err)
        return f"{WAITING} (3 s)" in "".join(shown)

    with beginning(Location("gpu-1", "one_host"), clock=lambda: float(next(seconds))):
        eventually(drawn, what="the third second")
    shown.append(capsys.readouterr().err)
    written = "".join(shown)
    assert written.endswith("\r\x1b[2K"), "nothing of it is left below the address"
    assert "(1 s)" in written


def test_a_pipe_has_no_moving_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "interactive", lambda: False)
    monkeypatch.setattr(moving, "REDRAWN_S", 0.01)
    with beginning(Location(None, "asked")):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""

"""The line that says whom a command on many hosts still waits for, and what is written above it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.errors import TransportError
from dtctl.model import Host, Local
from dtctl.operations.client.conversation import Progress
from dtctl.render import awaiting
from dtctl.render.awaiting import Awaiting, awaiting_line, dialling, dialling_line
from dtctl.render.terminal import console
from dtctl.render.terminal import moving as module
from dtctl.render.terminal.moving import LastLine, moving, still
from dtctl.transport.connect import Transports
from tests.waiting import eventually


def hosts(*numbers: int, waited_s: float = 10.0) -> dict[str, float]:
    return {f"@gpu-{number}": waited_s for number in numbers}


def test_it_counts_and_names_who_is_waited_for_and_how_long() -> None:
    assert awaiting_line(7, 9, hosts(3, 4), 80) == "7 of 9 done; waiting for @gpu-[3-4], 10 s"


def test_who_has_just_been_begun_is_not_waited_for() -> None:
    assert awaiting_line(2, 9, {**hosts(3), **hosts(5, 6, waited_s=0.5)}, 80) == "2 of 9 done; waiting for @gpu-3, 10 s"
    assert awaiting_line(2, 9, hosts(5, 6, waited_s=0.5), 80) == "2 of 9 done"


def test_of_more_than_fit_those_that_took_longest_are_named() -> None:
    """The names of thirty hosts here and there are longer than a narrow terminal."""
    waits = {f"@gpu-{number}": 10.0 + number for number in range(1, 60, 2)}
    line = awaiting_line(270, 300, waits, 60)
    assert len(line) <= 60
    assert line.startswith("270 of 300 done; waiting for @gpu-[")
    assert line.endswith(" more, 69 s")
    assert ",59] and " in line
    assert len(awaiting_line(270, 300, waits, 20)) == 20


def test_done_places_are_counted_however_they_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(awaiting, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(console, "columns", lambda: 80)
    shown = Awaiting(3)
    for place in ("@a", "@b"):
        shown(Progress(place, "connect"))
    assert shown._now() == "", "it has only begun"
    now = 105.0
    shown(Progress("@a", "done"))
    shown(Progress("@c", "connect"))
    assert shown._now() == "1 of 3 done; waiting for @b, 5 s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Both streams of a command are this one."""
    screen = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", screen)
        patch.setattr("sys.stderr", screen)
        patch.setattr(module, "_drawn", False)
        yield screen
        assert not module._drawn, "it is erased in the end"


def seen(screen: Terminal) -> list[str]:
    """What stands on the screen after all that was written: an erased line is empty again."""
    return [line.rpartition("\r\x1b[2K")[2] for line in screen.getvalue().split("\n")]


def test_what_is_written_stands_above_the_line() -> None:
    with terminal() as screen:
        line = LastLine(lambda: "1 of 2 done")
        line.draw()
        assert seen(screen) == ["1 of 2 done"]
        console.say("worker:0 | step 1")
        console.report("waiting for gpu-3")
        assert seen(screen) == ["worker:0 | step 1", "waiting for gpu-3", ""]
        line.draw()
        line.draw()
        assert seen(screen)[2:] == ["1 of 2 done"]
        line.stop()
        assert seen(screen) == ["worker:0 | step 1", "waiting for gpu-3", ""]


def test_a_line_that_says_nothing_is_not_drawn() -> None:
    with terminal() as screen:
        LastLine(lambda: "").draw()
        assert screen.getvalue() == ""


def test_names_from_outside_move_no_cursor() -> None:
    with terminal() as screen:
        line = LastLine(lambda: "waiting for \x1b[1Agpu")
        line.draw()
        assert seen(screen) == ["waiting for \\x1b[1Agpu"]
        line.stop()


def test_a_line_is_drawn_again_and_again_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REDRAWN_S", 0.001)
    with terminal() as screen:
        words = iter(range(1_000_000))
        with moving(LastLine(lambda: f"{next(words)} done")):
            eventually(lambda: "3 done" in screen.getvalue())
            with still():
                written = screen.getvalue()
                assert seen(screen) == [""], "a question may stand there"
            eventually(lambda: len(screen.getvalue()) > len(written))
        assert seen(screen) == [""]


def test_a_command_that_shows_nothing_yet_shows_whom_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REDRAWN_S", 0.001)
    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr(console, "columns", lambda: 80)
    with terminal() as screen:
        with dialling(lambda: hosts(3, 4)):
            eventually(lambda: "waiting for @gpu-[3-4] to connect, 10 s" in screen.getvalue())
        assert seen(screen) == [""]


def test_a_host_that_has_failed_is_shown_while_others_are_waited_for() -> None:
    failed = {"gpu-1": TransportError("cannot connect to gpu-1: connection refused")}
    line = dialling_line({"gpu-2": 12.0}, failed, 80)
    assert line == "cannot connect to gpu-1: connection refused; waiting for gpu-2 to connect, 12 s"
    assert dialling_line({}, failed, 80) == ""
    assert dialling_line({"gpu-1": 12.0}, failed, 80) == "waiting for gpu-1 to connect, 12 s", "it is tried again"
    more = dialling_line({"gpu-2": 12.0}, {**failed, "gpu-3": TransportError("down")}, 60)
    assert more == "cannot connect to gpu-1: connection refused and 1 more; waiting for gpu-2"[:60]


def test_hosts_count_as_dialled_until_they_are_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    transports = Transports()
    during: list[dict[str, float]] = []

    class Opening:
        def open(self, host: Host) -> Any:
            during.append(transports.dialled())
            if host.name == "b":
                raise TransportError("b is down")

    monkeypatch.setattr(transports, "_transport", lambda name: Opening())
    transports.open(Host("a", Local()))
    with pytest.raises(TransportError):
        transports.open(Host("b", Local()))
    assert [list(each) for each in during] == [["a"], ["b"]]
    assert transports.dialled() == {}
    assert list(transports.failed()) == ["b"]


def test_off_a_terminal_a_failed_host_is_shown_once_while_others_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(awaiting, "LOOKED_EVERY_S", 0.001)
    shown: list[str] = []
    monkeypatch.setattr(awaiting, "note", shown.append)
    asked: list[object] = []
    failed = {"gpu-1": TransportError("gpu-1 (10.0.0.1:22) refuses connections")}

    def waits() -> dict[str, float]:
        asked.append(None)
        return {"gpu-2": 12.0}

    with dialling(waits):
        eventually(lambda: len(asked) > 3)
    assert shown == []
    asked.clear()
    with dialling(waits, lambda: failed):
        eventually(lambda: len(asked) > 3)
    assert shown == ["gpu-1 (10.0.0.1:22) refuses connections; waiting for gpu-2 to connect, 12 s"]

"""Bars of many hosts, and the line with the hosts that a command still waits for."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console

from dtctl.agent.records.answers import Departing
from dtctl.agent.records.values import StopPhase
from dtctl.errors import DtctlError, TransportError
from dtctl.model import Host, Local, TaskId
from dtctl.operations.client import Progress, reporting_failure
from dtctl.operations.logs import LogLines
from dtctl.operations.stop import Stopping
from dtctl.render import awaiting, progress
from dtctl.render.awaiting import Awaiting, awaiting_line, dialling, dialling_line
from dtctl.render.logs import REMEMBERED, START_UP_LEFT_OUT, LogPrinter
from dtctl.render.progress import MOST_LINES, StopProgress, UpProgress, stopping_line
from dtctl.render.terminal import console
from dtctl.render.terminal import moving as module
from dtctl.render.terminal.moving import LastLine, moving, still
from dtctl.transport.connect import Transports
from tests.unit.tasks import log_lines_of
from tests.waiting import PATIENCE_S, eventually

HOSTS = [f"gpu-{number}" for number in range(1, 31)]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The output on a terminal of 100 columns."""
    made = io.StringIO()
    terminal = Console(file=made, force_terminal=True, width=100)
    monkeypatch.setattr(console, "err", lambda: terminal)
    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr(console, "columns", lambda: 100)
    return made


def drawn(shown: UpProgress, written: io.StringIO) -> str:
    assert shown._bars is not None
    written.truncate(0)
    shown._bars.refresh()
    return written.getvalue()


def tell(shown: UpProgress, phase: str, hosts: list[str]) -> None:
    for host in hosts:
        shown(Progress(host, phase))


def test_the_next_host_gets_the_row_of_a_finished_one(written: io.StringIO) -> None:
    with UpProgress(HOSTS) as shown:
        tell(shown, "send", HOSTS)
        assert list(shown._rows) == HOSTS[: progress._SHOWN_HOSTS]
        tell(shown, "prepared", HOSTS[:25])
        assert list(shown._rows) == HOSTS[25:]
        assert "25 of 30 hosts ready" in drawn(shown, written)


def test_failed_hosts_are_counted_without_a_row(written: io.StringIO) -> None:
    with UpProgress(HOSTS) as shown:
        tell(shown, "connect", HOSTS)
        tell(shown, "failed", HOSTS[:3])
        tell(shown, "send", HOSTS[3:5])
        assert list(shown._rows) == HOSTS[3:5]
        assert "0 of 30 hosts ready, 3 failed" in drawn(shown, written)


def test_unreachable_hosts_are_one_line(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    with UpProgress(HOSTS) as shown:
        tell(shown, "connect", HOSTS)
        tell(shown, "prepared", HOSTS[4:])
        assert "to connect" not in drawn(shown, written), "they have only been called"
        now += 9
        assert "connecting to gpu-[1-4] (9 s)" in drawn(shown, written)
        tell(shown, "failed", HOSTS[:4])
        assert "to connect" not in drawn(shown, written)


def test_the_error_that_ends_the_work_for_a_host_is_shown() -> None:
    reports: list[Progress] = []

    def work(host: Host) -> str:
        if host.name == "gpu-2":
            raise TransportError("no answer")
        return host.name

    watched = reporting_failure(work, reports.append)
    assert watched(Host("gpu-1", Local())) == "gpu-1"
    with pytest.raises(DtctlError):
        watched(Host("gpu-2", Local()))
    assert reports == [Progress("gpu-2", "failed")]


PS, W0, W1 = TaskId("ps", 0), TaskId("worker", 0), TaskId("worker", 1)


def leaving(way: StopPhase, for_s: float | None = None, signal: int | None = None) -> Departing:
    return {"way": way, "for_s": for_s, "signal": signal}


@pytest.mark.parametrize(
    ("line", "tasks"),
    [
        ("", {}),
        ("worker:0, worker:1 saving, 12 s of 30 s", {W0: leaving("saving", 12.2), W1: leaving("saving", 11.0)}),
        ("worker:0 saving", {W0: leaving("saving")}),
        (
            "1 of 3 ended; worker:1 saving, 3 s of 30 s; ps:0 to be ended after them",
            {PS: leaving("waits"), W0: leaving("ended", 2.0, None), W1: leaving("saving", 3.0)},
        ),
        ("2 of 2 ended; worker:1: SIGKILL after 30 s", {W0: leaving("ended", 2.0, 15), W1: leaving("ended", 30.1, 9)}),
        ("worker:1: still there after SIGKILL; ps:0 to be ended", {PS: leaving("waits"), W1: leaving("killed", 31.0)}),
        ("worker:0 unreachable", {W0: leaving("away")}),
        ("worker:[0-5] saving, 1 s of 30 s", {TaskId("worker", n): leaving("saving", 1.0) for n in range(6)}),
    ],
)
def test_the_line_names_saving_tasks_and_ends(line: str, tasks: dict[TaskId, Departing]) -> None:
    assert stopping_line(tasks, 30.0) == line


def test_off_a_terminal_each_change_is_a_line_and_no_line_comes_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with StopProgress() as progress:
        assert not progress.acknowledged
        progress(Stopping(30.0, {W0: leaving("saving", 1.0), W1: leaving("saving", 1.0)}))
        progress(Stopping(30.0, {W0: leaving("saving", 1.0)}))
        progress(Stopping(30.0, {W0: leaving("ended", 4.0)}))
        assert progress.acknowledged
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["worker:0, worker:1 saving, 1 s of 30 s", "1 of 2 ended; worker:1 saving, 1 s of 30 s"]


def test_the_lines_are_bounded_and_none_is_shown_where_programs_read(capsys: pytest.CaptureFixture[str]) -> None:
    with StopProgress(quiet=True) as quiet, StopProgress() as progress:
        for number in range(2 * MOST_LINES):
            for each in (quiet, progress):
                each(Stopping(30.0, {TaskId("worker", number): leaving("saving", 1.0)}))
    assert len(capsys.readouterr().err.splitlines()) == MOST_LINES


class Drawn:
    """A display that records whether it is being drawn."""

    moves = False

    def start(self) -> None:
        self.moves = True

    def stop(self) -> None:
        self.moves = False


def test_displays_pause_during_a_prompt() -> None:
    display = Drawn()
    with moving(display):
        assert display.moves
        with still():
            assert not display.moves
            with still():
                assert not display.moves
            assert not display.moves
        assert display.moves
    assert not display.moves


def test_a_display_that_begins_during_a_prompt_is_not_drawn() -> None:
    display = Drawn()
    with still(), moving(display):
        assert not display.moves
    with still():
        pass
    assert not display.moves, "it has ended"


def test_a_display_restarted_after_a_prompt_erases_nothing_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=80)
    monkeypatch.setattr(console, "err", lambda: terminal)
    monkeypatch.setattr(console, "interactive", lambda: True)
    with UpProgress(["a", "b", "c"]) as progress:
        for host in ("a", "b", "c"):
            progress(Progress(host, "connect"))
        assert progress._bars is not None
        progress._bars.refresh()
        with still():
            assert written.getvalue().count("\x1b[1A"), "its own log_of are gone"
            written.truncate(0)
            terminal.print("Passphrase: ")
        progress._bars.refresh()
        above, _, _ = written.getvalue().partition("0 of 3 hosts ready")
        assert "Passphrase" in above
        assert "\x1b[1A" not in above, "the cursor goes up"


def test_an_interrupted_prompt_remains_on_the_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(question: str, **_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise typer.Abort from None

    class Erasing(Drawn):
        def start(self) -> None:
            console.report("drawn")

    monkeypatch.setattr(typer, "confirm", interrupted)
    with moving(Erasing()), pytest.raises(KeyboardInterrupt):
        console.confirm("Stop it?")
    assert capsys.readouterr().err == "drawn\n\ndrawn\n"


def test_an_interrupt_does_not_wait_for_a_prompt_of_another_thread() -> None:
    """The main thread ends its display while another prompts for a passphrase."""
    asked, over = threading.Event(), threading.Event()

    def ask() -> None:
        with still():
            asked.set()
            over.wait(PATIENCE_S)

    display = Drawn()
    with moving(display):
        thread = threading.Thread(target=ask)
        thread.start()
        assert asked.wait(PATIENCE_S)
    over.set()
    thread.join()
    assert not display.moves


def log_of(task: TaskId, text: str) -> LogLines:
    return log_lines_of(str(task), text.encode())


def test_the_end_of_a_log_that_was_just_followed_is_known() -> None:
    printer = LogPrinter((W0, W1), prefix=True, timestamps=False)
    tail = ["Traceback (most recent call last):", '  File "x"', "ValueError: boom"]
    printer.print(log_of(W0, "step 1\n" + "\n".join(tail) + "\n\n"))
    printer.print(log_of(W1, "step 1\n"))
    assert printer.has_just_shown(W0, tail, tail)
    assert printer.has_just_shown(W0, [], [])
    assert not printer.has_just_shown(W1, tail, tail)
    assert not printer.has_just_shown(W0, ["another", *tail], tail)
    printer.print(log_of(W1, "more\n" * REMEMBERED))
    assert not printer.has_just_shown(W0, tail, tail), "it has scrolled away"


ONEDNN = "I0000 00:00:1795955499.925762    1100 port.cc:153] oneDNN custom operations are on. You may see\n"
NO_DRIVER = (
    "I0000 00:00:1795955499.926153    1100 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU\n"
)


@pytest.mark.parametrize(
    ("options", "without_gpus", "shown"),
    [
        ({}, True, "step 1\n"),
        ({}, False, f"{NO_DRIVER}step 1\n"),
        ({"raw": True}, True, f"{ONEDNN}{NO_DRIVER}step 1\n"),
        ({"found": True}, True, f"{ONEDNN}{NO_DRIVER}step 1\n"),
    ],
)
def test_what_tensorflow_writes_at_its_start_is_left_out_where_nothing_is_wrong(
    capfd: pytest.CaptureFixture[str], options: dict[str, bool], without_gpus: bool, shown: str
) -> None:
    printer = LogPrinter((W0,), prefix=False, timestamps=False, **options)
    data = f"{ONEDNN}{NO_DRIVER}step 1\n".encode()
    printer.print(log_lines_of(str(W0), data, without_gpus=without_gpus))
    printer.print(log_lines_of(str(W0), ONEDNN.encode() if not options else b""))
    assert capfd.readouterr().out == shown


def test_a_person_is_told_once_that_lines_of_the_start_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "on_terminal", lambda *, stderr=False: True)
    printer = LogPrinter((W0, W1), prefix=True, timestamps=False)
    printer.print(log_lines_of(str(W0), f"{ONEDNN}{ONEDNN}".encode()))
    printer.print(log_lines_of(str(W1), f"{ONEDNN}step 1\n".encode()))
    printer.print(log_lines_of(str(W0), f"{ONEDNN}step 3\n".encode()))
    assert capfd.readouterr().out == f"{START_UP_LEFT_OUT}\nworker:1 | step 1\nworker:0 | step 3\n"


class Stream(io.TextIOWrapper):
    """A screen in an encoding other than UTF-8."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "iso8859-15", "koi8-r"])
def test_output_does_not_fail_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", Stream(raw, encoding=encoding, write_through=True))
    console.show_whatever_comes()
    LogPrinter((W0,), prefix=True, timestamps=True).print(log_of(W0, "größe … — ✓ 中 \x1b[31mrot\x1b[0m\n"))
    shows: list[Callable[[], None]] = [lambda: console.say("größe ✓"), lambda: console.report("größe ✓")]
    for show in shows:
        show()
    with StopProgress() as progress:
        progress(Stopping(30.0, {W0: leaving("saving", 1.0)}))
    console.say("step 3 · loss 1…")
    shown = raw.getvalue().decode(encoding)
    assert shown.endswith(("step 3 - loss 1...\n", "step 3 · loss 1...\n", "step 3 · loss 1…\n"))
    assert r"\u2713" in shown
    assert "�" not in shown


def hosts(*numbers: int, waited_s: float = 10.0) -> dict[str, float]:
    return {f"@gpu-{number}": waited_s for number in numbers}


def test_awaited_hosts_are_counted_and_named_with_the_longest_wait() -> None:
    assert awaiting_line(7, 9, hosts(3, 4), 80) == "7 of 9 done; waiting for @gpu-[3-4] (10 s)"


def test_hosts_that_have_just_begun_are_not_shown_as_waiting() -> None:
    waits = {**hosts(3), **hosts(5, 6, waited_s=0.5)}
    assert awaiting_line(2, 9, waits, 80) == "2 of 9 done; waiting for @gpu-3 (10 s)"
    assert awaiting_line(2, 9, hosts(5, 6, waited_s=0.5), 80) == "2 of 9 done"


def test_only_the_longest_waits_are_named_on_a_narrow_terminal() -> None:
    """The names of thirty scattered hosts are longer than a narrow terminal."""
    waits = {f"@gpu-{number}": 10.0 + number for number in range(1, 60, 2)}
    line = awaiting_line(270, 300, waits, 60)
    assert len(line) <= 60
    assert line.startswith("270 of 300 done; waiting for @gpu-[")
    assert line.endswith(" more (69 s)")
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
    assert shown._now() == "1 of 3 done; waiting for @b (5 s)"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def terminal() -> Iterator[Terminal]:
    """A terminal for both streams of a command."""
    screen = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", screen)
        patch.setattr("sys.stderr", screen)
        patch.setattr(module, "_drawn", ())
        yield screen
        assert not module._drawn, "it is erased in the end"


def seen(screen: Terminal) -> list[str]:
    """The content of the screen after all output: an erased line is empty again."""
    return [line.rpartition("\r\x1b[2K")[2] for line in screen.getvalue().split("\n")]


def test_output_is_printed_above_the_progress_line() -> None:
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


def test_empty_line_is_not_drawn() -> None:
    with terminal() as screen:
        LastLine(lambda: "").draw()
        assert screen.getvalue() == ""


def test_names_from_outside_move_no_cursor() -> None:
    with terminal() as screen:
        line = LastLine(lambda: "waiting for \x1b[1Agpu")
        line.draw()
        assert seen(screen) == ["waiting for \\x1b[1Agpu"]
        line.stop()


def test_a_line_is_redrawn_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REDRAWN_S", 0.001)
    with terminal() as screen:
        numbers = iter(range(1_000_000))
        with moving(LastLine(lambda: f"{next(numbers)} done")):
            eventually(lambda: "3 done" in screen.getvalue())
            with still():
                written = screen.getvalue()
                assert seen(screen) == [""], "a question may stand there"
            eventually(lambda: len(screen.getvalue()) > len(written))
        assert seen(screen) == [""]


def test_silent_command_shows_the_hosts_that_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REDRAWN_S", 0.001)
    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr(console, "columns", lambda: 80)
    with terminal() as screen:
        with dialling(lambda: hosts(3, 4)):
            eventually(lambda: "connecting to @gpu-[3-4] (10 s)" in screen.getvalue())
        assert seen(screen) == [""]


def test_a_host_that_has_failed_is_shown_while_others_are_waited_for() -> None:
    failed = {"gpu-1": TransportError("cannot connect to gpu-1: connection refused")}
    line = dialling_line({"gpu-2": 12.0}, failed, 80)
    assert line == "cannot connect to gpu-1: connection refused; connecting to gpu-2 (12 s)"
    assert dialling_line({}, failed, 80) == ""
    assert dialling_line({"gpu-1": 12.0}, failed, 80) == "connecting to gpu-1 (12 s)", "it is tried again"
    more = dialling_line({"gpu-2": 12.0}, {**failed, "gpu-3": TransportError("down")}, 60)
    assert more == "cannot connect to gpu-1: connection refused and 1 more; connecting to gpu-2"[:60]


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
    assert shown == ["gpu-1 (10.0.0.1:22) refuses connections; connecting to gpu-2 (12 s)"]


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

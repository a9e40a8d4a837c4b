"""`dtctl top` on a real terminal: its screen, and that it restores the terminal after any end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.waiting import eventually

pytestmark = pytest.mark.nightly

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?<>=$]*[ -/]*[@-~]|[PX^_\]].*?(?:\x1b\\|\x07)|[ -/]*[0-~])", re.DOTALL)


class Terminal:
    """A terminal with a command. `seen`: its output, without sequences that move the cursor."""

    def __init__(self, desk: Desk, *args: str, columns: int = 80, rows: int = 24) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self._slave)
        self.raw = b""
        os.set_blocking(self._master, False)
        self.process = subprocess.Popen(
            desk.argv(*args),
            cwd=desk.project,
            env={**desk.env, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self._master)
        os.close(self._slave)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def forget(self) -> None:
        self._read()
        self.raw = b""

    @property
    def seen(self) -> str:
        self._read()
        return _ESCAPES.sub("", self.raw.decode("utf-8", "replace"))

    def shows(self, text: str) -> None:
        eventually(lambda: text in self.seen, what=f"{text!r} on the screen, which shows {self.seen[-2000:]!r}")

    def ended(self) -> int:
        def over() -> bool:
            self._read()  # otherwise it waits for a reader
            return self.process.poll() is not None

        eventually(over, what="the end of dtctl top")
        self._read()
        return self.process.returncode

    def is_as_before(self) -> bool:
        """Whether echo and line editing are restored, and the normal screen, a visible cursor and no mouse reports."""
        text = self.raw.decode("utf-8", "replace")
        left = [text.rfind(off) > text.rfind(on) for on, off in (("\x1b[?1049h", "\x1b[?1049l"),)]
        shown = text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
        mouse = all(text.rfind(f"\x1b[?{mode}h") <= text.rfind(f"\x1b[?{mode}l") for mode in (1000, 1003, 2004))
        return all(left) and shown and mouse and termios.tcgetattr(self._slave) == self.before

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._master, 65536):
                self.raw += data


@pytest.fixture
def trains(home: Desk) -> Desk:
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: home.task("worker:1")["step"], what="a step")
    return home


def test_top_shows_the_tasks_follows_a_log_and_ends_with_q(trains: Desk) -> None:
    with Terminal(trains, "top") as terminal:
        terminal.shows("worker:1")
        terminal.shows("running")
        terminal.press("/worker:1\r")
        terminal.shows("1 of 3 rows")
        terminal.forget()
        terminal.press("\r")
        terminal.shows("worker:1  log, following")
        terminal.forget()
        terminal.shows(" step ")
        terminal.press("q")
        terminal.shows("demo-")
        terminal.forget()
        terminal.resize(60, 10)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        terminal.shows("STATE")
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.is_as_before()


def by_ctrl_c(terminal: Terminal) -> None:
    terminal.press("\x03")


def by_interrupt(terminal: Terminal) -> None:
    terminal.process.send_signal(signal.SIGINT)


def by_terminate(terminal: Terminal) -> None:
    terminal.process.terminate()


@pytest.mark.parametrize(("end", "code"), [(by_ctrl_c, 130), (by_interrupt, 130), (by_terminate, 143)])
def test_the_terminal_is_restored_and_the_run_continues_after_any_end(
    trains: Desk, end: Callable[[Terminal], None], code: int
) -> None:
    with Terminal(trains, "top") as terminal:
        terminal.shows("worker:1")
        end(terminal)
        assert terminal.ended() == code
        assert terminal.is_as_before()
    assert trains.states()["worker:1"] == "running"


def test_an_error_is_shown_below_and_the_terminal_is_restored(home: Desk) -> None:
    home.write_cluster()
    with Terminal(home, "top") as terminal:
        assert terminal.ended() == 4
        assert "node-1" in terminal.seen
        assert "1049h" not in terminal.raw.decode(), "the screen has not been opened"
        assert termios.tcgetattr(terminal._slave) == terminal.before


def test_the_terminal_is_restored_after_a_bug_of_the_screen(trains: Desk, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import dtctl.rooms.top.page as page\n"
        "def wrong(*_, **__): raise ZeroDivisionError('a bug')\n"
        "page.answer = wrong\n"
    )
    trains.env["PYTHONPATH"] = f"{broken}:{trains.env.get('PYTHONPATH', '')}"
    with Terminal(trains, "top") as terminal:
        assert terminal.ended() == 1
        assert "a bug" in terminal.seen
        assert terminal.is_as_before()

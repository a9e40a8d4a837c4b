"""Passphrases typed at a real terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import PATIENCE_S, eventually

ASK = (
    "import sys, threading; from dtctl.transport.connect import terminal_passphrase\n"
    "ask = terminal_passphrase()\n"
    "thread = threading.Thread(target=lambda: print('got', ask('~/.ssh/k'), flush=True), daemon=True)\n"
    "try: thread.start(); thread.join()\n"
    "except KeyboardInterrupt: sys.exit(130)\n"
)


@contextmanager
def at_a_terminal(script: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Runs a script with a terminal of its own, but output to a pipe; gives our end of the terminal."""
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    takes_terminal = f"import os, fcntl, termios; fcntl.ioctl(os.open({name!r}, os.O_RDWR), termios.TIOCSCTTY)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", takes_terminal + script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield ours, process
    finally:
        process.kill()
        process.communicate()
        os.close(theirs)
        os.close(ours)


def echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def test_a_passphrase_is_read_from_the_terminal_without_echo() -> None:
    with at_a_terminal(ASK) as (terminal, process):
        assert os.read(terminal, 100) == b"Passphrase for ~/.ssh/k: "
        eventually(lambda: not echoes(terminal))
        os.write(terminal, b"open sesame\n")
        assert process.stdout is not None
        assert process.stdout.readline() == b"got open sesame\n"
        assert b"sesame" not in os.read(terminal, 100)
        assert echoes(terminal)


def test_an_interrupt_gives_the_terminal_back_its_echo() -> None:
    with at_a_terminal(ASK) as (terminal, process):
        os.read(terminal, 100)
        eventually(lambda: not echoes(terminal))
        os.write(terminal, b"\x03")
        assert process.wait(PATIENCE_S) == 130
        assert echoes(terminal)


def test_without_a_terminal_nobody_is_asked() -> None:
    script = "from dtctl.transport.connect import terminal_passphrase as t; print(t())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, start_new_session=True)
    assert done.stdout.strip() == "None"

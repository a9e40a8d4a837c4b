"""Asking the person at the terminal for the passphrase of a key."""

from __future__ import annotations

import atexit
import functools
import getpass
import os
import termios
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress


def terminal_passphrase(
    shown: Callable[[str], str] = str, still: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Callable[[str], str | None] | None:
    """For `Transports`: asks on the terminal, wherever input and output lead; None where there is no terminal.

    `shown` makes the key's path, which a cluster file may name, safe for it; nothing moves on the screen while `still`.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None

    def ask(path: str) -> str | None:
        with still():
            return _ask(shown(path))

    return ask


def _ask(path: str) -> str | None:
    _restore_terminal_at_exit()
    try:
        return getpass.getpass(f"Passphrase for {path}: ")
    except EOFError:
        return None


@functools.cache
def _restore_terminal_at_exit() -> None:
    """Connections are made by threads, so Ctrl-C ends the program while one still reads with the echo off."""
    with suppress(OSError, termios.error):
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        before = termios.tcgetattr(terminal)
        atexit.register(termios.tcsetattr, terminal, termios.TCSANOW, before)

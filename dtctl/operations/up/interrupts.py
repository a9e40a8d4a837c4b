"""Ctrl-C and SIGTERM while a run is started: when they have to wait, and what is certain about what they leave."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from dtctl.errors import DtctlError

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Left:
    """What an interrupted start has left."""

    run: str
    kept: bool
    """All has started, every host has been told to keep it, and it goes on."""
    started: bool
    """Hosts had been told to start."""
    unclear: tuple[str, ...] = ()
    """Hosts that were to take back what they had started, and did not say that they have."""
    ended: tuple[str, ...] = ()
    """Runs that were stopped to make room for this one."""
    unremembered: DtctlError | None = None
    """Why there is no record of the run on this machine."""


class Interrupted(KeyboardInterrupt):
    def __init__(self, left: Left) -> None:
        super().__init__()
        self.left = left


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait: a run that some hosts have been told to keep can no more be taken back by going away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {number: signal.signal(number, lambda got, _: held.append(got)) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for interrupt, action in before.items():
            signal.signal(interrupt, action)
        for number in held:
            signal.raise_signal(number)

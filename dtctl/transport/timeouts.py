"""How long to wait for a host, above all while it sends or reads nothing.

All limits of a conversation are here, so that tests with hanging hosts can shorten them in one place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dtctl.errors import TransportError

SILENCE_LIMIT_S = 30.0
"""The longest silence of a host; idle agents send a beat every five seconds."""

GREETING_TIMEOUT_S = 60.0
"""The time for a greeting. A host may be too busy to start Python soon; a host that is down fails much earlier."""

SHELL_TIMEOUT_S = 20.0
"""The time for the start-up files of a login shell, which take a few at the most, also on a busy host."""

PATIENCE_S = 120.0
"""The time for an answer without lengthy work; beats do not extend it."""

TOLD_AFTER_S = 10.0
"""A host that has sent nothing at all for this long, not even a beat, is reported."""
ALIVE_BYTES = 64 * 1024
"""How much of a long frame counts as a sign of life: a slow line gets time, single bytes do not."""

NEWS_AFTER_S = 5.0
"""A command shows what it waits for after this time without news from a host."""
LOOKED_EVERY_S = 0.5

OnSilence = Callable[[str, float, float], None]
"""Called once in each silence: a host's name, how long it has been silent, and the limit."""
OnWait = Callable[[Sequence[str], str, float], None]
"""Called once in a command for each thing that hosts are awaited for: their names, what has not come, and for how long.

It reads as in "gpu-1: no connection for 5 s".
"""


def unobserved(*_: object) -> None:
    """Reports nothing."""


class Waiting:
    """Reports what a command waits for, in a thread that lives while it waits for something. It covers all hosts."""

    def __init__(self, on_silence: OnSilence = unobserved, on_wait: OnWait = unobserved) -> None:
        self.on_silence = on_silence
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._waits: dict[int, tuple[str, str, float]] = {}
        """Host, what is awaited, and since when."""
        self._reported: set[tuple[str, str]] = set()
        self._questions = 0
        self._is_watched = False

    @contextmanager
    def on(self, host: str, what: str) -> Iterator[None]:
        """While it lasts, `what` is the case, as in "no connection"."""
        if self._on_wait is unobserved:
            yield
            return
        key = threading.get_ident()
        with self._lock:
            before = self._waits.get(key)
            self._waits[key] = (host, what, time.monotonic())
            begins, self._is_watched = not self._is_watched, True
        if begins:
            threading.Thread(target=self._watch, daemon=True, name="waits").start()
        try:
            yield
        finally:
            with self._lock:
                if before is None:
                    del self._waits[key]
                else:
                    self._waits[key] = before

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While it lasts, a person is asked something, and hosts may wait."""
        with self._lock:
            self._questions += 1
        try:
            yield
        finally:
            with self._lock:
                self._questions -= 1
                now = time.monotonic()
                self._waits = {key: (host, what, now) for key, (host, what, _) in self._waits.items()}

    def _watch(self) -> None:
        while True:
            time.sleep(LOOKED_EVERY_S)
            with self._lock:
                if not self._waits:
                    self._is_watched = False
                    return
                late = self._late()
            for what, hosts in late.items():
                self._on_wait(hosts, what, NEWS_AFTER_S)

    def _late(self) -> dict[str, list[str]]:
        """What is awaited for long and was not reported yet -> hosts."""
        found: dict[str, list[str]] = {}
        until = time.monotonic() - NEWS_AFTER_S
        for host, what, since in [] if self._questions else self._waits.values():
            if since <= until and (host, what) not in self._reported:
                self._reported.add((host, what))
                found.setdefault(what, []).append(host)
        return found


UNOBSERVED = Waiting()


class SilenceTimer:
    """The silence during one wait for one host."""

    def __init__(self, host: str, limit_s: float, on_silence: OnSilence) -> None:
        self._host = host
        self._limit_s = limit_s
        self._on_silence = on_silence
        self._bytes = 0
        self.broken()

    def broken(self) -> None:
        """Restarts the timer: the host has sent or read something."""
        self._since = time.monotonic()
        self._reported = False

    def received(self, size: int, *, whole_frames: bool) -> None:
        """Counts received bytes; those of an unfinished frame restart the timer only if they are many."""
        self._bytes = 0 if whole_frames else self._bytes + size
        if whole_frames or self._bytes >= ALIVE_BYTES:
            self._bytes = 0
            self.broken()

    @property
    def wait_s(self) -> float:
        """How long to wait before `check` is called."""
        until = self._limit_s if self._reported or self._limit_s <= TOLD_AFTER_S else TOLD_AFTER_S
        return max(0.0, self._since + until - time.monotonic())

    def check(self) -> None:
        """Reports a long silence. Raises TransportError when it is too long."""
        silent_s = time.monotonic() - self._since
        if silent_s >= self._limit_s:
            raise TransportError(
                f"{self._host} has been silent for {self._limit_s:g} s",
                detail="the connection is up, but the agent there neither sends nor reads",
                hint="is the host overloaded, or does its disk hang? the other hosts' answers are not affected",
            )
        if silent_s >= TOLD_AFTER_S and not self._reported:
            self._reported = True
            self._on_silence(self._host, TOLD_AFTER_S, self._limit_s)

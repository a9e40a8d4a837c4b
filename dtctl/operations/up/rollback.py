"""A start that is cancelled: each host takes back what it has begun; and what is certain after an interrupt."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dtctl.errors import AgentError, DtctlError
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Session

ROLLBACK_S = 60.0
"""Rolling back kills what was started, without a grace period."""
_NEWS_S = 1.0
_UNSURE = frozenset({"disk_full", "permission_denied", "not_a_directory", "internal", "damaged"})
"""What an agent may also say when it could not take back all."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class Rollback:
    """Of the conversations of one start. Any thread may begin it, and more than one may."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._news = threading.Condition()
        self.started = False
        """Hosts have been told to start."""
        self.done: set[str] = set()
        """Hosts that have said that nothing of the start is left there."""

    def begin(self) -> None:
        for session in list(self._sessions.values()):
            with contextlib.suppress(DtctlError):
                session.send({"type": "abort"})

    def finish(self) -> None:
        """Until each agent has said that it has rolled back, or cannot say so any more."""
        fan_out(list(self._sessions.values()), self._drain, name=lambda session: session.host.name)

    def _drain(self, session: Session) -> None:
        deadline = time.monotonic() + ROLLBACK_S
        try:
            while (remaining := deadline - time.monotonic()) > 0:
                session.receive(remaining)
        except TimeoutError:
            return
        except DtctlError as error:
            self.hear(session.host.name, error)

    def hear(self, host: str, error: DtctlError) -> None:
        """An agent tells why it gives up when it has taken back what it had started."""
        with self._news:
            if isinstance(error, AgentError):
                self.done.update([host] if error.code not in _UNSURE else [])
                self._news.notify_all()
            elif self.started:  # a thread that was listening when all was given up may have heard it just now
                self._news.wait_for(lambda: host in self.done, _NEWS_S)


def end(session: Session) -> None:
    """Until the agent has said that it has given up: before that nobody else can begin there."""
    with contextlib.suppress(DtctlError, TimeoutError):
        session.send({"type": "abort"})
        while True:
            session.receive(ROLLBACK_S)
    session.close()


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

"""A start that is given up: each host takes back what it has started, and says so."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from dtctl.agent.records import answers
from dtctl.agent.records.reasons import headline, sentence, why_of
from dtctl.errors import AgentError, DtctlError, PreflightError
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Session

ROLLBACK_S = 60.0
"""Rolling back kills what was started, without a grace period."""
HEARD_S = 5.0
"""Within this time a host has heard from the coordinator that the run has failed, if it can hear it at all."""
_NEWS_S = 1.0
_UNSURE = frozenset({"disk_full", "permission_denied", "not_a_directory", "internal", "damaged"})
"""What an agent may also say when it could not take back all."""


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


class Verdict:
    """Of a run that fails while hosts still wait for its start: the first host that has heard of it tells.

    `give_up` ends the waiting of those that cannot hear of it.
    """

    def __init__(self, give_up: Callable[[], object]) -> None:
        self._give_up = give_up
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._why = ""

    def hear(self, answer: answers.Started) -> None:
        """Called by the threads that listen to the hosts."""
        reasons = map(why_of, answer["tasks"].values())
        failed = next((why for why in reasons if headline(why) == "run_failed"), None)
        if failed is None:
            return
        with self._lock:
            if self._timer is None:
                self._why = sentence(failed)
                self._timer = threading.Timer(HEARD_S, self._give_up)
                self._timer.daemon = True
                self._timer.start()

    def conclude(self, errors: Mapping[str, DtctlError]) -> None:
        """When all were listened to. Raises PreflightError where hosts were given up that had not heard of it."""
        with self._lock:
            if self._timer is None:
                return
            self._timer.cancel()
        if any(getattr(error, "code", "") == "rolled_back" for error in errors.values()):
            raise PreflightError(
                self._why,
                detail="the start was taken back on every host",
                hint="dtctl check    tells what is in the way",
            )

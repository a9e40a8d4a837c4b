"""A run that fails while hosts still wait for its start: those that cannot hear of it are not waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from dtctl.agent.records import answers
from dtctl.agent.records.reasons import headline, sentence, why_of
from dtctl.errors import DtctlError, PreflightError

HEARD_S = 5.0
"""Within this time a host has heard from the coordinator that the run has failed, if it can hear it at all."""


class Verdict:
    """What the first host tells that has heard of it; `give_up` makes those that have not end their waiting."""

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

"""Shows the screen until the user leaves it. Textual is an extra: it is imported here, and only on demand."""

from __future__ import annotations

import os
import signal
import sys
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dtctl.errors import ExitCode, PreflightError, UsageError
from dtctl.operations.client.streams import Feed
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import RunStatus
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import moving

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtctl.model import TaskId
    from dtctl.rooms.top.app import Top

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def need_screen() -> None:
    """Raises UsageError without a terminal, and PreflightError without Textual."""
    if not console.has_screen():
        raise UsageError(
            "dtctl top needs a terminal, and this is none",
            hint="dtctl status --watch    prints the tasks repeatedly",
        )
    if find_spec("textual") is None:
        raise PreflightError(
            "dtctl top needs Textual, which is not installed",
            detail="it is an optional extra of dtctl",
            hint=f"{sys.executable} -m pip install 'dtctl[top]'    installs it",
        )


def show(
    run: Feed, loss: Feed, speed: Feed, open_log: Callable[[RunRecord, TaskId], Feed]
) -> tuple[RunStatus | None, ExitCode | None]:
    """The last status of the run, and the exit code unless the user left with `q`.

    Raises the error that ended the stream of the run.
    """
    if not console.colored(stderr=True):
        os.environ["NO_COLOR"] = "1"  # Textual reads this variable, and does not know --color
    from dtctl.rooms.top.app import Top

    app = Top(run, loss, speed, open_log, fine=console.can_show("▁█⣿", stderr=True), heeds_signals=True, with_tail=True)
    with moving(_Aside(app)):
        code = app.run(mouse=False)
    if app.failure is not None:
        raise app.failure
    if code is None and app.return_code:  # a bug, whose traceback Textual has printed
        code = ExitCode.RUN_FAILED
    return app.model.status, code


class _Aside:
    """A Display that hides the screen during a prompt on the terminal, for example for a passphrase."""

    def __init__(self, app: Top) -> None:
        self._app = app
        self._answered: threading.Event | None = None

    def start(self) -> None:
        if self._answered is not None:
            self._answered.set()
            self._answered = None

    def stop(self) -> None:
        if not self._app.is_running or self._answered is not None:
            return
        gone, self._answered = threading.Event(), threading.Event()
        self._app.call_later(self._step_aside, gone, self._answered)
        gone.wait(2.0)

    def _step_aside(self, gone: threading.Event, answered: threading.Event) -> None:
        """Hides the screen until there is an answer, or a signal, which the screen's loop handles afterwards."""
        ended: list[int] = []
        before = {number: signal.signal(number, lambda number, _: ended.append(number)) for number in _SIGNALS}
        try:
            with self._app.suspend():
                gone.set()
                while not answered.wait(0.1) and not ended:
                    pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

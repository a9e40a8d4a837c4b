"""How a command ends: its exit code, and what an interrupt leaves; and what is announced before it ends anything."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from dtctl.errors import DtctlError, ExitCode

if TYPE_CHECKING:
    from dtctl.cli.scope import Scope
    from dtctl.operations.history.record import RunRecord
    from dtctl.operations.stop import Ending


@contextmanager
def left(what: str | Callable[[], Sequence[str]], *next_steps: str) -> Iterator[None]:
    """Says `what` an interrupt leaves, and what to type next; then the command ends.

    What has to be asked for answers with both, in this order.

    What is interrupted within another `left` is said by the inner one alone.
    """
    from dtctl.render import errors

    try:
        yield
    except KeyboardInterrupt:
        errors.interrupted(*((what, *next_steps) if isinstance(what, str) else what()))
        raise typer.Exit(ExitCode.INTERRUPTED) from None


@contextmanager
def detached(scope: Scope, *next_steps: str) -> Iterator[None]:
    """An interrupt ends the command alone, once a host was reached; `next_steps` are what to type then."""
    from dtctl.render import errors

    try:
        yield
    except KeyboardInterrupt:
        if not scope.transport.reached:
            raise
        errors.below()
        errors.note("detached: the run continues", *next_steps)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


@contextmanager
def hang_up_interrupts() -> Iterator[None]:
    """A terminal that is closed ends the command as Ctrl-C does, for one that has something to clear away."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGHUP, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def exit_for(errors: Mapping[str, DtctlError], *, others: object) -> None:
    """Raises Exit where there are errors: 7 when `others` (what did answer) is anything, else as the first error."""
    if errors:
        raise typer.Exit(ExitCode.PARTIAL if others else next(iter(errors.values())).exit_code)


def exit_without_run(errors: Mapping[str, DtctlError], record: RunRecord, hosts: Sequence[str]) -> NoReturn:
    """`hosts` know of none; why the others gave no answer is in `errors`."""
    from dtctl.render.errors import note, show_host_errors
    from dtctl.render.result import show_without_run

    show_host_errors(errors)
    show_without_run(record, hosts)
    exit_for(errors, others=None)
    note("  dtctl up    starts one")
    raise typer.Exit(ExitCode.RUN_FAILED)


class Announced:
    """Called with what is about to be ended: names it on stderr, unless it is another directory's run (UsageError).

    `agreed` asks whether it may be, and raises where it may not. `made`: until then no host was asked to end anything.
    """

    def __init__(
        self,
        scope: Scope,
        record: RunRecord,
        doing: str,
        *,
        say: bool = True,
        agreed: Callable[[Ending], None] = lambda found: None,
    ) -> None:
        self.made = False
        self._scope, self._record, self._doing, self._say, self._agreed = scope, record, doing, say, agreed

    def __call__(self, found: Ending) -> None:
        self._scope.refuse_others(self._record, found.run)
        if self._say and found.run and found.tasks:
            from dtctl.render.errors import note
            from dtctl.render.terminal.moving import still

            with still():
                note(f"{self._doing} {facts(found)}")
        self._agreed(found)
        self.made = True


def facts(found: Ending) -> str:
    from dtctl.render.words import count

    if not found.tasks:
        return f"{found.run}"
    return f"{found.run}: {count(len(found.tasks), 'task')} on {count(len(found.hosts), 'host')}"

"""What Ctrl-C, or SIGTERM, has left how: each command says it for each of its phases."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer

from dtctl.errors import ExitCode


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
def hang_up_interrupts() -> Iterator[None]:
    """A terminal that is closed ends the command as Ctrl-C does, for one that has something to clear away."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGHUP, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)

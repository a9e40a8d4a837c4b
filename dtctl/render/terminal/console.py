"""The two streams: results on stdout, progress and errors on stderr. rich honours NO_COLOR and FORCE_COLOR.

All output of dtctl is written here, so that text from outside reaches no terminal unless it is safe.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TextIO

from dtctl.errors import ExitCode
from dtctl.render.terminal.moving import above, still
from dtctl.render.terminal.safe import one_line

if TYPE_CHECKING:
    from dtctl.render.terminal.rich_console import SafeConsole

ColorChoice = Literal["auto", "always", "never"]

_choice: ColorChoice = "auto"
_write_json: Callable[[str], None] | None = None
"""Says a line about the work in JSON, where all of stderr is JSON."""

_FORCES_COLOR = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables with which rich takes anything for a terminal (rich.console.Console.is_terminal)."""

_PLAIN = {"\u00b7": "-", "\u2026": "..."}
"""The middle dot and the ellipsis."""


def choose_color(choice: ColorChoice) -> None:
    """Sets colours for the whole process; `auto` leaves it to the terminal and the environment."""
    global _choice
    _choice = choice


def speak_json(write: Callable[[str], None] | None) -> None:
    """For the whole process: stderr has a JSON object a line, as what reads stdout is a program.

    `write` writes such a line; None: stderr is for people.
    """
    global _write_json
    _write_json = write


def speaks_json() -> bool:
    return _write_json is not None


def out(width: int | None = None) -> SafeConsole:
    """`width` in columns, in place of the terminal's."""
    return _console(stderr=False, width=width)


def err() -> SafeConsole:
    return _console(stderr=True)


def say(text: str) -> None:
    """A line of the result, without style: rich, which costs a start 100 ms, is not needed for it."""
    put(f"{one_line(text)}\n")


def report(text: str) -> None:
    """A line about the work, without style, on stderr."""
    if _write_json is not None:
        return _write_json(text) if text else None
    put(f"{one_line(text)}\n", stderr=True)
    return None


def put(text: str, *, stderr: bool = False) -> None:
    """Writes text that is safe already."""
    _write(lambda stream: stream.write(text), stderr=stderr)


def pass_on(data: bytes, *, stderr: bool = False) -> None:
    """Writes bytes as they came, for those who asked for that; all text before them has been flushed."""
    _write(lambda stream: stream.buffer.write(data), stderr=stderr)


def _write(write: Callable[[TextIO], object], *, stderr: bool) -> None:
    stream = sys.stderr if stderr else sys.stdout
    if stream is None:  # the descriptor was closed when dtctl started
        return
    try:
        with above():
            stream.flush()
            write(stream)
            stream.flush()
    except BrokenPipeError:
        reader_gone(stderr=stderr)


def confirm(question: str, otherwise: str = "nothing was changed") -> None:
    """Asks on stderr; raises typer.Exit unless the answer is yes, and says what that leaves: `otherwise`."""
    import typer

    if not agrees(question):
        report(otherwise)
        raise typer.Exit(ExitCode.RUN_FAILED)


def agrees(question: str) -> bool:
    """Asks on stderr; the end of input is a no. Raises KeyboardInterrupt for Ctrl-C."""
    import typer

    with still():
        try:
            return typer.confirm(one_line(question), err=True)
        except typer.Abort as end:
            report("")  # below the question, before anything moves again
            if isinstance(end.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            return False


def show_whatever_comes() -> None:
    """For the whole process: a character that a stream cannot encode becomes a mark instead of an exception."""
    codecs.register_error("dtctl", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dtctl")


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """dtctl's own separators have another form; what is not dtctl's own is shown as what it is."""
    if isinstance(error, UnicodeEncodeError) and (plain := _PLAIN.get(error.object[error.start])):
        return plain, error.start + 1
    return codecs.backslashreplace_errors(error)


def reader_gone(*, stderr: bool) -> None:
    """Without a reader the result ends quietly (dtctl logs | head); work continues without a reader of progress."""
    stream = sys.stderr if stderr else sys.stdout
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    if not stderr:
        raise SystemExit(ExitCode.OK)


def on_terminal(*, stderr: bool = False) -> bool:
    stream = sys.stderr if stderr else sys.stdout
    return stream is not None and stream.isatty() and not (stderr and speaks_json())


def has_screen() -> bool:
    """Whether a whole screen can be drawn, and keys be read."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return os.environ.get("TERM", "dumb") != "dumb" and all(one is not None and one.isatty() for one in streams)


def can_show(characters: str, *, stderr: bool = False) -> bool:
    """Whether the stream has a way to write these."""
    try:
        characters.encode((sys.stderr if stderr else sys.stdout).encoding or "ascii")
    except (UnicodeEncodeError, LookupError, AttributeError):
        return False
    return True


def colored(*, stderr: bool = False) -> bool:
    """Whether escape sequences may be written to the stream."""
    if _choice != "always" and not on_terminal(stderr=stderr) and not any(map(os.environ.get, _FORCES_COLOR)):
        return False  # without importing rich
    return _console(stderr=stderr).color_system is not None


def columns() -> int:
    """Of stderr's terminal."""
    return _console(stderr=True).width


def fits(line: str) -> bool:
    """Whether stderr shows it in one row; what is no terminal has rows of any length."""
    return not on_terminal(stderr=True) or len(line) <= columns()


def interactive() -> bool:
    """Whether something that moves may be drawn on stderr."""
    return on_terminal(stderr=True) and "CI" not in os.environ and os.environ.get("TERM") != "dumb"


def _console(*, stderr: bool, width: int | None = None) -> SafeConsole:
    from dtctl.render.terminal.rich_console import SafeConsole

    off = _choice == "never" or (_choice == "auto" and os.environ.get("CLICOLOR") == "0")
    console = SafeConsole(
        reader_gone,
        stderr=stderr,
        width=width,
        no_color=True if off else None,
        color_system=None if off else "auto",
        force_terminal=True if _choice == "always" else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )
    # no_color leaves bold and dim in place; off a terminal or without colour the text is to be plain.
    if console.no_color:
        console._color_system = None
    return console

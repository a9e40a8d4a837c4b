"""The two streams: results and tables on stdout, progress and errors on stderr. rich honours NO_COLOR and FORCE_COLOR.

All output of dtctl is written here, so that text from outside reaches a terminal only if it is safe.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

from dtctl.errors import ExitCode
from dtctl.render.terminal.moving import above, is_dead_terminal, still
from dtctl.render.terminal.safe import one_line

if TYPE_CHECKING:
    from rich.text import Text

    from dtctl.render.terminal.grid import Grid
    from dtctl.render.terminal.rich_console import SafeConsole

ColorChoice = Literal["auto", "always", "never"]

_choice: ColorChoice = "auto"
_write_json: Callable[[str], None] | None = None
"""Writes a progress message as JSON, if all of stderr is JSON."""

_FORCES_COLOR = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables with which rich treats any stream as a terminal (rich.console.Console.is_terminal)."""

_PLAIN = {"\u00b7": "-", "\u2026": "..."}
"""The middle dot and the ellipsis."""


def choose_color(choice: ColorChoice) -> None:
    """Sets colours for the whole process; `auto` decides by the terminal and the environment."""
    global _choice
    _choice = choice


def speak_json(write: Callable[[str], None] | None) -> None:
    """Makes all lines of stderr JSON objects, for the whole process, because a program reads the output.

    `write` writes such a line; None: stderr is for people.
    """
    global _write_json
    _write_json = write


def speaks_json() -> bool:
    return _write_json is not None


def out(width: int | None = None) -> SafeConsole:
    """The console of stdout. `width` in columns, in place of the terminal's."""
    return _console(stderr=False, width=width)


def err() -> SafeConsole:
    return _console(stderr=True)


def say(text: str) -> None:
    """Prints a line of the result, without style: it does not need rich, which costs 100 ms at a start."""
    put(f"{one_line(text)}\n")


def report(text: str) -> None:
    """Prints a line about the work, without style, on stderr."""
    if _write_json is not None:
        return _write_json(text) if text else None
    put(f"{one_line(text)}\n", stderr=True)
    return None


def put(text: str, *, stderr: bool = False) -> None:
    """Writes text that is safe already."""
    _write(lambda stream: stream.write(text), stderr=stderr)


def pass_on(data: bytes, *, stderr: bool = False) -> None:
    """Writes bytes unchanged, if the user requested that; all earlier text has been flushed."""
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
    except OSError as error:
        if not is_dead_terminal(error):
            raise
        reader_gone(stderr=stderr, code=ExitCode.HUNG_UP)


def can_ask() -> bool:
    """Whether a person is there to answer."""
    return sys.stdin.isatty() and not speaks_json()


def confirm(question: str, otherwise: str = "nothing was changed") -> None:
    """Asks on stderr. Raises typer.Exit unless the answer is yes, after reporting `otherwise`."""
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
        except OSError as error:
            if not is_dead_terminal(error):
                raise
            return False
        except typer.Abort as end:
            report("")  # below the question, before anything moves again
            if isinstance(end.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            return False


def show_whatever_comes() -> None:
    """Shows characters that a stream cannot encode as escapes in place of an exception, for the whole process."""
    codecs.register_error("dtctl", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dtctl")


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """dtctl's own separators in ASCII; other characters as escapes."""
    if isinstance(error, UnicodeEncodeError) and (plain := _PLAIN.get(error.object[error.start])):
        return plain, error.start + 1
    return codecs.backslashreplace_errors(error)


def reader_gone(*, stderr: bool, code: int = ExitCode.OK) -> None:
    """Ends the process quietly if the result has no reader (dtctl logs | head); continues if only progress has none."""
    stream = sys.stderr if stderr else sys.stdout
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    if not stderr:
        raise SystemExit(code)


def on_terminal(*, stderr: bool = False) -> bool:
    stream = sys.stderr if stderr else sys.stdout
    return stream is not None and stream.isatty() and not (stderr and speaks_json())


def has_screen() -> bool:
    """Whether a whole screen can be drawn, and keys be read."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return os.environ.get("TERM", "dumb") != "dumb" and all(one is not None and one.isatty() for one in streams)


def can_show(characters: str, *, stderr: bool = False) -> bool:
    """Whether the stream can encode these characters."""
    try:
        characters.encode((sys.stderr if stderr else sys.stdout).encoding or "ascii")
    except (UnicodeEncodeError, LookupError, AttributeError):
        return False
    return True


def colored(*, stderr: bool = False) -> bool:
    """Whether escape sequences may be written to the stream."""
    if _choice != "always" and not on_terminal(stderr=stderr) and not any(map(os.environ.get, _FORCES_COLOR)):
        return False  # avoids importing rich
    return _console(stderr=stderr).color_system is not None


def columns() -> int:
    """The columns of stderr's terminal."""
    return _console(stderr=True).width


def fits(line: str) -> bool:
    """Whether stderr shows the line in one row; without a terminal it always does."""
    return not on_terminal(stderr=True) or len(line) <= columns()


def interactive() -> bool:
    """Whether moving displays may be drawn on stderr."""
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
    # no_color leaves bold and dim in place; without a terminal or colour the text must be plain.
    if console.no_color:
        console._color_system = None
    return console


_NUMBERS = (
    *("FOR", "RESTARTS", "PID", "STEP", "AGE", "SIZE", "SHARDS", "FREED"),
    *("LAST", "MIN", "MAX", "POINTS", "RATE", "LOSS", "OUTPUT", "CPU", "MEMORY", "GPU USE", "GPU MEMORY"),
    *("BUSIEST THREAD", "NO CPU", "SENDS", "RECEIVES", "CARRIES"),
)
_SENTENCES = ("NOTE", "TASKS", "FOUND", "REMOVED", "STATE", "HOSTS", "WHERE", "DIRECTORY")


def table(
    columns: Mapping[str, Sequence[str | Text]],
    *,
    dropped: Sequence[str] = (),
    least_note: int | None = None,
    shared: Sequence[str] = (),
) -> Grid:
    """A table with these headings and cells; some columns are known to hold numbers, or text that may be wrapped.

    A terminal that is too narrow leaves out `dropped`, the first ones first. `least_note`: the width of a column NOTE
    that the other columns give way to. `shared`: columns that are a line below the table, if all cells are the same.
    """
    from dtctl.render.terminal.grid import Grid, columns_of

    every = columns_of(columns, _NUMBERS, _SENTENCES)
    return Grid(every, dropped=dropped, least_note=least_note, shared=shared)


def table_fits(grid: Grid) -> bool:
    """Whether no cell must be wrapped, and no column left out; without a terminal always."""
    return grid.fits(table_width())


def table_width() -> int | None:
    """The columns that a table may have; None without a terminal."""
    terminal = out()
    return terminal.width if terminal.is_terminal else None


def print_table(grid: Grid) -> None:
    terminal = out()
    for line in grid.lines(table_width()):
        terminal.print(line)


def styled(words: str, style: str) -> Text:
    from dtctl.render.terminal.rich_console import text

    return text((words, style))

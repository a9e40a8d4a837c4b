"""Errors for people, on stderr: what failed, where, the details, and the next command."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.agent.host.secrets import MASK, hide_text, is_secret_name
from dtctl.errors import AgentError, ConfigError, DtctlError, Place, Problem, shortened
from dtctl.render.format import fold
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import lines_of, one_line
from dtctl.transport.fanout import SomeHostsFailed
from dtctl.transport.group_errors import APART, group_errors, rows

if TYPE_CHECKING:
    from dtctl.operations.client.streams import Disconnected, Reconnected

_OWN_HINTS = {"no_run": "dtctl status    shows why, if a start has failed\ndtctl runs    lists the runs that there are"}
"""Hints by an agent's error code, if the agent itself sends none."""


_SHORT = 60
"""Shorter lines fit any terminal: rich, which knows its width, is not imported for them."""


def show_error(error: DtctlError) -> None:
    if console.speaks_json():
        from dtctl.render.machine import stderr

        return stderr.error(error)
    if isinstance(error, ConfigError):
        return _show_problems(error)
    _labelled("error", "bold red", error.summary)
    if isinstance(error, SomeHostsFailed):
        _reasons(error)
        return _hint(error.hint)
    return _more(error)


def _reasons(error: SomeHostsFailed) -> None:
    """Shows each reason in a line, with the command below it if the terminal is too narrow for both."""
    for row in rows(error.errors):
        whole = f"       {row.text}{APART}{row.next_step}"
        for line in [whole.rstrip()] if console.fits(whole) else [f"       {row.text}", f"         {row.next_step}"]:
            console.report(line)
        for line in row.below:
            console.report(f"         {line}")
    if error.unawaited:
        console.report(f"       {fold(error.unawaited)}: not waited for, as all hosts are needed")


def show_host_errors(errors: Mapping[str, DtctlError], *, tolerated: bool = False) -> None:
    """Shows one entry for all hosts with the same error. `tolerated`: the command succeeds in spite of it."""
    if console.speaks_json():
        from dtctl.render.machine import stderr

        return stderr.host_errors(errors)
    groups = group_errors(errors)
    label, style = ("warning", "bold yellow") if tolerated else ("error", "bold red")
    for group in groups:
        whole = f"{group.summary}{APART}{group.next_step}"
        in_one_line = len(groups) > 1 and group.covers_all and "\n" not in whole and console.fits(f"{label}: {whole}")
        detail = "" if len(groups) > 1 and group.covers_all else group.detail
        _labelled(label, style, whole.rstrip() if in_one_line else group.summary)
        _more(group.first, group.hosts, detail=detail, hint="" if in_one_line else group.hint)
    return None


def show_warning(text: str, hint: str = "") -> None:
    if console.speaks_json():
        from dtctl.render.machine import stderr

        return stderr.warning(shortened(text), shortened(hint))
    _labelled("warning", "bold yellow", shortened(text))
    return _hint(shortened(hint))


def note(text: str, *next_steps: str) -> None:
    """Shows a line about what dtctl does, for a person who watches, and below it the next commands."""
    if console.speaks_json():
        from dtctl.render.machine import stderr

        return stderr.note(shortened(text.strip()), next_steps)
    text = shortened(text)
    for line in (text, *(f"  {step}" for step in next_steps)):
        if len(line) < _SHORT or console.fits(line):
            console.report(line)
        else:
            console.err().prose(line)
    return None


def show_strong(text: str) -> None:
    """Shows the one line that a person must not miss."""
    if console.speaks_json() or not console.colored(stderr=True):
        return note(text)
    console.err().prose(shortened(text), "bold red")
    return None


def show_contact(event: Disconnected | Reconnected) -> None:
    """Shows that a connection to a host has ended, or works again."""
    from dtctl.operations.client.streams import Disconnected

    if isinstance(event, Disconnected):
        show_host_errors({event.host: event.error})
    else:
        note(f"{event.host} can be reached again")


def interrupted(text: str, *next_steps: str) -> None:
    """Reports what remains after an interrupt."""
    below()
    note(f"interrupted: {text}", *next_steps)


def below() -> None:
    """Starts a new line, below the terminal's ^C or an unanswered question."""
    if console.on_terminal(stderr=True):
        console.report("")


def _more(error: DtctlError, hosts: Sequence[str] = (), *, detail: str | None = None, hint: str | None = None) -> None:
    """Shows details and hint.

    `hosts`: those with the same error, if several; then `detail` and `hint` are for all of them.
    """
    for line in lines_of(error.detail if detail is None else detail):
        console.report(f"       {line}")
    own = _OWN_HINTS.get(error.code) if isinstance(error, AgentError) and not error.hint else None
    if own is not None:
        return _hint(own)
    whose = error.host if isinstance(error, AgentError) else ""
    _hint(error.hint if hint is None else hint, fold(hosts) if whose and hosts else whose)
    return None


def _hint(hint: str, whose: str = "") -> None:
    """Shows a hint. `whose`: the host that sent it, if it is not dtctl's own; a lying host may advise anything."""
    for number, line in enumerate(lines_of(hint)):
        if number:
            console.report(f"       {line}")
        else:
            _labelled(f" hint of {whose}" if whose else " hint", "cyan", line)


def show_doubts(doubts: Sequence[Problem]) -> None:
    """Shows parts of the cluster file that are valid, but probably mistakes."""
    if console.speaks_json():
        from dtctl.render.machine import stderr

        for doubt in doubts:
            stderr.doubt(doubt)
        return
    for doubt in doubts:
        _show_problem(doubt, ("warning", "bold yellow"), ": ")


def _show_problems(error: ConfigError) -> None:
    show_doubts(error.doubts)
    for problem in error.problems:
        _show_problem(problem)
    _labelled("error", "bold red", error.summary)


def _show_problem(problem: Problem, *label: str | tuple[str, str]) -> None:
    show_styled((f"{problem.place}", "bold"), ": ", *label, problem.summary, whole_words=True)
    for line in _excerpt(problem.place):
        show_styled((line, "dim"))
    if problem.hint:
        _labelled("    hint", "cyan", problem.hint)


def _excerpt(place: Place) -> list[str]:
    """The line, without secrets, with a caret below the column; empty if it cannot be read."""
    if not (place.line and place.column):
        return []
    try:
        file = Path(place.file)
        line = file.read_text(encoding="utf-8").splitlines()[place.line - 1] if file.is_file() else ""
    except (OSError, ValueError, IndexError):
        return []
    if not 0 < len(line) <= 200:
        return []
    shown, before = _without_secrets(line), line[: place.column - 1]
    if not shown.startswith(before):
        return [f"    {shown}"]
    pad = "".join("\t" if character == "\t" else " " for character in one_line(before))
    return [f"    {shown}", f"    {pad}^"]


def _without_secrets(line: str) -> str:
    """The line without the rest after a mapping or a list that begins where the value of a secret is expected."""
    opened = re.finditer(r"([\w.-]{1,200})[\"']?\s*:\s+(?=[{\[])", line)
    end = next((one.end() for one in opened if one[1] != "secrets" and is_secret_name(one[1])), None)
    return hide_text(line if end is None else line[:end] + MASK)


def _labelled(label: str, style: str, sentence: str) -> None:
    """Shows a sentence after its label; a terminal that is too narrow gets whole words, and a command as it is."""
    if console.fits(f"{label}: {sentence}") or _is_command(sentence):
        return show_styled((f"{label}:", style), f" {sentence}")
    console.err().prose(sentence, label=f"{label}: ", label_style=style)
    return None


_COMMANDS = r"(?:dtctl|pip|python3?|ssh|ssh-keygen|export|apt-get|sudo|git|\S*/\S+) \S"


def _is_command(sentence: str) -> bool:
    """Whether it is a command alone, which is copied as a whole."""
    return APART not in sentence and re.match(_COMMANDS, sentence) is not None


def show_styled(*parts: str | tuple[str, str], whole_words: bool = False) -> None:
    """Prints a line of text and (text, style) on stderr; without colours it needs no rich, which costs 20 ms.

    `whole_words`: a terminal that is too narrow gets no broken word; never for a command, which is to be copied.
    """
    plain = "".join(part if isinstance(part, str) else part[0] for part in parts)
    if not console.colored(stderr=True) and (not whole_words or console.fits(plain)):
        return console.report(plain)
    from dtctl.render.terminal.rich_console import text

    console.err().print(text(*parts), soft_wrap=not (whole_words and console.on_terminal(stderr=True)))
    return None


def show_trace() -> None:
    """Shows the messages of dtctl's own loggers. Request bodies, which may hold secrets, are never logged."""
    handler = _TraceHandler()
    handler.setFormatter(logging.Formatter("%(relativeCreated)6d ms  %(message)s"))
    logger = logging.getLogger("dtctl")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


class _TraceHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        for line in lines_of(self.format(record)):
            console.report(line)

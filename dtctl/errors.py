"""The one family of errors that users see. Showing them is the work of `dtctl.render.errors`."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Sequence
from enum import IntEnum

from dtctl.dataclass import dataclass


class ExitCode(IntEnum):
    """What `dtctl` exits with; documented for scripts in docs/exit-codes.md."""

    OK = 0
    RUN_FAILED = 1
    USAGE = 2
    CONFIG = 3
    UNREACHABLE = 4
    PREFLIGHT = 5
    LOCKED = 6
    PARTIAL = 7
    SURVIVORS = 8
    TIMEOUT = 124
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MOST_TEXT = 2000
"""Characters of a summary, or of a line of the detail or the hint: what a file or a host says may be of any size."""

MOST_DETAIL = 64_000
"""The most characters of a whole detail or hint."""


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """The text, or its beginning and end if it is longer."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters are left out) ... {text[-half:]}"


def shortened_lines(text: str) -> str:
    """The text with each of its lines shortened, and as a whole if it is still long."""
    return shortened("\n".join(map(shortened, text.split("\n"))), MOST_DETAIL) if len(text) > MOST_TEXT else text


class DtctlError(Exception):
    """Something the user can act on.

    `summary` is one line without a full stop, `detail` what was tried and what came back,
    `hint` the next thing to do, best of all a command to type. Each is shortened, whatever value it repeats.
    """

    exit_code = ExitCode.RUN_FAILED

    def __init__(self, summary: str, *, detail: str = "", hint: str = "") -> None:
        self.summary = shortened(summary)
        self.detail = shortened_lines(detail)
        self.hint = shortened_lines(hint)
        super().__init__(self.summary)

    def __str__(self) -> str:
        """The whole message, for a traceback; characters that could move a terminal's cursor are escaped."""
        return _readable(filter(None, [self.summary, self.detail, advice(self)]))


class UsageError(DtctlError):
    """The command line says something that cannot be done."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, order=True)
class Place:
    """A position in a file; line and column count from 1, and 0 means that it is not known."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in a cluster file: `summary` says what was found and what was expected. Both texts are shortened."""

    place: Place
    summary: str
    hint: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", shortened(self.summary))
        object.__setattr__(self, "hint", shortened(self.hint))


def clipped(text: str, most: int = 60) -> str:
    """The text as quoted in a message: only its beginning if it is long."""
    return text if len(text) <= most else text[: most - 3] + "..."


class ConfigError(DtctlError):
    """A cluster file that cannot be used; holds every problem found, in the order of the file."""

    exit_code = ExitCode.CONFIG

    def __init__(self, problems: Sequence[Problem], doubts: Sequence[Problem] = ()) -> None:
        self.problems = tuple(sorted(problems))
        self.doubts = tuple(doubts)
        """Problems that do not stop the command by themselves."""
        count = len(self.problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in {self.problems[0].place.file}")

    def __str__(self) -> str:
        hints = [f" ({one.hint})" if one.hint else "" for one in self.problems]
        lines = [f"{one.place}: {one.summary}{hint}" for one, hint in zip(self.problems, hints, strict=True)]
        return _readable([self.summary, *lines])


class TransportError(DtctlError):
    """A host could not be reached, refused us, or cannot run the agent.

    `shared_summary` is the summary without what only this host has, such as its address: hosts with the same one are
    shown together.
    """

    exit_code = ExitCode.UNREACHABLE

    def __init__(self, summary: str, *, detail: str = "", hint: str = "", shared_summary: str = "") -> None:
        super().__init__(summary, detail=detail, hint=hint)
        self.shared_summary = shared_summary


class HostKeyError(TransportError):
    """The host's key is unknown or is not the one that is pinned."""


class ConnectionLost(TransportError):
    """The connection ended before the answer was complete."""


_AGENT_EXITS = {
    "locked": ExitCode.LOCKED,
    "no_run": ExitCode.RUN_FAILED,
    "run_ended": ExitCode.RUN_FAILED,
    "internal": ExitCode.RUN_FAILED,
    "damaged": ExitCode.RUN_FAILED,
    "other_version": ExitCode.RUN_FAILED,
    "bad_request": ExitCode.RUN_FAILED,
    "python_too_old": ExitCode.UNREACHABLE,
}


class AgentError(DtctlError):
    """The agent on a host could not do what it was asked; `code` is its machine-readable reason.

    `host` is whose words the hint is: what a host advises is never shown as dtctl's own advice.
    """

    def __init__(self, code: str, summary: str, *, detail: str = "", hint: str = "", host: str = "") -> None:
        super().__init__(summary, detail=detail, hint=hint)
        self.code = code
        self.host = host
        self.exit_code = _AGENT_EXITS.get(code, ExitCode.PREFLIGHT)


def advice(error: DtctlError) -> str:
    """The hint among others: with the host that sent it."""
    if not error.hint or not isinstance(error, AgentError) or not error.host:
        return error.hint
    return f"{error.host} says: {' '.join(error.hint.split())}"


def _readable(parts: Iterable[str]) -> str:
    text = "\n".join(parts)
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


class PreflightError(DtctlError):
    """Something that the run needs is missing; nothing has been started."""

    exit_code = ExitCode.PREFLIGHT


MOST_CHOICES = 1024
"""Each comparison takes some of the reader's time; of thousands of hosts the right one is hardly a typing slip away."""


def closest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The choice that `word` was most likely meant to be; None when none is as near as `cutoff`, from 0 to 1."""
    names = list(itertools.islice(choices, MOST_CHOICES))
    by_lower = {choice.lower(): choice for choice in names}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    if not matches:
        return None
    # Of two that differ in their capitals alone, the one that is written like `word`.
    return matches[0] if word.islower() and matches[0] in names else by_lower[matches[0]]


def did_you_mean(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint for an error; empty when nothing is near."""
    match = closest(word, choices, cutoff)
    return f"did you mean '{match}'?" if match is not None else ""

"""Finds lines of logs that match a user's request. No pattern blocks the session, or its host.

Plain words (`loss`, `loss|accuracy`) are searched for as such, which is as fast as reading. Any other regular
expression may take exponentially long (`(a+)+$`). Python handles signals during a search: a timer of CPU time ends it.

Lines that report errors are complete tracebacks, and the messages with which programs end (run/cause.py). Lines come in
order and in pieces of any size. Python's tracebacks are recognised by their first line and the indentation of their
frames; an exception's message may have any number of lines, of which those belong to it that are indented, that are
part of a known message of TensorFlow, or that lead to the next traceback of a chain.
"""

from __future__ import annotations

import re
import signal
from contextlib import contextmanager

from ..host import machine
from ..host.errors import Refused
from ..run import cause
from ..run.log_text import redrawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Pattern

    from ..host.secrets import Masks

    Marks = Optional[List[bool]]
    """Whether each line matches; None: no line does."""

SEARCH_CPU_S = 5.0
"""The limit for one piece of a log, which is 256 KiB or one line."""

_MOST_MEMORY_BYTES = 1 << 30
_SPECIAL = frozenset(".^$*+?{}[]\\()")


class Keywords:
    """Plain words, one of which a line must contain."""

    def __init__(self, words: List[bytes], masks: Masks) -> None:
        self._words = words
        self._masks = masks

    def marks(self, data: bytes) -> Marks:
        """The marks of complete lines."""
        shown = self._masks.hide_lines(data)
        if not any(word in shown for word in self._words):
            return None
        return [any(word in line for word in self._words) for line in lines_of(shown)]


class _TooLong(Exception):
    """Raised where the search is, by the handler of the signal."""


class Expression:
    """A regular expression."""

    def __init__(self, pattern: Pattern[str], masks: Masks) -> None:
        self._pattern = pattern
        self._masks = masks

    def marks(self, data: bytes) -> Marks:
        """The marks of complete lines, without their line ends. Raises Refused for a pattern that takes too long."""
        lines = [line.decode("utf-8", "replace") for line in lines_of(self._masks.hide_lines(data))]
        try:
            with _limited():
                found = [self._pattern.search(line) is not None for line in lines]
        except _TooLong:
            raise self._given_up("takes too long: more than %g s for one piece of a log" % SEARCH_CPU_S) from None
        except MemoryError:
            raise self._given_up("cannot be searched for here: it takes more memory than there is for it") from None
        return found if True in found else None

    def _given_up(self, why: str) -> Refused:
        hint = "search for plain words, as in -g 'loss|accuracy', or without one repetition inside of another"
        return Refused("bad_request", "%s %s" % (ascii(self._pattern.pattern[:200]), why), hint=hint)


@contextmanager
def _limited() -> Iterator[None]:
    """Limits CPU time and memory, in the main thread, the only one that gets signals. Raises _TooLong."""
    import resource

    def give_up(*_: object) -> None:
        raise _TooLong

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(machine.text("/proc/self/statm").split()[0]) * resource.getpagesize()
    signal.signal(signal.SIGPROF, give_up)
    most = min([now + _MOST_MEMORY_BYTES, *(one for one in (soft, hard) if one >= 0)])
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    signal.setitimer(signal.ITIMER_PROF, SEARCH_CPU_S)
    try:
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_PROF, 0)  # it may raise once more before
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def finder(grep: str, masks: Masks) -> Keywords | Expression:
    """Raises Refused for what is no regular expression."""
    try:
        pattern = re.compile(grep)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused("bad_request", f"{grep[:200]!r} is not a regular expression", detail=str(error)) from error
    if not _SPECIAL.intersection(grep) and grep.isprintable():
        return Keywords([word.encode() for word in grep.split("|")], masks)
    return Expression(pattern, masks)


def lines_of(data: bytes) -> List[bytes]:
    """The lines without their ends; unlike `splitlines`, only a newline ends one."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


# lines that report errors

MOST_LINES = 400
"""The most lines of one error."""

_VAGUE_LINES = 40
"""The most lines after an exception whose first line contains no message."""

_LONGEST = 2000
"""The most characters of a line that are considered."""

_HINTS = (
    *(b"Traceback", b"rror", b"ERROR", b"CRITICAL", b"FATAL", b"atal ", b"Exception", b"CUDA", b"terminate called"),
    *(b"denied", b"not found", b"No space", b"Segmentation", b"corruption", b"smashing", b": E ", b": F "),
)
_GLOG = re.compile(rb"^[EF]\d{4} ", re.MULTILINE)
"""Hints, one of which the first line of every error contains."""

_TRACEBACK = "Traceback (most recent call last):"
_MARK = re.compile(r"\[[^\]\n]{1,40}\]:? ?\Z|\s*\Z")
"""Prefixes of launchers before each line, such as `[rank0]: `."""

_IGNORED = ("Exception ignored ", "Error in atexit", "Error in sys")
"""Lines before a traceback that does not end the program."""

_CHAIN = re.compile(r"During handling of the above|The above exception was|(?:Current t|T)hread 0x|Extension modules:")


_NEXT = re.compile(r"\s*\d+(?:/\d+|%)|(?:INFO|WARNING|DEBUG)\b|[IW]\d{4} |\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
"""Lines that belong to no error: a progress bar, which may be indented, and log messages."""


class ErrorFinder:
    """Finds errors. `marks` is called for all lines of one attempt's log, in order."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._inside = ""
        """frames, message, ignored, or nothing."""
        self._prefix = ""
        self._left = 0
        """Lines that this error may still have."""
        self._vague = 0
        self._blank: List[int] = []
        """Lines of this piece that belong to an error if what follows them does."""
        self._ignored = False
        """Whether the line before marks the next exception as ignored."""

    def marks(self, data: bytes) -> Marks:
        shown = self._masks.hide_lines(data)
        if not self._inside and not self._ignored and not _hints(shown):
            return None
        self._blank = []
        found: List[bool] = []
        for number, line in enumerate(lines_of(shown)):
            mark = self._belongs(number, line)
            if mark:
                for blank in self._blank:
                    found[blank] = True
            if mark is not None:
                self._blank = []
            found.append(bool(mark))
        return found if True in found else None

    def _belongs(self, number: int, data: bytes) -> Optional[bool]:
        """Whether a line belongs to an error; None: only if a later line of the same error does."""
        if not self._inside and not self._ignored and not _hints(data):
            return False
        whole = redrawn(data[: 4 * _LONGEST].decode("utf-8", "replace"))[:_LONGEST].rstrip()
        text = whole[len(self._prefix) :] if self._inside and whole.startswith(self._prefix) else whole
        if self._inside and self._left > 0:
            self._left -= 1
            ignored = self._inside == "ignored"
            within = self._within(text)
            if within is None:
                self._blank.append(number)
            if within is not False:
                return False if ignored else within
        return self._begins(whole)

    def _begins(self, line: str) -> bool:
        """Whether an error begins with this line."""
        ignored, self._ignored = self._ignored, line.startswith(_IGNORED)
        self._inside, self._prefix, self._left, self._vague = "", "", MOST_LINES, 0
        if line.endswith(_TRACEBACK) and _MARK.match(line[: -len(_TRACEBACK)]):
            self._prefix = line[: -len(_TRACEBACK)]
            self._inside = "ignored" if ignored else "frames"
            return not ignored
        if not self._ignored and cause.complains(line):
            self._inside = "message"
            return True
        return False

    def _within(self, line: str) -> Optional[bool]:
        """Whether the error continues; None for an ambiguous line."""
        indented = line[:1].isspace()
        if self._inside == "ignored":
            if not indented:
                self._inside, self._left = "", 0  # its last line
            return True
        if self._inside == "frames":
            if line and not indented:
                self._inside = "message"
                self._vague = _VAGUE_LINES if cause.is_vague(line) else 0
            return True
        if not line:
            return None
        self._vague -= 1
        if _NEXT.match(line):
            return False
        what = cause.is_substance(line)
        belongs = what or indented or self._vague > 0 or cause.is_location(line) or _CHAIN.match(line) is not None
        if what or "[Op:" in line:
            self._vague = 0
        return belongs


def _hints(data: bytes) -> bool:
    """A regular expression of all of them takes twenty times as long."""
    if any(hint in data for hint in _HINTS):
        return True
    return (data[:1] in (b"E", b"F") or b"\nE" in data or b"\nF" in data) and _GLOG.search(data) is not None

"""Which lines match what a user asks for. No pattern holds the session up, nor its host.

Plain words (`loss`, `loss|accuracy`) are looked for by the session itself, which is as fast as reading. Any other
regular expression may take exponentially long (`(a+)+$`), and nothing in Python ends a search that has begun. So it
runs in a process of its own, which the kernel ends when one piece of a log has taken it SEARCH_CPU_S of CPU time.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
from contextlib import suppress

from ..host import daemon
from ..host.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Pattern

    from ..host.secrets import Masks

    Marks = Optional[List[bool]]
    """Of each line whether it is meant; None: of no line."""

SEARCH_CPU_S = 5.0
"""For one piece of a log, which is 256 KiB or one line. Others take a few milliseconds."""

_MOST_MEMORY_BYTES = 1 << 30
_SPECIAL = frozenset(".^$*+?{}[]\\()")
_SIZE = struct.Struct(">I")


class Words:
    """Plain words, of which a line has to have one."""

    def __init__(self, words: List[bytes], masks: Masks) -> None:
        self._words = words
        self._masks = masks

    def marks(self, data: bytes) -> Marks:
        """Of whole lines."""
        shown = self._masks.hide_lines(data)
        if not any(word in shown for word in self._words):
            return None
        return [any(word in line for word in self._words) for line in lines_of(shown)]

    def close(self) -> None:
        """There is nothing to be ended."""


class Expression:
    """A regular expression, which is searched for by another process. That is begun when it is first needed."""

    def __init__(self, pattern: Pattern[str], masks: Masks) -> None:
        self._pattern = pattern
        self._masks = masks
        self._pid = 0
        self._line: Optional[socket.socket] = None

    def marks(self, data: bytes) -> Marks:
        """Of whole lines, without their line ends. Raises Refused for a pattern that takes too long."""
        if self._line is None:
            self._line = self._begin()
        shown = self._masks.hide_lines(data)
        try:
            self._line.sendall(_SIZE.pack(len(shown)))
            self._line.sendall(shown)
            found = _receive(self._line, _SIZE.unpack(_receive(self._line, _SIZE.size))[0])
        except (EOFError, OSError):
            raise self._ended() from None
        return [mark == 1 for mark in found] if b"\1" in found else None

    def close(self) -> None:
        if self._line is not None:
            self._line.close()  # it waits for more, and so it ends
            self._line = None
            os.waitpid(self._pid, 0)

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._pid = daemon.fork(lambda: _search(self._pattern, theirs), 1)
        theirs.close()
        return ours

    def _ended(self) -> Refused:
        if self._line is not None:
            self._line.close()
            self._line = None
        status = os.waitpid(self._pid, 0)[1]
        pattern = ascii(self._pattern.pattern[:200])
        hint = "search for plain words, as in -g 'loss|accuracy', or without one repetition inside of another"
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
            what = "%s takes too long: more than %g s for one piece of a log" % (pattern, SEARCH_CPU_S)
        else:
            what = "%s cannot be searched for here: it takes more memory than there is for it" % pattern
        return Refused("bad_request", what, hint=hint)


def finder(grep: str, masks: Masks) -> Words | Expression:
    """Raises Refused for what is no regular expression."""
    try:
        pattern = re.compile(grep)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused("bad_request", f"{grep[:200]!r} is not a regular expression", detail=str(error)) from error
    if not _SPECIAL.intersection(grep) and grep.isprintable():
        return Words([word.encode() for word in grep.split("|")], masks)
    return Expression(pattern, masks)


def lines_of(data: bytes) -> List[bytes]:
    """Without their line ends; unlike `splitlines`, only a newline ends one."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _search(pattern: Pattern[str], line: socket.socket) -> None:
    """The life of the other process: it answers until nobody asks any more."""
    with suppress(BaseException):  # nobody asks any more, or there is no memory: whoever waits sees that it has ended
        _be_bounded(line.fileno())
        while True:
            data = _receive(line, _SIZE.unpack(_receive(line, _SIZE.size))[0])
            signal.setitimer(signal.ITIMER_PROF, SEARCH_CPU_S)
            found = bytes(pattern.search(one.decode("utf-8", "replace")) is not None for one in lines_of(data))
            signal.setitimer(signal.ITIMER_PROF, 0)
            line.sendall(_SIZE.pack(len(found)) + found)


def _be_bounded(line: int) -> None:
    import resource

    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # those of the conversation with the controller
        os.dup2(null, stream)
    daemon.close_descriptors(but=[line])
    daemon.rename("dtctl-search")
    daemon.restore_signals()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))


def _receive(line: socket.socket, size: int) -> bytes:
    """Raises EOFError."""
    data = bytearray()
    while len(data) < size:
        piece = line.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)

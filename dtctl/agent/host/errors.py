"""Errors: sent in the frame `error`, or, without a controller, written to agent.log."""

from __future__ import annotations

import errno
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Set

    from ..records import answers

LONGEST_TEXT = 65_536
"""The same limit as of records.answers.Text."""


class Refused(Exception):
    """The request cannot be done; this ends the conversation.

    `code` is one of those of docs/agent.md, `summary` one line without a full stop,
    `detail` what was tried and what came back, `hint` the next thing to do.
    """

    def __init__(self, code: str, summary: str, detail: str = "", hint: str = "") -> None:
        super().__init__(summary)
        self.code = code
        self.summary = summary
        self.detail = detail
        self.hint = hint

    def fields(self) -> answers.Refused:
        """The error as the frame `error`, or a field of an answer."""
        return {
            "code": self.code,
            "summary": self.summary[:LONGEST_TEXT],
            "detail": self.detail[-LONGEST_TEXT:],
            "hint": self.hint[:LONGEST_TEXT],
        }


NO_ROOM = "dtctl gc    removes old runs and old code; other files on this disk are yours to remove"


def damaged(problem: str) -> Refused:
    """The error about a damaged run. `problem`: the damaged file, and its damage."""
    hint = "dtctl down    ends what is left of the run, and removes its files"
    return Refused("damaged", "a file of the run is damaged on this host", problem, hint)


def other_version(problem: str) -> Refused:
    """`problem`: which file of a run is of another version, and of which."""
    hint = "dtctl down    ends the run, and removes its files; or use the version of dtctl that began it"
    return Refused("other_version", "the run is of another version of dtctl, which this one cannot read", problem, hint)


def from_os_error(error: OSError, doing: str) -> Refused:
    """The error for an operating system error. `doing` reads as in 'write the bundle'."""
    import errno

    place = "%s: " % error.filename if error.filename else ""
    detail = "%s%s" % (place, error.strerror or error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refused("disk_full", "cannot %s: the disk is full" % doing, detail, NO_ROOM)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused("permission_denied", "cannot %s: permission denied" % doing, detail)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return Refused("not_a_directory", "cannot %s: not a directory" % doing, detail)
    return Refused("internal", "cannot %s" % doing, detail)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.EIO)

_logged: Set[str] = set()


def note(text: str) -> None:
    """Writes a line to agent.log once. Never raises, as the log's own disk may be full."""
    if text not in _logged:
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)
            _logged.add(text)


def is_full(error: OSError) -> bool:
    """Whether a disk, or what the user may have of it, is full."""
    return error.errno in _FULL


def passes(error: OSError) -> bool:
    """Whether an error may be temporary, such as a full disk."""
    return error.errno in _PASSING

"""What goes wrong without a controller: into agent.log, each text once."""

from __future__ import annotations

import errno
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Set

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.EIO)

_logged: Set[str] = set()


def note(text: str) -> None:
    """Never raises: the full disk may be the log's own."""
    if text not in _logged:
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)
            _logged.add(text)


def passes(error: OSError) -> bool:
    """True for what another try may not meet: a full disk, say."""
    return error.errno in _PASSING

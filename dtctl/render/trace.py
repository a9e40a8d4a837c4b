"""`dtctl -v`: what is done on which host, on stderr."""

from __future__ import annotations

import logging

from dtctl.render.terminal import console
from dtctl.render.terminal.safe import lines_of


def show_trace() -> None:
    """Shows what dtctl's own loggers say; request bodies, which may hold secrets, are never logged."""
    handler = _Told()
    handler.setFormatter(logging.Formatter("%(relativeCreated)6d ms  %(message)s"))
    logger = logging.getLogger("dtctl")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


class _Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        for line in lines_of(self.format(record)):
            console.tell(line)

"""`dtctl -v`: what is done on which host, on stderr."""

from __future__ import annotations

import logging
import sys


def show_trace() -> None:
    """Shows what dtctl's own loggers say; request bodies, which may hold secrets, are never logged."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(relativeCreated)6d ms  %(message)s"))
    logger = logging.getLogger("dtctl")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

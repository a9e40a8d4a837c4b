"""Sessions that only read: the machines of the run have been given back, and nothing of it may start here."""

from __future__ import annotations

import os

READ_ONLY = "DTCTL_READ_ONLY"
"""Set by the controller for a session beside the files of a run whose machines are gone."""


def is_read_only() -> bool:
    return bool(os.environ.get(READ_ONLY))

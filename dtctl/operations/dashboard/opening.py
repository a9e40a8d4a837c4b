"""Opens an address with a secret in it in the user's browser."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(page: str) -> Iterator[None]:
    """`page` leads to it: a file for the user alone, because all users of a machine see what programs are started with.

    The file is there for as long as this is entered.
    """
    with tempfile.TemporaryDirectory(prefix="dtctl-") as directory:
        file = Path(directory, "dashboard.html")
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write(page)
        webbrowser.open(file.as_uri())
        yield

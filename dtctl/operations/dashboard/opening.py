"""Opens an address with a secret in it in the user's browser."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager

from dtctl.places import temporary_folder


@contextmanager
def opened(page: str) -> Iterator[None]:
    """`page` leads to it: a file for the user alone, because all users of a machine see what programs are started with.

    The file is there for as long as this is entered.
    """
    with temporary_folder("dtctl-") as folder:
        with folder.new("dashboard.html") as file:
            file.write(page.encode())
        webbrowser.open((folder.path / "dashboard.html").as_uri())
        yield

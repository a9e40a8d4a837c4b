"""What is shown to a browser of this machine: its options, and the port."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from dtctl.errors import UsageError

Port = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port of this machine; a free one if 0.")
]
OpenIt = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]


def listener(port: int, *, apart: bool = False) -> socket.socket:
    """On loopback alone; 0 takes a free one. `apart`: see `webserver.listen`."""
    from dtctl.operations.webserver import listen

    try:
        return listen(port, apart=apart)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot listen on 127.0.0.1:{port}: {why}", hint="--port 0 takes a free one") from error

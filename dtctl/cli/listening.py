"""A port of this machine for a browser of this machine."""

from __future__ import annotations

import socket

from dtctl.errors import UsageError


def listener(port: int) -> socket.socket:
    """On loopback alone; 0 takes a free one."""
    from dtctl.operations.board.tunnel import listen

    try:
        return listen(port)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot listen on 127.0.0.1:{port}: {why}", hint="--port 0 takes a free one") from error

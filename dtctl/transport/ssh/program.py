"""Runs OpenSSH's client for an answer."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

from dtctl.errors import TransportError


def run(words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    """Runs `ssh`, without a terminal. Raises TransportError if there is none, and if it takes too long."""
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, start_new_session=True
        )
    except FileNotFoundError as error:
        raise no_program() from error
    except subprocess.TimeoutExpired as error:
        raise TransportError(f"`ssh` has not ended within {timeout_s:g} s", detail=shlex.join(words)) from error


def no_program() -> TransportError:
    return TransportError(
        "there is no `ssh` on this machine", hint="install OpenSSH's client, or leave out `ssh: {client: openssh}`"
    )

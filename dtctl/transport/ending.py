"""How the process at the other end of a conversation has ended, and why it may never have begun."""

from __future__ import annotations

from dataclasses import dataclass

from dtctl.errors import TransportError


@dataclass(frozen=True)
class RemoteExit:
    """How a remote process ended, as far as it is known."""

    exit_code: int | None = None
    signal: str = ""
    stderr: bytes = b""
    """The end of it."""
    reason: str = ""
    """Why the connection ended, when it was not the process that ended."""

    def __str__(self) -> str:
        if self.signal:
            return f"it was ended by {self.signal}"
        if self.exit_code is not None:
            return f"it ended with exit code {self.exit_code}"
        return self.reason or "the connection was closed by the other side"


def not_started(name: str, ending: RemoteExit, noise: bytes) -> TransportError:
    """Why the remote command ended before the agent said a word; the shell's exit codes are those of POSIX."""
    said = "\n".join(filter(None, [text_of(noise), text_of(ending.stderr)]))
    if ending.exit_code == 127:
        return TransportError(
            f"{name} has no python3",
            detail=said,
            hint="install Python 3.8 or later there, on the PATH that commands over SSH get",
        )
    if ending.exit_code == 126:
        return TransportError(f"python3 on {name} cannot be run", detail=said)
    return TransportError(
        f"the agent does not start on {name}",
        detail="\n".join(filter(None, [f"the login shell was to run python3: {ending}", said])),
        hint=f"dtctl ssh {name}    shows what a login prints",
    )


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()

"""The user's own systemd (user@.service), and whether it lives without a login: lingering, loginctl(1)."""

from __future__ import annotations

import os

from ..host import machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

_RUNTIME_DIRECTORY = "XDG_RUNTIME_DIR"

LIMIT_S = 10.0
"""How long one question to systemd may take: it may hang."""


def problem() -> str:
    """Why it is of no use to us, else empty. Makes the user linger where that needs no password."""
    if ask("systemctl", "--user", "show-environment") is None:
        return "systemctl --user does not work here"
    if not lingers():
        ask("loginctl", "--no-ask-password", "enable-linger")
    return "" if lingers() else "lingering is off, and only root can switch it on"


def scope() -> List[str]:
    """Words before a command that is to run there, in a scope of its own; it stays a child of who starts it."""
    name = _RUNTIME_DIRECTORY
    return [
        "env",
        "%s=%s" % (name, _environment()[name]),
        "systemd-run",
        "--user",
        "--scope",
        "--quiet",
        "--collect",
        "--",
    ]


def lingers() -> bool:
    return ask("loginctl", "show-user", machine.user_name(), "--property=Linger", "--value") == "yes"


def ask(*words: str) -> Optional[str]:
    """What the command prints, stripped; None when it is not there, fails, or does not come to an end."""
    import subprocess

    try:
        done = subprocess.run(
            words,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
            env=_environment(),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()


def _environment() -> Dict[str, str]:
    """A command over SSH may lack what a login sets; and the output has to be the same in every locale."""
    variables = dict(os.environ, LC_ALL="C")
    variables.setdefault(_RUNTIME_DIRECTORY, "/run/user/%d" % os.geteuid())
    return variables

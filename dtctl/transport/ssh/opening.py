"""paramiko without Invoke, which it imports for `Match exec` alone, and which is a third of a command's start."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType

    from dtctl.transport.means import Means
    from dtctl.transport.ssh.transport import SshTransport

_NAME = "invoke"
_MATCH_EXEC = re.compile(r"^\s*match\b.*\bexec\b", re.IGNORECASE | re.MULTILINE)


def open_transport(means: Means) -> SshTransport:
    import_paramiko()
    from dtctl.transport.ssh.transport import SshTransport

    return SshTransport.of(means)


def import_paramiko(ssh_config: str = "") -> None:
    """Before anything else does. `ssh_config` is the text that paramiko is to read."""
    if "paramiko" not in sys.modules and _NAME not in sys.modules:
        sys.modules[_NAME] = cast("ModuleType", None)  # which Python takes for a module that is not there
        try:
            import_module("paramiko")
        finally:
            del sys.modules[_NAME]
    if _MATCH_EXEC.search(ssh_config):
        config = import_module("paramiko.config")
        config.invoke = import_module(_NAME)  # type: ignore[attr-defined]

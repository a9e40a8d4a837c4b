"""What every transport is made from; each takes what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.timeouts import Waiting, unobserved


@dataclass(frozen=True)
class TransportOptions:
    local_root: Path | None = None
    """Where agents of this machine keep their files, in place of ~/.dtctl."""
    ssh_files: ConfigFiles = field(default_factory=ConfigFiles)
    passphrase: Callable[[str], str | None] | None = None
    """Asked for a key file's passphrase, once per key; None where nobody can be asked."""
    waiting: Waiting = unobserved
    """Told of hosts that are silent, before they are given up."""

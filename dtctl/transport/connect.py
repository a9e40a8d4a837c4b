"""One transport for all hosts: each is reached as its own settings say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.model import Host, SshSettings
from dtctl.transport.seam import Session, Transport
from dtctl.transport.silence import Waiting, untold
from dtctl.transport.ssh.config import ConfigFiles

if TYPE_CHECKING:
    from dtctl.transport.local import LocalTransport
    from dtctl.transport.ssh.transport import SshTransport
    from dtctl.transport.ssh.trust import Trust


class Transports:
    """Opens conversations with hosts of either kind. SSH is imported when the first host needs it.

    `local_root`: where agents of this machine keep their files, in place of ~/.dtctl.
    `ssh_config`: in place of ~/.ssh/config and /etc/ssh/ssh_config, as ssh -F.
    `passphrase`: asked for a key file's passphrase, once per key; None where nobody can be asked.
    `waiting`: told of hosts that are silent, before they are given up.
    """

    def __init__(
        self,
        *,
        local_root: Path | None = None,
        ssh_config: Path | None = None,
        passphrase: Callable[[str], str | None] | None = None,
        waiting: Waiting = untold,
    ) -> None:
        self._local_root = local_root
        self._files = ConfigFiles(ssh_config)
        self._passphrase = passphrase
        self._waiting = waiting
        self._lock = threading.Lock()
        self._ssh: SshTransport | None = None

    def open(self, host: Host) -> Session:
        return self._transport(host).open(host)

    def hostname(self, settings: SshSettings) -> str:
        """The name or address that SSH connects to."""
        return self._files.hostname(settings)

    def trust(self) -> Trust:
        """The part that looks up host keys and pins them."""
        from dtctl.transport.ssh.trust import Trust

        return Trust(self._over_ssh().logins)

    def _transport(self, host: Host) -> Transport:
        return self._here() if host.is_local else self._over_ssh()

    def _here(self) -> LocalTransport:
        from dtctl.transport.local import LocalTransport

        return LocalTransport(self._local_root, waiting=self._waiting)

    def _over_ssh(self) -> SshTransport:
        from dtctl.transport.ssh.transport import SshTransport

        with self._lock:
            if self._ssh is None:
                self._ssh = SshTransport(self._files, self._passphrase, self._waiting)
            return self._ssh

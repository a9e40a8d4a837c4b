"""The store of known host keys: several files as one, for many threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from dtctl.transport.ssh import known_hosts_file
from dtctl.transport.ssh.hostkeys import HostKey, KnownFile, Pinned, parse_known_hosts


class KnownHosts:
    """Several known_hosts files as one, each read once. Safe for many threads."""

    def __init__(self) -> None:
        self._files: dict[Path, KnownFile] = {}
        self._lock = threading.Lock()

    def of(self, name: str, files: Sequence[Path]) -> list[Pinned]:
        """The lines for a host (`host_key_name`), in the order of the files; a missing file is an empty one."""
        with self._lock:
            return [pinned for file in files for pinned in self._read(file).of(name)]

    def _read(self, file: Path) -> KnownFile:
        if file not in self._files:
            self._files[file] = KnownFile(parse_known_hosts(known_hosts_file.read(file), file))
        return self._files[file]

    def pin(self, name: str, keys: Iterable[HostKey], file: Path) -> None:
        """Adds lines for a host to a file, which is made if it is missing (0600); lines that it has are not doubled."""
        with self._lock, known_hosts_file.locked(file) as descriptor:
            there = {pinned.key for pinned in self._again(file).of(name) if not pinned.revoked}
            known_hosts_file.append(descriptor, [f"{name} {key.type} {key.base64}" for key in keys if key not in there])
            self._again(file)

    def learn(self, name: str, key: HostKey, file: Path) -> list[Pinned]:
        """Pins the first key that was ever seen of a host.

        If another thread or program was faster nothing is added; the lines that it wrote are given back, to be checked.
        """
        with self._lock, known_hosts_file.locked(file) as descriptor:
            pinned = [line for line in self._again(file).of(name) if not line.revoked or line.key == key]
            if not pinned:
                known_hosts_file.append(descriptor, [f"{name} {key.type} {key.base64}"])
                self._again(file)
            return pinned

    def _again(self, file: Path) -> KnownFile:
        self._files.pop(file, None)
        return self._read(file)

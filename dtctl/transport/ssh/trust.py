"""Finding out the keys of hosts, for `dtctl trust`: a person compares their fingerprints, then they are pinned."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.errors import TransportError
from dtctl.model import SshSettings
from dtctl.transport.ssh.connection import HostKeys

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.ssh.known_hosts import HostKey
    from dtctl.transport.ssh.login import Logins
    from dtctl.transport.ssh.protocol import SshProtocol


@dataclass(frozen=True)
class Station:
    """A host on the way to one of the inventory, or that host itself; each has keys of its own."""

    name: str
    settings: SshSettings
    where: str = ""
    """Its name, with the address and the port that are dialled."""


class Trust:
    """Looks at host keys without logging in. Safe for many threads."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins

    def route(self, host: Host) -> list[Station]:
        """The gateways, nearest first, and the host. Each must be trusted before the next can be looked at."""
        assert isinstance(host.reach, SshSettings)
        gateways = [(hop.target, hop) for hop in self._logins.hops(host.reach)]
        stations = [*gateways, (host.name, host.reach)]
        return [Station(name, hop, str(self._logins.host_keys(name, hop).destination)) for name, hop in stations]

    def pinned(self, station: Station) -> list[HostKey]:
        """Its keys that are known by now."""
        return self._keys(station).pinned()

    def scan(self, station: Station) -> list[HostKey]:
        """The keys that it shows, one of each type. Raises TransportError, also for a gateway that is not trusted."""
        first = self._look(station, ())
        shown = {first.key.type: first.key}
        for key_type in first.offered:
            if key_type not in shown:
                with suppress(TransportError):  # Dropbear offers types of which it then has no key
                    shown[key_type] = self._look(station, (key_type,)).key
        return list(dict.fromkeys(shown.values()))

    def compare(self, station: Station, keys: Iterable[HostKey]) -> None:
        """Raises HostKeyError when it shows none of the keys that are pinned for it."""
        judge, shown = self._keys(station), list(keys)
        if not set(shown) & set(judge.pinned()):
            judge.compare(shown[0], judge.known.of(judge.name, judge.files))

    def pin(self, station: Station, keys: Iterable[HostKey]) -> Path:
        """Adds the keys to the known_hosts file of the host, which is given back."""
        return self._logins.pin(self._keys(station), keys)

    def _keys(self, station: Station) -> HostKeys:
        return self._logins.host_keys(station.name, station.settings)

    def _look(self, station: Station, types: tuple[str, ...]) -> Shown:
        keys = self._keys(station)
        looking = Looking(keys.destination, keys.name, keys.known, keys.files, wanted=types)
        try:
            self._logins.log_in_if(looking, station.settings)
        except Shown as shown:
            return shown
        raise AssertionError("a key is looked at before the login")


class Shown(Exception):
    """Ends a connection as soon as the host has shown a key."""

    def __init__(self, key: HostKey, offered: list[str]) -> None:
        self.key = key
        self.offered = offered
        """Types of all keys that the host has."""


@dataclass(frozen=True)
class Looking(HostKeys):
    """In place of a judgement: looks at the key and goes away."""

    wanted: tuple[str, ...] = ()

    def types(self) -> list[str]:
        return list(self.wanted)

    def check(self, key: HostKey, protocol: SshProtocol) -> None:
        raise Shown(key, [_key_type(name) for name in protocol.offered_key_types() if name in protocol.key_types()])


def _key_type(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm

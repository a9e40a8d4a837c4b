"""Finding out the keys of hosts, for `dtctl trust`: a person compares their fingerprints, then they are pinned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.dataclass import dataclass
from dtctl.model import SshSettings

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.ssh.known_hosts import HostKey
    from dtctl.transport.ssh.route import HostKeys, Routes


@dataclass(frozen=True)
class Station:
    """A host on the way to one of the inventory, or that host itself; each has keys of its own."""

    name: str
    settings: SshSettings
    where: str = ""
    """Its name, with the address and the port that are dialled."""


class Trust:
    """Looks at host keys without logging in. Safe for many threads."""

    def __init__(self, routes: Callable[[SshSettings], Routes]) -> None:
        self._of = routes
        """By the client that the settings name."""

    def route(self, host: Host) -> list[Station]:
        """The gateways, nearest first, and the host. Each must be trusted before the next can be looked at."""
        assert isinstance(host.reach, SshSettings)
        routes = self._of(host.reach)
        gateways = [(hop.target, hop) for hop in routes.hops(host.reach)]
        stations = [*gateways, (host.name, host.reach)]
        return [Station(name, hop, str(routes.host_keys(name, hop).destination)) for name, hop in stations]

    def pinned(self, station: Station) -> list[HostKey]:
        """Its keys that are known by now."""
        return self._keys(station).pinned()

    def scan(self, station: Station) -> list[HostKey]:
        """The keys that it shows, one of each type. Raises TransportError, also for a gateway that is not trusted."""
        return self._of(station.settings).scan(station.name, station.settings)

    def compare(self, station: Station, keys: Iterable[HostKey]) -> None:
        """Raises HostKeyError when it shows none of the keys that are pinned for it."""
        self._keys(station).judge(list(keys))

    def pin(self, station: Station, keys: Iterable[HostKey]) -> Path:
        """Adds the keys to the known_hosts file of the host, which is given back."""
        return self._of(station.settings).pin(self._keys(station), keys)

    def _keys(self, station: Station) -> HostKeys:
        return self._of(station.settings).host_keys(station.name, station.settings)

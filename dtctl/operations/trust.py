"""Find out the keys of hosts and of the gateways before them, and pin them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host, SshSettings
from dtctl.transport.fanout import fan_out

if TYPE_CHECKING:
    from dtctl.transport.connect import Transports
    from dtctl.transport.ssh.known_hosts import HostKey
    from dtctl.transport.ssh.route import Station


@dataclass(frozen=True)
class NewKeys:
    """What a host without a pinned key shows."""

    station: Station
    keys: Sequence[HostKey]


@dataclass(frozen=True)
class KeyScan:
    """One look at the hosts. A host behind a gateway can be looked at when the gateway has been pinned."""

    new: tuple[NewKeys, ...]
    known: tuple[str, ...]
    """Hosts that show a key that is pinned."""
    errors: Mapping[str, DtctlError]


def look(transport: Transports, hosts: Iterable[Host]) -> KeyScan:
    """Scans the next unknown host on the way to each; those that are known are compared with what is pinned."""
    stations: dict[str, Station] = {}
    for host in hosts:
        if isinstance(host.reach, SshSettings):
            way = transport.stations(host)
            station = next((one for one in way if not one.keys.pinned()), way[-1])
            stations[station.name] = station
    outcomes = fan_out(stations.values(), lambda station: station.scan())
    unknown = [name for name in outcomes.results if not stations[name].keys.pinned()]
    changed: dict[str, DtctlError] = {}
    for name in outcomes.results.keys() - set(unknown):
        try:
            stations[name].keys.judge(outcomes.results[name])
        except DtctlError as error:
            changed[name] = error
    return KeyScan(
        new=tuple(NewKeys(stations[name], outcomes.results[name]) for name in unknown),
        known=tuple(name for name in outcomes.results if name not in unknown and name not in changed),
        errors={**outcomes.errors, **changed},
    )


def pin(new: Iterable[NewKeys]) -> tuple[Path, ...]:
    """The files that were written."""
    return tuple(dict.fromkeys(one.station.pin(one.keys) for one in new))

"""The address of a host, its gateways and the keys it may show, from the cluster file and ssh_config."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.dataclass import dataclass
from dtctl.errors import TransportError
from dtctl.model import SshSettings
from dtctl.transport.ssh import errors, known_hosts
from dtctl.transport.ssh.config import (
    ConfigFiles,
    configured_known_hosts,
    known_hosts_files,
    last_gateway,
    users_known_hosts,
)
from dtctl.transport.ssh.errors import Destination
from dtctl.transport.ssh.known_hosts import HostKey, KnownHosts, Pinned, host_key_name

if TYPE_CHECKING:
    from dtctl.transport.ssh.protocol import SshProtocol

FAILURE_KEPT_S = 5.0
"""How long a failed login is remembered, so that a hundred hosts do not try, one after the other, a gateway that times
out or bans clients with too many failures."""

LONGEST_TIMEOUT_S = 86400.0
"""The longest timeout; the kernel does not accept weeks."""


@dataclass(frozen=True)
class HostKeys:
    """The trusted keys of one host."""

    destination: Destination
    name: str
    """The name in known_hosts (`host_key_name`, or HostKeyAlias)."""
    known: KnownHosts
    files: Sequence[Path]
    """known_hosts files."""
    accept_new: bool = False
    said: Path | None = None
    """The first of the files, if a cluster file names it."""
    project: Path | None = None
    """The directory of that cluster file."""
    users: Sequence[Path] = ()
    """Those of the files that are the user's own, for new keys."""

    @property
    def own_file(self) -> Path:
        """The file for new keys.

        Raises TransportError if the files keep nothing, or if the cluster file may not choose it.
        """
        for file in self.users:
            if file == Path(os.devnull):
                continue
            if file == self.said:
                known_hosts.check_place(file, self.project)
            return file
        raise TransportError(
            f"there is no file to keep the host key of {self.destination.name} in",
            hint=errors.NO_FILE,
        )

    def pinned(self) -> list[HostKey]:
        """The pinned keys, in the order of the files."""
        return [line.key for line in self.known.of(self.name, self.files) if not line.revoked]

    def types(self) -> list[str]:
        """Key types to request first."""
        return [key.type for key in self.pinned()]

    def check(self, key: HostKey, protocol: SshProtocol) -> None:
        """Raises HostKeyError unless the key is trusted."""
        lines = self.known.of(self.name, self.files)
        # A host of which keys are revoked, but none is known, is a new one (`check_key_in_hostkeys`, hostfile.c).
        if self.accept_new and not any(not line.revoked or line.key == key for line in lines):
            lines = self.known.learn(self.name, key, self.own_file)
            if not lines:
                return
        self.compare(key, lines)

    def require_trusted(self, shown: Sequence[HostKey]) -> None:
        """Raises HostKeyError if none of the keys that a host has shown can be trusted."""
        lines = self.known.of(self.name, self.files)
        revoked = {line.key for line in lines if line.revoked}
        pinned = {line.key for line in lines} - revoked
        may_know_others = self.accept_new or self._has_authority()
        if not set(shown) & pinned and (pinned or revoked or not may_know_others):
            types = {key.type for key in pinned}
            self.compare(min(shown, key=lambda key: (key not in revoked, key.type not in types)), lines)

    def needs_certificate(self) -> bool:
        """Whether no key of the host is known, and a certificate authority vouches for it: OpenSSH checks that."""
        return not self.pinned() and self._has_authority()

    def _has_authority(self) -> bool:
        return any(known_hosts.has_authority(known_hosts.read(file), self.name) for file in self.files)

    def compare(self, key: HostKey, pinned: Sequence[Pinned]) -> None:
        """Raises HostKeyError unless the key is one of those in the lines, and not revoked."""
        same = [line for line in pinned if line.key == key]
        for line in same:
            if line.revoked:
                raise errors.revoked_key(self.destination, key, line)
        if same:
            return
        others = [line for line in pinned if not line.revoked]
        if not others:
            can_pin = any(file != Path(os.devnull) for file in self.users)
            raise errors.unknown_key(self.destination, key, self.files, can_pin=can_pin)
        # Pinned types are requested first: a host with one of those keys would have shown it.
        nearest = next((line for line in others if line.key.type == key.type), others[0])
        raise errors.changed_key(self.destination, self.name, key, nearest)


@dataclass(frozen=True)
class Station:
    """A host on the route to one of the inventory, or that host itself; each has keys of its own."""

    name: str
    settings: SshSettings
    routes: Routes

    @property
    def keys(self) -> HostKeys:
        return self.routes.host_keys(self.name, self.settings)

    @property
    def where(self) -> str:
        """Its name, with the address and the port that are dialled."""
        return str(self.keys.destination)

    def scan(self) -> list[HostKey]:
        """Does what `Routes.scan` does; fails also if a gateway is not trusted."""
        return self.routes.scan(self.name, self.settings)

    def pin(self, keys: Iterable[HostKey]) -> Path:
        """Does what `Routes.pin` does."""
        return self.routes.pin(self.keys, keys)


class Routes:
    """Facts about a host that both clients need before they connect. Safe for many threads."""

    def __init__(self, files: ConfigFiles) -> None:
        self.files = files
        self.known_hosts = KnownHosts()

    def hops(self, settings: SshSettings) -> list[SshSettings]:
        """The jump hosts on the route, nearest first, as settings of their own."""
        found: list[SshSettings] = []
        gateway = self._gateway(settings)
        while isinstance(gateway, SshSettings):
            if gateway in found:
                raise TransportError(f"the jump hosts of {settings.target} form a circle", hint="check ProxyJump")
            found.insert(0, gateway)
            gateway = self._gateway(gateway)
        return found

    def stations(self, name: str, settings: SshSettings) -> list[Station]:
        """The gateways to a host, nearest first, and the host: each must be trusted before the next can be scanned."""
        hops = [(hop.target, hop) for hop in self.hops(settings)]
        return [Station(each, own, self) for each, own in (*hops, (name, settings))]

    def host_keys(self, name: str, settings: SshSettings, trust: str = "") -> HostKeys:
        """The rules for trusting a host's keys; `trust` is the host for which `dtctl trust` pins them."""
        options = self.files.lookup(settings)
        to = Destination(name, str(options["hostname"]), _port(options), trust, settings.identity_file)
        alias = options.get("hostkeyalias")
        return HostKeys(
            to,
            host_key_name(str(alias)) if alias else host_key_name(to.address, to.port),
            self.known_hosts,
            known_hosts_files(settings, options),
            accept_new=settings.host_keys == "accept-new",
            said=configured_known_hosts(settings),
            project=Path(settings.project) if settings.project else None,
            users=users_known_hosts(settings, options),
        )

    def scan(self, name: str, settings: SshSettings) -> list[HostKey]:
        """The keys that a host shows before any login, one of each type. Raises TransportError."""
        raise NotImplementedError

    def pin(self, host_keys: HostKeys, keys: Iterable[HostKey]) -> Path:
        """Trusts these keys from now on. Returns the file that they are written to."""
        self.known_hosts.pin(host_keys.name, keys, host_keys.own_file)
        return host_keys.own_file

    def _gateway(self, settings: SshSettings) -> SshSettings | str | None:
        """The last jump host before the target, or a ProxyCommand, or None. The first to be set wins, as in OpenSSH."""
        options = self.files.lookup(settings)
        first = next((key for key in options if key in ("proxyjump", "proxycommand")), None)
        if first == "proxycommand" and not settings.jump:
            command: str | None = options["proxycommand"]
            return command
        jump = settings.jump or options.get("proxyjump", "none")
        if jump.lower() == "none":
            return None
        gateway = last_gateway(settings, jump)
        own = self.files.lookup(gateway)
        is_itself = (own["hostname"], _port(own)) == (options["hostname"], _port(options))
        return None if is_itself else gateway  # `Host *` with a ProxyJump is meant for all other hosts


def _port(options: Mapping[str, Any]) -> int:
    try:
        return int(options.get("port", 22))
    except ValueError as error:
        raise TransportError(f"Port {options['port']} in the SSH configuration is not a number") from error


def forwards_agent(to: Destination, settings: SshSettings, options: Mapping[str, Any]) -> bool:
    """Whether the host may use this machine's ssh-agent, which the user's own configuration has to allow, too.

    A cluster file may come from elsewhere. Raises TransportError if only that file says so.
    """
    if settings.forward_agent and str(options.get("forwardagent", "no")).lower() != "yes":
        raise errors.forwards_no_agent(to, settings.target)
    return settings.forward_agent


def connect_timeout(settings: SshSettings, options: Mapping[str, Any]) -> float:
    """The timeout of the cluster file; if it has none, ConnectTimeout of ssh_config."""
    unsaid = settings.connect_timeout_s == SshSettings.connect_timeout_s
    configured = str(options.get("connecttimeout", ""))
    timeout_s = float(configured) if unsaid and configured.isdecimal() else settings.connect_timeout_s
    return min(timeout_s, LONGEST_TIMEOUT_S)

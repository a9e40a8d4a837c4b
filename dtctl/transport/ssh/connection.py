"""Fabric's Connection, made strict and told what it may rely on.

Fabric itself accepts any host key, makes gateways that do so too (`Connection.get_gateway` knows only its own class,
and visits the hops of ProxyJump in reverse), and runs a ProxyCommand through pipes that paramiko polls. So gateways are
always given to it, the first socket is ours, and everything about keys goes through a policy.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabric import Config, Connection
from paramiko.client import MissingHostKeyPolicy

from dtctl.errors import TransportError
from dtctl.transport.fanout import ALONE_S, Still, idle
from dtctl.transport.local import Child
from dtctl.transport.ssh import errors, known_hosts
from dtctl.transport.ssh.known_hosts import HostKey, Pinned
from dtctl.transport.ssh.protocol import DEAD_AFTER_S, SshProtocol

if TYPE_CHECKING:
    from paramiko.pkey import PKey

    from dtctl.transport.ssh.errors import Destination
    from dtctl.transport.ssh.known_hosts import KnownHosts

PROXY_END_S = 1.0


@dataclass(frozen=True)
class HostKeys:
    """What may be believed of one host's keys."""

    destination: Destination
    name: str
    """In known_hosts (`host_key_name`, or HostKeyAlias)."""
    known: KnownHosts
    files: Sequence[Path]
    """known_hosts files."""
    accept_new: bool = False
    said: Path | None = None
    """The first of the files, where a cluster file has chosen it."""
    project: Path | None = None
    """The directory of that cluster file."""

    @property
    def own_file(self) -> Path:
        """Where new keys belong. Raises TransportError if the files keep nothing, or if it is not theirs to choose."""
        for file in self.files:
            if file == Path(os.devnull):
                continue
            if file == self.said:
                known_hosts.check_place(file, self.project)
            return file
        raise TransportError(
            f"there is no file to keep the host key of {self.destination.name} in",
            hint="set `ssh: {known_hosts: PATH}`, or UserKnownHostsFile in ~/.ssh/config",
        )

    def pinned(self) -> list[HostKey]:
        """In the order of the files."""
        return [line.key for line in self.known.of(self.name, self.files) if not line.revoked]

    def types(self) -> list[str]:
        """Key types to ask for first."""
        return [key.type for key in self.pinned()]

    def check(self, key: HostKey, protocol: SshProtocol) -> None:
        """Raises HostKeyError."""
        lines = self.known.of(self.name, self.files)
        # A host of which keys are revoked, but none is known, is a new one (`check_key_in_hostkeys`, hostfile.c).
        if self.accept_new and not any(not line.revoked or line.key == key for line in lines):
            lines = self.known.learn(self.name, key, self.own_file)
            if not lines:
                return
        self.compare(key, lines)

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
            raise errors.unknown_key(self.destination, key, self.files)
        # The pinned types were asked for first: a host that has one of those keys would have shown it.
        nearest = next((line for line in others if line.key.type == key.type), others[0])
        raise errors.changed_key(self.destination, self.name, key, nearest)


class Policy(MissingHostKeyPolicy):
    """Asked about every key, because paramiko is given no known_hosts of its own."""

    def __init__(self, keys: HostKeys) -> None:
        self._keys = keys

    def missing_host_key(self, client: Any, hostname: str, key: PKey) -> None:
        self._keys.check(HostKey(key.get_name(), key.asbytes()), client.get_transport())


class StrictConnection(Connection):  # type: ignore[misc]
    """One attempt to log in to one host. `open` raises whatever paramiko raises, and HostKeyError and LoginRefused."""

    # What the class does not have Fabric takes for a setting and writes into its configuration, which is shared by all
    # threads here; inline_ssh_env is its own.
    inline_ssh_env: bool | None = None
    host_keys: HostKeys | None = None
    protocol: SshProtocol | None = None
    proxy: ProxyCommand | None = None
    socket: Any = None
    timeout_s = 0.0
    opened_at = 0.0
    still: Still | None = None

    def __init__(
        self, host: str, host_keys: HostKeys, gateway: Connection | str | None, timeout_s: float, config: Config
    ) -> None:
        super().__init__(
            host,
            config=config,
            gateway=gateway or False,
            forward_agent=False,
            connect_timeout=max(1, round(timeout_s)),
            connect_kwargs={
                "transport_factory": self._make_protocol,
                "banner_timeout": timeout_s,
                "auth_timeout": timeout_s,
                "channel_timeout": timeout_s,
            },
        )
        self.host_keys = host_keys
        self.timeout_s = timeout_s
        self.client.set_missing_host_key_policy(Policy(host_keys))

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):  # faster than Fabric's look at all names, for each of thirty attributes
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def _make_protocol(self, sock: Any, **options: Any) -> SshProtocol:
        assert self.host_keys is not None
        self.protocol = SshProtocol(sock, self.host_keys.types(), **options)
        self.protocol.handshake_timeout = self.timeout_s
        self.protocol.greeted = self._greeted
        return self.protocol

    def _greeted(self) -> None:
        if self.still is not None:
            self.still(time.monotonic() + ALONE_S)

    def open(self) -> Any:
        if self.is_connected:
            return None
        self.opened_at = time.monotonic()
        try:
            with idle() as self.still:
                if not self.gateway:
                    self.socket = self.connect_kwargs["sock"] = dial(self.host, self.port, self.timeout_s)
                result = super().open()
            assert self.protocol is not None
            self.protocol.settle()
        except BaseException:
            self.close()
            raise
        return result

    def is_late(self) -> bool:
        """Whether an attempt has taken all of its time."""
        return time.monotonic() - self.opened_at >= self.timeout_s

    def open_gateway(self) -> Any:
        if isinstance(self.gateway, str):
            self.proxy = ProxyCommand(self.gateway)
            return self.proxy.connection
        return super().open_gateway()

    def close(self) -> None:
        self.client.close()
        if self.socket is not None:
            self.socket.close()
        if self.proxy is not None:
            self.proxy.close()


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """A TCP connection to the first address that answers, watched by the kernel for a dead peer."""
    try:
        connection = socket.create_connection((host, port), timeout=timeout_s)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "no host can have such a name") from error
    with contextlib.suppress(OSError):
        _watch(connection)
    return connection


def _watch(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # For a send that is stuck, where the keepalive of SSH cannot get through: TCP_RXT_CONNDROPTIME on macOS.
    if sys.platform == "darwin":
        connection.setsockopt(socket.IPPROTO_TCP, 0x80, int(DEAD_AFTER_S))
    elif hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(DEAD_AFTER_S * 1000))


class ProxyCommand:
    """A program that is the way to the host; paramiko gets a socket, which it can wait for like for any other."""

    def __init__(self, command: str) -> None:
        self.command = command.replace("%%", "%")
        self.exit_code: int | None = None
        """Known after `close`."""
        self.stderr = ""
        self._child = Child(["/bin/sh", "-c", f"exec {self.command}"])
        self.connection = self._child.connection

    def close(self) -> None:
        self.connection.close()
        if self.exit_code is None:
            self.exit_code = self._child.wait(PROXY_END_S)
            self.stderr = self._child.stderr().decode("utf-8", "replace")
            self._child.close()

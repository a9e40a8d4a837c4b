"""Fabric's Connection, made strict and given its settings.

Fabric itself accepts any host key, makes gateways that do so too (`Connection.get_gateway` knows only its own class,
and visits the hops of ProxyJump in reverse), and runs a ProxyCommand through pipes that paramiko polls. So gateways are
always given to it, the first socket is ours, and everything about keys goes through a policy.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from fabric import Config, Connection
from paramiko.client import MissingHostKeyPolicy

from dtctl.transport.fanout import ALONE_S, Still, idle
from dtctl.transport.local import Child
from dtctl.transport.ssh.known_hosts import HostKey
from dtctl.transport.ssh.protocol import DEAD_AFTER_S, SshProtocol
from dtctl.transport.stream import RemoteExit

if TYPE_CHECKING:
    from paramiko.pkey import PKey

    from dtctl.transport.ssh.route import HostKeys

PROXY_END_S = 1.0


class Policy(MissingHostKeyPolicy):
    """Called for every key, because paramiko gets no known_hosts of its own."""

    def __init__(self, keys: HostKeys) -> None:
        self._keys = keys

    def missing_host_key(self, client: Any, hostname: str, key: PKey) -> None:
        self._keys.check(HostKey(key.get_name(), key.asbytes()), client.get_transport())


class StrictConnection(Connection):  # type: ignore[misc]
    """One attempt to log in to one host. `open` raises what paramiko raises, and HostKeyError and LoginRefused."""

    # What the class does not have Fabric takes for a setting and writes into its configuration, which is shared by all
    # threads here; inline_ssh_env is its own.
    inline_ssh_env: bool | None = None
    host_keys: HostKeys | None = None
    protocol: SshProtocol | None = None
    proxy: ProxyCommand | None = None
    socket: Any = None
    timeout_s = 0.0
    forwards_agent = False
    opened_at = 0.0
    still: Still | None = None

    def __init__(
        self,
        host: str,
        host_keys: HostKeys,
        gateway: Connection | str | None,
        timeout_s: float,
        config: Config,
        *,
        forward_agent: bool = False,
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
        self.forwards_agent = forward_agent
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

    def create_session(self) -> Any:
        channel = super().create_session()
        if self.forwards_agent:
            from dtctl.transport.ssh.forwarding import forward_agent  # imported late: few hosts get the agent

            forward_agent(channel)
        return channel

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
    name: Any = host.encode() if host.isascii() else host  # Python imports the tables of IDNA for every `str`
    try:
        connection = socket.create_connection((name, port), timeout=timeout_s)
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
    """A program through which the host is reached. paramiko gets a socket, which it can wait for as for any other."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.ending: RemoteExit | None = None
        """How it ended, known after `close`."""
        self._child = Child(["/bin/sh", "-c", f"exec {self.command}"])
        self.connection = self._child.connection

    def close(self) -> None:
        self.connection.close()
        if self.ending is None:
            self.ending = self._child.wait(PROXY_END_S)
            self._child.close()

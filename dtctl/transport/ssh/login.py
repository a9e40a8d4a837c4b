"""Logs in to a host with its settings: through its gateways, with retries, and within its timeout."""

from __future__ import annotations

import functools
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from fabric import Config
from paramiko.config import SSHConfig
from paramiko.ssh_exception import ChannelException, SSHException

from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.model import SshSettings
from dtctl.transport.ssh import errors
from dtctl.transport.ssh.config import ConfigFiles, split_target
from dtctl.transport.ssh.connection import StrictConnection
from dtctl.transport.ssh.errors import Destination
from dtctl.transport.ssh.keyring import KeyAuthentication, Keyring, LoginRefused, Passphrase
from dtctl.transport.ssh.known_hosts import HostKey
from dtctl.transport.ssh.protocol import SshProtocol
from dtctl.transport.ssh.route import FAILURE_KEPT_S, HostKeys, Routes, connect_timeout, forwards_agent


@dataclass
class Login:
    """A logged-in connection. `close` also releases the gateway that it goes through."""

    connection: StrictConnection
    destination: Destination
    lease: Lease | None = None

    def close(self) -> None:
        self.connection.close()
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()


class Gateways:
    """Shared connections to gateways, which `log_in` makes. Safe for many threads."""

    def __init__(self, log_in: Callable[[SshSettings], Login]) -> None:
        self._log_in = log_in
        self._lock = threading.Lock()
        self._shared: dict[SshSettings, _Shared] = {}

    def acquire(self, settings: SshSettings) -> Lease:
        """A live connection, opened now if there is none. Raises what `log_in` raises."""
        with self._lock:
            shared = self._shared.get(settings)
            mine = shared is None or shared.is_spent()
            if shared is None or mine:
                shared = self._shared[settings] = _Shared()
            shared.users += 1
        lease = Lease(shared, self._lock)
        try:
            if mine:
                shared.fill(lambda: self._log_in(settings))
            lease.connection = shared.opening.result().connection
        except BaseException:
            lease.release()
            raise
        return lease

    def forget_failures(self) -> None:
        """Forgets failed attempts. To be called after a change that may let the next attempt succeed."""
        with self._lock:
            self._shared = {settings: shared for settings, shared in self._shared.items() if not shared.has_failed()}


class Lease:
    """One host's use of a gateway. The last one to release it closes the connection."""

    connection: StrictConnection

    def __init__(self, shared: _Shared, lock: threading.Lock) -> None:
        self._shared = shared
        self._lock = lock

    def release(self) -> None:
        with self._lock:
            self._shared.users -= 1
            unused = self._shared.users == 0
        if unused:
            self._shared.close()


class _Shared:
    """One connection and its number of users."""

    def __init__(self) -> None:
        self.opening: Future[Login] = Future()
        self.users = 0
        self._closed = False
        self._failed_at = 0.0

    def fill(self, log_in: Callable[[], Login]) -> None:
        try:
            self.opening.set_result(log_in())
        except BaseException as error:  # raised in all threads that wait for this gateway
            self._failed_at = time.monotonic()
            self.opening.set_exception(error)

    def is_spent(self) -> bool:
        """Whether it gets no new user."""
        if self._closed:
            return True
        if not self.opening.done():
            return False
        if self.has_failed():
            return time.monotonic() - self._failed_at > FAILURE_KEPT_S
        return self.users == 0 or not self.opening.result().connection.is_connected

    def has_failed(self) -> bool:
        return self.opening.done() and self.opening.exception() is not None

    def close(self) -> None:
        if self.opening.done() and self.opening.exception() is None:
            self._closed = True
            self.opening.result().close()


FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""The longest pause between attempts while an sshd drops connections because of too many unfinished logins
(MaxStartups)."""


class Logins(Routes):
    """Logs in to hosts. What they share (files, keys, gateways) is read and opened once. Safe for many threads."""

    def __init__(self, files: ConfigFiles, passphrase: Passphrase | None = None) -> None:
        super().__init__(files)
        self._keyring = Keyring(passphrase)
        self._gateways = Gateways(self._log_in_to_gateway)
        self._configs: dict[tuple[Any, ...], Config] = {}
        self._lock = threading.Lock()

    def log_in(self, name: str, settings: SshSettings) -> Login:
        """A connection to a host; `name` is its name in the inventory. Raises TransportError."""
        self.hops(settings)  # raises if they form a circle
        return self._log_in(self.host_keys(name, settings, name), settings)

    def scan(self, name: str, settings: SshSettings) -> list[HostKey]:
        first = self._look(name, settings, ())
        shown = {first.key.type: first.key}
        for key_type in first.offered:
            if key_type not in shown:
                with suppress(TransportError):  # Dropbear offers types for which it has no key
                    shown[key_type] = self._look(name, settings, (key_type,)).key
        return list(dict.fromkeys(shown.values()))

    def pin(self, host_keys: HostKeys, keys: Iterable[HostKey]) -> Path:
        file = super().pin(host_keys, keys)
        self._gateways.forget_failures()
        return file

    def _look(self, name: str, settings: SshSettings, types: tuple[str, ...]) -> Shown:
        keys = self.host_keys(name, settings)
        looking = Looking(keys.destination, keys.name, keys.known, keys.files, wanted=types)
        try:
            self._log_in(looking, settings)
        except Shown as shown:
            return shown
        raise AssertionError("a key is looked at before the login")

    def _log_in(self, host_keys: HostKeys, settings: SshSettings) -> Login:
        gateway = self._gateway(settings)
        if not isinstance(gateway, SshSettings):
            return Login(self._connect(settings, host_keys, gateway), host_keys.destination)
        try:
            lease = self._gateways.acquire(gateway)
        except TransportError as error:
            raise errors.through_gateway(host_keys.destination, error) from error
        try:
            connection = self._connect(settings, host_keys, lease.connection)
        except BaseException:
            lease.release()
            raise
        return Login(connection, host_keys.destination, lease)

    def _log_in_to_gateway(self, settings: SshSettings) -> Login:
        return self._log_in(self.host_keys(settings.target, settings), settings)

    def _connect(
        self, settings: SshSettings, host_keys: HostKeys, via: StrictConnection | str | None
    ) -> StrictConnection:
        settings = split_target(settings)
        options = self.files.lookup(settings)
        timeout_s, agent = connect_timeout(settings, options), forwards_agent(host_keys.destination, settings, options)
        deadline = time.monotonic() + timeout_s
        for attempt in itertools.count(1):
            remaining = max(1.0, deadline - time.monotonic())
            connection = StrictConnection(
                *(settings.target, host_keys, via, remaining, self._config(settings)),
                forward_agent=agent,
            )
            try:
                connection.open()
                return connection
            except (SSHException, LoginRefused, OSError, EOFError) as error:
                failure = explain(connection, host_keys.destination, error, timeout_s)
                if failure is not None:
                    raise failure from error
            pause = random.uniform(0.5, 1.0) * min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
            if time.monotonic() + pause > deadline:
                raise errors.no_banner(host_keys.destination, attempt)
            time.sleep(pause)
        raise AssertionError("the deadline ends the loop")

    def _config(self, settings: SshSettings) -> Config:
        """Fabric's configuration: one for all hosts with the same overrides. No fabric.yaml is read."""
        key = (settings.user, settings.port, settings.identity_file)
        with self._lock:
            if key not in self._configs:
                authentication = {
                    "strategy_class": functools.partial(KeyAuthentication, keyring=self._keyring),
                    "identities": [settings.identity_file] if settings.identity_file else [],
                }
                self._configs[key] = Config(
                    overrides={"authentication": authentication},
                    ssh_config=SshOptions(self.files, settings.user, settings.port),
                    lazy=True,
                )
            return self._configs[key]


class SshOptions(SSHConfig):
    """The options of a host for Fabric, which would otherwise read ssh_config by itself."""

    def __init__(self, files: ConfigFiles, user: str | None, port: int | None) -> None:
        super().__init__()
        self._files, self._user, self._port = files, user, port

    def lookup(self, hostname: str) -> Any:
        return self._files.lookup(SshSettings(hostname, user=self._user, port=self._port))


def explain(connection: StrictConnection, to: Destination, error: BaseException, timeout_s: float) -> DtctlError | None:
    """The error for a failed attempt; None if the server was too busy and should be tried again."""
    protocol, proxy = connection.protocol, connection.proxy
    if isinstance(error, LoginRefused):
        return errors.login_timed_out(to, timeout_s) if error.late else errors.cannot_log_in(to, error)
    if protocol is None:
        if isinstance(connection.gateway, StrictConnection):
            reason = error.text if isinstance(error, ChannelException) else str(error)
            return errors.gateway_refuses(to, connection.gateway.original_host, reason)
        assert isinstance(error, OSError)
        return errors.cannot_connect(to, error, timeout_s)
    if not protocol.remote_version:
        if proxy is not None and proxy.ending is not None and proxy.ending.exit_code != 0:
            return errors.proxy_command_failed(to, proxy.command, proxy.ending)
        is_late = connection.is_late() or isinstance(error.__context__, TimeoutError)
        return errors.silent(to, timeout_s) if is_late else None
    if connection.is_late():
        return errors.login_timed_out(to, timeout_s)
    return errors.no_handshake(to, error)


class Shown(Exception):
    """Ends a connection as soon as the host has shown a key."""

    def __init__(self, key: HostKey, offered: list[str]) -> None:
        self.key = key
        self.offered = offered
        """Types of all keys that the host has."""


@dataclass(frozen=True)
class Looking(HostKeys):
    """Reads the host's key and ends the connection, in place of checking it."""

    wanted: tuple[str, ...] = ()

    def types(self) -> list[str]:
        return list(self.wanted)

    def check(self, key: HostKey, protocol: SshProtocol) -> None:
        raise Shown(key, [_key_type(name) for name in protocol.offered_key_types() if name in protocol.key_types()])


def _key_type(algorithm: str) -> str:
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm

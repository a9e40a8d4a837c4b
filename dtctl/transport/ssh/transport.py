"""The agent on a host over SSH: one connection and one exec for each conversation."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from paramiko.channel import Channel
from paramiko.ssh_exception import ChannelException, SSHException

from dtctl.model import Host, SshSettings
from dtctl.transport import payload
from dtctl.transport.fanout import ALONE_S, idle
from dtctl.transport.local import STDERR_BYTES
from dtctl.transport.ssh import errors
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.kept import OpensshTransport
from dtctl.transport.ssh.login import Login, Logins
from dtctl.transport.stream import RemoteExit, converse
from dtctl.transport.timeouts import UNOBSERVED, SilenceTimer, Waiting

if TYPE_CHECKING:
    from dtctl.transport.seam import Session, TransportOptions
    from dtctl.transport.ssh.keyring import Passphrase

READ_BYTES = 256 * 1024
WRITE_BYTES = 32 * 1024 - 64
"""The data of one packet. paramiko's `sendall` copies the whole rest for each packet, which is quadratic for 40 MB."""
NEAR_S = 0.005
"""The longest round trip to a host in the same building or town."""
NEAR_AHEAD_BYTES = 512 * 1024
"""The most unread data for such a host: OpenSSH's server copies all of it, up to 2 MiB, for each further packet."""
EXIT_STATUS_S = 5.0
"""How long the exit status may take to follow the end of the output."""


class SshTransport:
    """Runs agents over paramiko, and over OpenSSH's client on hosts that show a certificate in place of a known key.

    `passphrase` prompts for that of a key file, once for each key; None without a terminal.
    """

    def __init__(
        self, files: ConfigFiles | None = None, passphrase: Passphrase | None = None, waiting: Waiting = UNOBSERVED
    ) -> None:
        self.logins = Logins(files or ConfigFiles(), passphrase)
        self._waiting = waiting
        self._certified = OpensshTransport(self.logins.files, waiting)

    @classmethod
    def of(cls, means: TransportOptions) -> SshTransport:
        return cls(means.ssh_files, means.passphrase, means.waiting)

    def open(self, host: Host) -> Session:
        assert isinstance(host.reach, SshSettings)
        if any(station.keys.needs_certificate() for station in self.logins.stations(host.name, host.reach)):
            return self._certified.open(host)
        login = self.logins.log_in(host.name, host.reach)
        try:
            channel = _run_loader(login)
        except BaseException:
            login.close()
            raise
        return converse(host, ChannelStream(channel, login), self._waiting, begins=payload.BEGINS)


def _run_loader(login: Login) -> Channel:
    """Starts the agent. paramiko waits forever for the answer to an exec, so a timer ends the connection."""
    limit_s = login.connection.timeout_s
    late = threading.Event()

    def end() -> None:
        late.set()
        login.connection.close()

    limit = threading.Timer(limit_s, end)
    limit.daemon = True
    try:
        with idle(time.monotonic() + ALONE_S):
            channel: Channel = login.connection.create_session()
            limit.start()
            channel.exec_command(payload.BY_SHELL)
    except ChannelException as error:
        raise errors.no_session(login.destination, error.text) from error
    except (SSHException, EOFError, OSError) as error:
        why = f"it does not answer within {limit_s:g} s" if late.is_set() else str(error) or type(error).__name__
        raise errors.no_session(login.destination, why) from error
    finally:
        limit.cancel()
    if _is_near(login.connection.socket):
        channel.out_window_size = min(channel.out_window_size, NEAR_AHEAD_BYTES)  # OpenSSH grants it with the exec
    return channel


def _is_near(connection: socket.socket | None) -> bool:
    """Whether the host is near, by the shortest round trip that the kernel has seen (tcpi_min_rtt of linux/tcp.h).

    False if it is unknown.
    """
    if connection is None or sys.platform != "linux":
        return False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 152)
    except OSError:
        return False
    return len(info) == 152 and struct.unpack_from("I", info, 148)[0] < NEAR_S * 1e6


class ChannelStream:
    """A remote command's standard input and output."""

    def __init__(self, channel: Channel, login: Login) -> None:
        self._channel = channel
        self._login = login
        self._stderr = b""

    def read(self, timeout_s: float | None) -> bytes:
        self._channel.settimeout(timeout_s)
        data = self._channel.recv(READ_BYTES)
        self._drain_stderr()
        return data

    def _drain_stderr(self) -> None:
        """Reads stderr; otherwise a full window would block the remote process."""
        while self._channel.recv_stderr_ready():
            self._stderr = (self._stderr + self._channel.recv_stderr(READ_BYTES))[-STDERR_BYTES:]

    def write(self, data: bytes, silence: SilenceTimer) -> None:
        for start in range(0, len(data), WRITE_BYTES):
            self._send(data[start : start + WRITE_BYTES], silence)

    def _send(self, piece: bytes, silence: SilenceTimer) -> None:
        while piece:
            self._channel.settimeout(silence.wait_s)
            try:
                sent = self._channel.send(piece)
            except TimeoutError:  # nothing was sent; a reader's timeout in another thread may have expired
                silence.check()
                continue
            if sent == 0:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            piece = piece[sent:]
            silence.broken()

    def ending(self) -> RemoteExit:
        self._channel.status_event.wait(EXIT_STATUS_S)
        self._drain_stderr()
        code = self._channel.exit_status
        protocol: Any = self._login.connection.protocol
        silent = "the host sent nothing for a minute" if protocol.packetizer.dead else ""
        return RemoteExit(code if code >= 0 else None, stderr=self._stderr, reason=silent)

    def close(self) -> None:
        protocol: Any = self._login.connection.protocol
        if protocol.can_send():  # otherwise the last message would wait for a host that reads nothing
            with suppress(SSHException, EOFError, OSError):
                self._channel.close()
        self._login.close()

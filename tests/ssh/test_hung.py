"""An SSH server that hangs in any phase, or sends more than it may: other hosts are not affected."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paramiko
import pytest
from paramiko.common import AUTH_PARTIALLY_SUCCESSFUL, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from dtctl.errors import TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport import stream, timeouts
from dtctl.transport.seam import answering
from dtctl.transport.ssh import kept
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts.keys import make_key
from tests.ssh.conftest import Client
from tests.unit.transport.test_timeouts import GREETING
from tests.waiting import eventually

HANGS_S = 60.0
SOON_S = HANGS_S / 2
LIMITS_S = {"banner": 1.5, "auth": 5.0, "partial": 2.0, "channel": 5.0, "exec": 5.0}
"""The timeout for a login that hangs in this phase. The phases before it must also fit into it on a busy machine."""


class HungServer(paramiko.ServerInterface):
    """Accepts all logins, and hangs at `at` until it is released."""

    def __init__(self, at: str, released: threading.Event) -> None:
        self._at = at
        self._released = released

    def _reach(self, phase: str) -> None:
        if phase == self._at:
            self._released.wait(HANGS_S)

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._reach("auth")
        return int(AUTH_PARTIALLY_SUCCESSFUL if self._at == "partial" else AUTH_SUCCESSFUL)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self._reach("channel")
        return int(OPEN_SUCCEEDED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._reach("exec")
        threading.Thread(target=self._run, args=(channel,), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):  # the client has disconnected
            self._answer(channel)

    def _answer(self, channel: paramiko.Channel) -> None:
        if self._at == "greeting":
            return
        self._drain(channel)
        channel.sendall(b"\x1e" + json.dumps(GREETING).encode() + b"\n")
        if self._at == "flood":
            packet = paramiko.Message()  # beyond the channel's window, which paramiko would wait for
            packet.add_byte(b"\x5e")
            packet.add_int(channel.remote_chanid)
            packet.add_string(b"." * 30_000)
            transport: Any = channel.transport
            while not self._released.is_set() and transport.is_active():
                transport._send_user_message(packet)

    def _drain(self, channel: paramiko.Channel) -> None:
        """Reads until the agent has arrived; or nothing at all, as a host that does not read."""
        if self._at != "deaf":
            channel.settimeout(0.3)
            try:
                while channel.recv(1 << 16):
                    pass
            except TimeoutError:
                pass


@contextmanager
def hung(at: str, kind: type[HungServer] = HungServer) -> Iterator[Host]:
    released, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))
    host_key = paramiko.RSAKey.from_private_key_file(str(make_key("hung-host", "rsa", form="PEM")))
    transports: list[paramiko.Transport | socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if at == "banner":
                transports.append(connection)
                continue
            transport = paramiko.Transport(connection)
            transports.append(transport)
            transport.add_server_key(host_key)
            transport.start_server(server=kind(at, released), event=threading.Event())

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    known = Path.home() / "known_hosts"  # `ssh` itself uses only the home in /etc/passwd
    known.write_text(f"[127.0.0.1]:{port} ssh-rsa {base64.b64encode(host_key.asbytes()).decode()}\n")
    limit_s = LIMITS_S.get(at, HANGS_S)
    login = {"user": "train", "port": port, "identity_file": str(make_key("hung-user")), "known_hosts": str(known)}
    own: dict[str, Any] = {"connect_timeout_s": limit_s, "project": str(Path.home()), "client": "openssh"}
    try:
        yield Host("gpu-3", SshSettings("127.0.0.1", **(own | login)))
    finally:
        released.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for transport in transports:
            transport.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SILENCE_LIMIT_S", 1.0)
    monkeypatch.setattr(timeouts, "TOLD_AFTER_S", 0.3)
    monkeypatch.setattr(kept, "LOGIN_S", 0.0)


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        ("banner", "does not greet as SSH servers do|does not complete the login"),
        ("auth", "does not complete the login"),
        ("partial", "does not complete the login|cannot log in"),  # `ssh` shows its key repeatedly
        ("channel", "opens no session"),
        ("exec", "opens no session|did not answer"),
        ("greeting", "did not answer|silent"),
    ],
)
def test_a_hanging_server_times_out_in_every_phase_of_a_login(
    phase: str, why: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    if phase in ("exec", "greeting"):  # an `ssh` that keeps a connection waits for no answer to "exec"
        monkeypatch.setattr(stream, "GREETING_TIMEOUT_S", 1.5)
    threads = threading.active_count()
    with hung(phase) as host:
        begun = time.monotonic()
        with pytest.raises(TransportError, match=why):
            answering(client(), host)
        assert time.monotonic() - begun < SOON_S
    eventually(lambda: threading.active_count() <= threads, what="the end of the threads")


def test_a_server_whose_agent_reads_nothing_times_out(client: Client) -> None:
    with hung("deaf") as host:
        session = answering(client(), host)
        try:
            with pytest.raises(TransportError, match="gpu-3 has been silent"):
                session.send({"type": "file"}, b"x" * (8 << 20))
        finally:
            begun = time.monotonic()
            session.close()
            assert time.monotonic() - begun < SOON_S


def test_a_server_that_sends_past_its_window_loses_its_connection() -> None:
    """Nothing is read during the flood, as while `up` waits for other hosts."""
    with hung("flood") as host:
        session = answering(SshTransport(), host)
        try:
            stream: Any = session._stream  # type: ignore[attr-defined]
            eventually(lambda: not stream._login.connection.protocol.is_active(), what="the end of the connection")
            assert len(stream._channel.in_buffer) < 9 << 20
        finally:
            session.close()

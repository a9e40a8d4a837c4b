"""Conversations over a real sshd: traffic, ends and faults."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from typing import cast

import pytest

from dtctl.errors import ConnectionLost
from dtctl.model import Host, SshSettings
from dtctl.transport import payload
from dtctl.transport.seam import Session, answering
from dtctl.transport.ssh import transport as transport_module
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts.sshd import Sshd
from tests.waiting import PATIENCE_S, eventually

tiny = pytest.mark.usefixtures("tiny_agent")


def test_the_real_agent_answers(transport: SshTransport, host: Host, sshd: Sshd) -> None:
    session = answering(transport, host)
    try:
        assert session.facts["user"] == sshd.user
        session.send({"type": "runs", "cluster": None, "host": host.name, "run": None})
        assert session.receive(PATIENCE_S)["runs"] == []
    finally:
        session.close()


@pytest.mark.parametrize("size", [1, 32_704, 32_705, 5_000_000])
def test_bytes_arrive_unchanged_in_both_directions(session: Session, size: int) -> None:
    data = os.urandom(size)
    session.send({"type": "digest"}, data)
    assert session.receive(PATIENCE_S)["sha256"] == hashlib.sha256(data).hexdigest()
    session.send({"type": "give", "size": size})
    assert session.receive(PATIENCE_S).payload == b"x" * size


def test_send_to_a_stalled_reader_waits_while_another_thread_receives(session: Session) -> None:
    data = os.urandom(6_000_000)  # more than all windows and buffers on the route
    session.send({"type": "stop_reading", "seconds": 1.0})
    sender = threading.Thread(target=session.send, args=({"type": "digest"}, data))
    sender.start()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            session.receive(0.1)
    assert session.receive(PATIENCE_S)["sha256"] == hashlib.sha256(data).hexdigest()
    sender.join()


@pytest.mark.parametrize(("near_s", "least", "most"), [(60.0, 1, 512 << 10), (0.0, 1 << 20, 4 << 20)])
def test_a_near_host_gets_less_unread_data(
    monkeypatch: pytest.MonkeyPatch, sshd: Sshd, host: Host, near_s: float, least: int, most: int
) -> None:
    monkeypatch.setattr(transport_module, "NEAR_S", near_s)
    login = SshTransport(ConfigFiles(sshd.ssh_config)).logins.log_in(host.name, cast("SshSettings", host.reach))
    try:
        assert least <= transport_module._run_loader(login).out_window_size <= most
    finally:
        login.close()


def test_receive_raises_after_its_timeout(session: Session) -> None:
    with pytest.raises(TimeoutError):
        session.receive(0.05)
    with pytest.raises(TimeoutError):
        session.receive(0)
    session.send({"type": "digest"})
    assert session.receive(PATIENCE_S).type == "result"


def test_much_on_stderr_does_not_block_the_conversation(session: Session) -> None:
    for _ in range(4):
        session.send({"type": "chatter", "size": 1_000_000})
        assert session.receive(PATIENCE_S).type == "result"


def test_an_agent_that_dies_is_reported_with_its_stderr(session: Session) -> None:
    session.send({"type": "die"})
    with pytest.raises(ConnectionLost) as caught:
        session.receive(PATIENCE_S)
    assert caught.value.summary == "lost the agent on gpu-a"
    assert "exit code 3" in caught.value.detail
    assert "out of luck" in caught.value.detail


@tiny
def test_close_wakes_a_receiving_thread(transport: SshTransport, host: Host) -> None:
    session = answering(transport, host)
    ended: list[BaseException] = []

    def receive() -> None:
        try:
            session.receive()
        except ConnectionLost as error:
            ended.append(error)

    receiver = threading.Thread(target=receive)
    receiver.start()
    time.sleep(0.1)
    session.close()
    receiver.join(PATIENCE_S)
    assert not receiver.is_alive()
    assert ended


@tiny
def test_close_ends_the_remote_process_and_our_threads(transport: SshTransport, host: Host, sshd: Sshd) -> None:
    threads = threading.active_count()
    sessions = [answering(transport, host) for _ in range(3)]
    assert _remote_processes(sshd)
    for session in sessions:
        session.close()
        session.close()
    eventually(lambda: not _remote_processes(sshd), what="the end of the remote processes")
    eventually(lambda: threading.active_count() <= threads, what="the end of the threads")


@tiny
def test_a_server_that_dies_loses_the_connection(host: Host) -> None:
    with Sshd() as doomed:
        from tests.ssh.conftest import direct

        session = answering(SshTransport(), direct(doomed))
        doomed.stop()
        with pytest.raises(ConnectionLost):
            _receive_for_ever(session)
        session.close()
        doomed.start()


def test_the_loader_runs_in_every_shell() -> None:
    assert payload.BY_SHELL.count("'") == 2
    assert not set(payload.BY_SHELL) & set("$`\\!\n")


def _receive_for_ever(session: Session) -> None:
    while True:
        session.receive(PATIENCE_S)


def _remote_processes(server: Sshd) -> list[str]:
    return [line for line in server.processes() if line != "dtctl-sessions"]

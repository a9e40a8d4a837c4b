"""Sockets in the place of a kept connection of `ssh`: silent, slow, lying, or left by one that has ended."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from dtctl.model import SshSettings
from dtctl.transport.ssh import control, forks, openssh
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.control import Control, is_alive
from dtctl.transport.ssh.forks import ForkServer

Answer = Callable[[socket.socket, Event], None]
HELLO = struct.pack(">III", 8, control.HELLO, control.VERSION)
NOBODY = 65534


@contextmanager
def listening(path: Path, answer: Answer) -> Iterator[None]:
    over = Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                answer(connection, over)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        thread = Thread(target=accept)
        thread.start()
        try:
            yield
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def is_silent(connection: socket.socket, over: Event) -> None:
    over.wait(60)


def drips(connection: socket.socket, over: Event) -> None:
    connection.sendall(struct.pack(">II", control.MOST_BYTES, control.HELLO))
    while not over.wait(0.02):
        connection.sendall(b"x")


def hangs_up(connection: socket.socket, over: Event) -> None:
    pass


def speaks_http(connection: socket.socket, over: Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    over.wait(60)


def claims_much(connection: socket.socket, over: Event) -> None:
    connection.sendall(struct.pack(">II", 0xFFFFFFFF, control.HELLO))
    over.wait(60)


def is_of_another_version(connection: socket.socket, over: Event) -> None:
    connection.sendall(struct.pack(">III", 8, control.HELLO, 99))
    over.wait(60)


LISTENERS = [is_silent, drips, hangs_up, speaks_http, claims_much, is_of_another_version]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("answer", LISTENERS)
def test_whatever_listens_in_place_of_a_kept_connection_is_given_up(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HELLO_S", 0.3)
    with listening(tmp_path / "s", answer):
        assert not is_alive(tmp_path / "s")


def test_a_socket_that_an_ended_ssh_has_left_is_not_alive(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
    assert not is_alive(tmp_path / "s")
    assert not is_alive(tmp_path / "none")
    (tmp_path / "file").touch()
    assert not is_alive(tmp_path / "file")


def opens_and_lies(*frames: bytes) -> Answer:
    def answer(connection: socket.socket, over: Event) -> None:
        connection.sendall(HELLO)
        connection.recv(65536)
        for frame in frames:
            connection.sendall(frame)
        over.wait(60)

    return answer


OPENED = struct.pack(">IIII", 12, control.SESSION_OPENED, 0, 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">II", 4, control.EXIT_MESSAGE),
        struct.pack(">IIIIII", 20, control.EXIT_MESSAGE, 1, 2, 3, 4),
        struct.pack(">II", 3, control.EXIT_MESSAGE),
        struct.pack(">III", 8, 0xFFFFFFFF, 0) * 100,
    ],
)
def test_a_false_exit_of_a_kept_session_is_an_unknown_one(frame: bytes, tmp_path: Path) -> None:
    with listening(tmp_path / "s", opens_and_lies(OPENED, frame)):
        process = Control(tmp_path / "s").run("true", 60.0)
        ended = process.wait(0.3)
        process.close()
    assert ended.exit_code is None
    assert ended.reason


@pytest.mark.timeout(60)
def test_a_kept_connection_that_opens_no_session_is_given_up(tmp_path: Path) -> None:
    with listening(tmp_path / "s", opens_and_lies()):
        kept = Control(tmp_path / "s")
        with pytest.raises(OSError, match="timed out"):
            kept.run("true", 0.3)
        kept.close()


@pytest.mark.timeout(60)
def test_a_silent_fork_server_is_given_up_and_its_socket_removed(tmp_path: Path) -> None:
    server = ForkServer(tmp_path / "s")
    with listening(server._here, is_silent), pytest.raises(TimeoutError):
        server.session(0.3)
    assert not server._here.exists()
    with listening(server._here, hangs_up), pytest.raises(FileNotFoundError):
        server.session(60.0)


@pytest.mark.parametrize("there", ["\0", "/a\0b", "x" * 5000, "-oProxyCommand=x", "/no such\nplace"])
def test_a_host_names_any_socket_and_only_the_kept_ssh_hears_of_it(there: str, tmp_path: Path) -> None:
    heard: list[bytes] = []

    def answer(connection: socket.socket, over: Event) -> None:
        connection.sendall(HELLO)
        connection.settimeout(5.0)
        while os.fsencode(there) not in b"".join(heard)[12:]:  # behind the hello
            heard.append(connection.recv(65536))
        connection.sendall(struct.pack(">III", 8, 0x80000003, 0))

    before = sorted(tmp_path.iterdir())
    server = ForkServer(tmp_path / "s")
    with listening(tmp_path / "s", answer):
        server.forward(there)
    assert os.fsencode(there) in b"".join(heard)
    assert [path.name for path in sorted(tmp_path.iterdir()) if path not in before] == ["s"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what is another user's")
@pytest.mark.parametrize("what", ["another's directory", "a link of another", "open to others", "a file"])
def test_sockets_lie_only_in_a_directory_that_is_closed_to_others(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as short:
        cache = Path(short) / "c"
        place = cache / "dtctl/ssh"
        assert len(str(place)) <= openssh.LONGEST_DIRECTORY
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        place.parent.mkdir(parents=True, mode=0o700)
        if what == "a link of another":
            (cache / "theirs").mkdir()
            place.symlink_to(cache / "theirs")
            os.lchown(place, NOBODY, NOBODY)
        elif what == "a file":
            place.touch()
        elif what == "open to others":
            place.mkdir()
            place.chmod(0o777)
        else:
            place.mkdir(mode=0o700)
            os.chown(place, NOBODY, NOBODY)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(cache / "run"))
        (cache / "run").mkdir(mode=0o700)
        used = openssh.control_path(SshSettings("host", client="openssh"), ConfigFiles()).parent
        assert used.is_relative_to(cache / "run")
        assert (used.stat().st_uid, used.stat().st_mode & 0o777) == (os.geteuid(), 0o700)


def test_the_longest_socket_fits_into_the_address_of_a_socket() -> None:
    name = "0" * 16 + "." + "0" * 8 + "." + "x" * 16  # what `ssh` adds while it is new
    forked = "0" * 16 + "-" + "0" * 8
    assert openssh.LONGEST_DIRECTORY + 1 + max(len(name), len(forked)) + 1 <= 104
    assert forks.ForkServer(Path("/d") / ("0" * 16))._here.name.count("-") == 1

"""The benchmarks' line to far hosts."""

from __future__ import annotations

import socket
import threading
import time

from benchmarks.delay import relay


def test_what_goes_through_arrives_whole_and_later_in_both_directions_and_so_does_its_end() -> None:
    sent = bytes(range(256)) * 4096
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_echo, args=(server,))
        echo.start()
        with relay(server.getsockname()[1], 0.05) as line, socket.create_connection(("127.0.0.1", line.port)) as client:
            begin = time.monotonic()
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            with client.makefile("rb") as answer:
                assert answer.read() == sent
            assert time.monotonic() - begin >= 0.1
        echo.join()


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as heard:
        connection.sendall(heard.read())

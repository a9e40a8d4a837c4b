"""Whoever forwards the packets between an agent and the coordinator can read and change nothing."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.agent.link.links import Links, hello, mark_of, orders, state

MARK = "a-mark-that-no-key-or-certificate-contains"


class Forwarder:
    """Forwards one connection after the other to `port`, records what passes, and damages it when it is told to."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._forward)
        self.port = self._listener.getsockname()[1]
        self.seen = bytearray()
        self.damages = ""
        """`up`: the next bytes of an agent; `down`: the next bytes of the coordinator."""

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        self._listener.close()

    def _forward(self) -> None:
        while not self._ends.is_set():
            if select.select([self._listener], [], [], 0.1)[0]:
                self._forward_one(self._listener.accept()[0])

    def _forward_one(self, agent: socket.socket) -> None:
        with agent, socket.create_connection(("127.0.0.1", self._to)) as hub, suppress(ConnectionError):
            self._forward_both(agent, hub)

    def _forward_both(self, agent: socket.socket, hub: socket.socket) -> None:
        while not self._ends.is_set():
            for source in select.select([agent, hub], [], [], 0.1)[0]:
                data = source.recv(65536)
                if not data:
                    return
                self.seen += data
                other, way = (hub, "up") if source is agent else (agent, "down")
                other.sendall(self._changed(data, way))

    def _changed(self, data: bytes, way: str) -> bytes:
        if self.damages != way:
            return data
        self.damages = ""
        return data[:-1] + bytes([data[-1] ^ 1])


@contextmanager
def forwarder(links: Links) -> Iterator[Forwarder]:
    made = Forwarder(links.port)
    made.begin()
    try:
        yield made
    finally:
        made.end()


def test_whoever_forwards_a_link_reads_nothing_of_it(links: Links) -> None:
    with forwarder(links) as between:
        agent = links.end("dialer", f"127.0.0.1:{between.port}", links.credentials("h1"))
        agent.expect_type("connected")
        agent.ask("send", hello("h1"))
        agent.ask("send", state(MARK))
        assert mark_of(links.hub.expect_type("state", "h1")) == MARK
        links.hub.ask("send", "h1", orders(MARK))
        assert mark_of(agent.expect_type("orders")) == MARK
        assert len(between.seen) > 1000
        for text in (MARK, "worker:0", "intents", "hello"):
            assert text.encode() not in between.seen, text


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_byte_that_is_changed_on_the_way_ends_the_connection_and_is_not_obeyed(links: Links, way: str) -> None:
    with forwarder(links) as between:
        agent = links.end("dialer", f"127.0.0.1:{between.port}", links.credentials("h1"))
        agent.expect_type("connected")
        agent.ask("send", hello("h1"))
        links.hub.expect_type("hello", "h1")
        between.damages = way
        if way == "up":
            agent.ask("send", state(MARK))
        else:
            links.hub.ask("send", "h1", orders(MARK))
        agent.expect_type("gone")
        agent.expect_type("connected")
        agent.ask("send", hello("h1", events=3))
        links.hub.expect(lambda body: body[0] == "h1" and body[1]["type"] == "hello" and body[1]["events"] == 3)
        assert between.damages == "", "a byte was changed"
        assert links.hub.said("state", "h1") == agent.said("orders") == []

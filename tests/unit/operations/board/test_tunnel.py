"""The tunnel to a host's TensorBoard: a browser here, and a host that speaks in frames."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.board import WINDOW_BYTES
from dtctl.errors import ConnectionLost, DtctlError, TransportError
from dtctl.model import Host
from dtctl.operations.board.tunnel import Tunnel, listen
from dtctl.operations.memory.record import RunRecord
from dtctl.transport.frames import checked_frame
from dtctl.transport.seam import Message, Session
from tests.unit.coordinated import record
from tests.waiting import PATIENCE_S

BOARD = {"type": "board", "dirs": ["/out"], "python": "/venv/bin/python"}


class Far:
    """A session whose other end the test is."""

    facts: Mapping[str, Any] = {}

    def __init__(self, host: Host) -> None:
        self.host = host
        self.heard: queue.Queue[tuple[Mapping[str, Any], bytes]] = queue.Queue()
        self._told: queue.Queue[Message | DtctlError] = queue.Queue()
        self.closed = False

    def greeted(self) -> float:
        return time.time()

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        self.heard.put((fields, payload))
        if fields["type"] == "abort":
            self.tell({"type": "result", "run": "digits-1", "end": "asked", "said": ""})

    def tell(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        self._told.put(checked_frame(self.host.name, Message(fields, payload, len(payload))))

    def lose(self) -> None:
        self._told.put(ConnectionLost("lost"))

    def receive(self, timeout_s: float | None = None) -> Message:
        told = self._told.get(timeout=PATIENCE_S)
        if isinstance(told, DtctlError):
            raise told
        return told

    def close(self) -> None:
        self.closed = True

    def next(self, kind: str) -> tuple[Mapping[str, Any], bytes]:
        while (heard := self.heard.get(timeout=PATIENCE_S))[0]["type"] != kind:
            assert heard[0]["type"] == "alive", heard
        return heard


class Scene:
    """A tunnel that serves in a thread of its own, until `over`."""

    def __init__(self) -> None:
        self.record: RunRecord = record()
        self.far = Far(self.record.way_to(self.record.coordinator))
        self.listener = listen(0)
        self.address = self.listener.getsockname()
        self.begun = threading.Event()
        self.outcome: Any = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self.far.next("tensorboard")[0]["cluster"] == "digits"
        self.far.tell(BOARD)
        assert self.begun.wait(PATIENCE_S)

    def open(self, host: Host) -> Session:
        return self.far

    def _serve(self) -> None:
        try:
            with self.listener, Tunnel(self.record, self, self.record.coordinator, self.listener) as tunnel:
                self.outcome = tunnel.serve(lambda board: self.begun.set())
        except DtctlError as error:
            self.outcome = error

    def browser(self) -> socket.socket:
        made = socket.create_connection(self.address, 20)
        self.far.next("open")
        return made

    def end(self) -> Any:
        if self._thread.is_alive():
            self.far.tell({"type": "result", "run": "digits-1", "end": "ended", "said": "bye"})
        self._thread.join(PATIENCE_S)
        assert self.far.closed
        return self.outcome


def test_bytes_go_both_ways_and_each_connection_by_itself() -> None:
    scene = Scene()
    one, two = scene.browser(), scene.browser()
    one.sendall(b"GET /")
    assert scene.far.next("piece") == ({"type": "piece", "channel": 0}, b"GET /")
    scene.far.tell({"type": "piece", "channel": 1}, b"for two")
    assert two.recv(100) == b"for two"
    assert scene.far.next("taken")[0] == {"type": "taken", "channel": 1, "size": 7}
    scene.far.tell({"type": "piece", "channel": 0}, b"last")
    scene.far.tell({"type": "closed", "channel": 0})
    assert (one.recv(100), one.recv(100)) == (b"last", b"")
    two.close()
    while (heard := scene.far.heard.get(timeout=PATIENCE_S)[0])["type"] != "closed":
        assert heard["type"] in ("taken", "alive")
    assert heard["channel"] == 1
    assert scene.end()["said"] == "bye"
    one.close()


def test_a_browser_that_sends_more_than_there_is_room_for_waits() -> None:
    scene = Scene()
    browser = scene.browser()
    browser.setblocking(False)
    sent = 0
    while sent < 3 * WINDOW_BYTES:
        try:
            sent += browser.send(b"x" * 65536)
        except BlockingIOError:
            break
    arrived = 0
    while arrived < min(sent, WINDOW_BYTES):
        arrived += len(scene.far.next("piece")[1])
    assert arrived <= WINDOW_BYTES
    with pytest.raises(queue.Empty):
        scene.far.heard.get(timeout=0.2)
    scene.far.tell({"type": "taken", "channel": 0, "size": 1000})
    assert len(scene.far.next("piece")[1]) <= 1000
    scene.end()
    browser.close()


@pytest.mark.parametrize(
    ("frame", "payload"),
    [
        ({"type": "piece", "channel": 9}, b"x"),
        ({"type": "closed", "channel": 0}, b""),
        ({"type": "points", "run": "digits-1", "folders": []}, b""),
    ],
    ids=["of nobody", "before any", "of another kind"],
)
def test_a_host_that_says_what_cannot_be_is_not_believed(frame: dict[str, Any], payload: bytes) -> None:
    scene = Scene()
    scene.far.tell(frame, payload)
    scene._thread.join(PATIENCE_S)
    assert isinstance(scene.end(), TransportError)


def test_a_host_that_sends_too_much_is_hung_up_on() -> None:
    scene = Scene()
    browser = scene.browser()
    for _ in range(200):
        scene.far.tell({"type": "piece", "channel": 0}, b"x" * 65536)
    scene._thread.join(PATIENCE_S)
    assert "more than it was allowed to" in scene.end().summary
    browser.close()


def test_a_lost_connection_ends_it() -> None:
    scene = Scene()
    scene.far.lose()
    scene._thread.join(PATIENCE_S)
    assert isinstance(scene.end(), ConnectionLost)


def test_who_leaves_asks_for_the_end_and_waits_for_it() -> None:
    known = record()
    far = Far(known.way_to(known.coordinator))

    class Way:
        def open(self, host: Host) -> Session:
            return far

    def interrupt(board: object) -> None:
        raise KeyboardInterrupt

    far.tell(BOARD)
    with (
        listen(0) as listener,
        pytest.raises(KeyboardInterrupt),
        Tunnel(known, Way(), known.coordinator, listener) as tunnel,
    ):
        tunnel.serve(interrupt)
    assert [far.heard.get()[0]["type"] for _ in range(2)] == ["tensorboard", "abort"]
    assert far.closed

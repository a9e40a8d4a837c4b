"""TensorBoard: the tunnel to a host's, and copies of event files."""

from __future__ import annotations

import errno
import queue
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.rooms.tensorboard.records import WINDOW_BYTES, EventDirsResult, EventFile
from dtctl.errors import ConnectionLost, DtctlError, PreflightError, TransportError
from dtctl.folder import Folder
from dtctl.model import Host
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.pages import dashboard_page as page
from dtctl.rooms.pages.webserver import Door, Server, listen
from dtctl.rooms.tensorboard import Copies, EventFileSources, Location, choose
from dtctl.rooms.tensorboard.tunnel import Channel, Tunnel, proxy
from dtctl.transport.seam import Session
from tests.browser import Page
from tests.fuzz import few
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession
from tests.waiting import PATIENCE_S

READY = {"type": "tensorboard_ready", "dirs": ["/out"], "python": "/venv/bin/python"}


class Far(FakeSession):
    """A session whose other end the test is."""

    def __init__(self, host: Host) -> None:
        super().__init__(host, self._answer_to_abort, patient=True)
        self.heard: queue.Queue[tuple[Mapping[str, Any], bytes]] = queue.Queue()

    def _answer_to_abort(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        return [{"type": "result", "run": "digits-1", "end": "asked", "said": ""}] if fields["type"] == "abort" else []

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        self.heard.put((fields, payload))
        super().send(fields)

    def tell(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        self.add({**fields, "payload": payload})

    def next(self, kind: str) -> tuple[Mapping[str, Any], bytes]:
        while (heard := self.heard.get(timeout=PATIENCE_S))[0]["type"] != kind:
            assert heard[0]["type"] in ("alive", "closed", "taken"), heard
        return heard


class Scene:
    """A tunnel, as soon as TensorBoard takes connections, and a thread that waits for its end."""

    def __init__(self) -> None:
        self.record: RunRecord = record()
        self.far = Far(self.record.route_to(self.record.coordinator))
        self.far.tell(READY)
        self.outcome: Any = None
        self.tunnel = Tunnel(self.record, self, self.record.coordinator)
        assert self.tunnel.begin()["dirs"] == ["/out"]
        assert self.far.next("tensorboard")[0]["cluster"] == "digits"
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def open(self, host: Host) -> Session:
        return self.far

    def _wait(self) -> None:
        try:
            with self.tunnel:
                self.outcome = self.tunnel.wait()
        except DtctlError as error:
            self.outcome = error

    def connect(self) -> Channel:
        made = self.tunnel.connect()
        self.far.next("open")
        return made

    def ended(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert self.far.closed
        return self.outcome

    def end(self) -> Any:
        self.far.tell({"type": "result", "run": "digits-1", "end": "ended", "said": "bye"})
        return self.ended()


def test_bytes_go_both_ways_and_each_connection_by_itself() -> None:
    context = Scene()
    one, two = context.connect(), context.connect()
    one.sendall(b"GET /")
    assert context.far.next("piece") == ({"type": "piece", "channel": 0}, b"GET /")
    context.far.tell({"type": "piece", "channel": 1}, b"for two")
    assert two.makefile("rb").read(7) == b"for two"
    assert context.far.next("taken")[0] == {"type": "taken", "channel": 1, "size": 7}
    context.far.tell({"type": "piece", "channel": 0}, b"last")
    context.far.tell({"type": "closed", "channel": 0})
    assert one.makefile("rb").read() == b"last"
    two.close()
    assert context.far.next("closed")[0]["channel"] == 1
    assert context.end()["said"] == "bye"
    with pytest.raises(ConnectionError):
        context.tunnel.connect()


def test_sender_blocks_when_the_window_is_full() -> None:
    context = Scene()
    channel = context.connect()
    sender = threading.Thread(target=channel.sendall, args=(b"x" * (WINDOW_BYTES + 1000),))
    sender.start()
    arrived = 0
    while arrived < WINDOW_BYTES:
        arrived += len(context.far.next("piece")[1])
    assert arrived == WINDOW_BYTES
    with pytest.raises(queue.Empty):
        context.far.heard.get(timeout=0.2)
    context.far.tell({"type": "taken", "channel": 0, "size": 1000})
    assert len(context.far.next("piece")[1]) == 1000
    sender.join(PATIENCE_S)
    context.end()


@pytest.mark.parametrize(
    ("frame", "payload"),
    [
        ({"type": "piece", "channel": 9}, b"x"),
        ({"type": "closed", "channel": 0}, b""),
        ({"type": "points", "run": "digits-1", "folders": []}, b""),
        (READY, b""),
    ],
    ids=["of nobody", "before any", "of another kind", "ready again"],
)
def test_impossible_report_of_a_host_is_rejected(frame: dict[str, Any], payload: bytes) -> None:
    context = Scene()
    context.far.tell(frame, payload)
    assert isinstance(context.ended(), TransportError)


@pytest.mark.parametrize("size", [65536, 8 << 20])
def test_host_that_sends_too_much_is_disconnected(size: int) -> None:
    context = Scene()
    context.connect()
    for _ in range(200):
        context.far.tell({"type": "piece", "channel": 0}, bytes(size))
    assert "more than it was allowed to" in context.ended().summary


def test_data_for_a_closed_connection_is_discarded() -> None:
    context = Scene()
    context.connect().close()
    kept = context.connect()
    for _ in range(50):
        context.far.tell({"type": "piece", "channel": 0}, bytes(8 << 20))
    context.far.tell({"type": "piece", "channel": 1}, b"x")
    assert kept.makefile("rb").read(1) == b"x", "all before it were passed over"
    context.end()


def test_a_lost_connection_ends_it_and_all_that_go_over_it() -> None:
    context = Scene()
    channel = context.connect()
    context.far.add(ConnectionLost("lost"))
    assert isinstance(context.ended(), ConnectionLost)
    with pytest.raises(ConnectionError):
        channel.makefile("rb").read()


def test_client_requests_the_end_and_waits() -> None:
    known = record()
    far = Far(known.route_to(known.coordinator))

    class Way:
        def open(self, host: Host) -> Session:
            return far

    far.tell(READY)
    with suppress(KeyboardInterrupt), Tunnel(known, Way(), known.coordinator) as tunnel:
        tunnel.begin()
        raise KeyboardInterrupt
    assert [far.heard.get()[0]["type"] for _ in range(2)] == ["tensorboard", "abort"]
    assert far.closed


class Upstream:
    """Answers each connection with the same bytes, and keeps what was asked."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[bytes] = []

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE_S)
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
        return ours

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(65536)
            head, _, body = asked.partition(b"\r\n\r\n")
            length = next(
                (int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
            )
            while len(body) < length:
                body += connection.recv(65536)
            self.asked.append(head + b"\r\n\r\n" + body)
            connection.sendall(self.answer)


HONEST = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"
LYING = b"\r\n".join(
    [
        b"HTTP/1.1 200 OK",
        b"Set-Cookie: session=mine; Path=/",
        b"Location: http://127.0.0.1:8888/",
        b'Clear-Site-Data: "*"',
        b"Service-Worker-Allowed: /",
        b"Referrer-Policy: unsafe-url",
        b"Content-Type: text/html",
        b"",
        b"<script>steal()</script>",
    ]
)


@contextmanager
def served(upstream: Upstream) -> Iterator[tuple[Page, Server]]:
    entrance = page.entrance("dtctl tensorboard")
    with listen(0, apart=True) as here, Server(here, Door(), entrance, proxy(upstream.connect)) as server:
        yield Page(server.address), server


def test_pages_require_the_cookie() -> None:
    upstream = Upstream(HONEST)
    with served(upstream) as (browser, server):
        assert browser.below("data/runs?x=1") == "hello"
        assert upstream.asked[0].startswith(b"GET /data/runs?x=1 HTTP/1.1\r\nHost: tensorboard\r\n")
        other = Page(server.address)
        other.cookie = ""
        assert other.get(browser.place)[0] == 403
        assert other.get("/data/runs")[0] == 404
        with browser.asked(browser.place, headers={"Host": "rebound.example"}) as answer:
            assert answer.status == 400
    assert len(upstream.asked) == 1


def test_a_host_gets_no_cookie_and_sets_none() -> None:
    upstream = Upstream(LYING)
    with served(upstream) as (browser, _):
        browser.cookie += "; session=of-another-service"
        secrets = {
            "Authorization": "Bearer secret",
            "Referer": "http://127.0.0.1:8888/?token=secret",
            "X-Secret": "secret",
        }
        with browser.asked(browser.place, headers=secrets) as answer:
            headers = {name.lower(): value for name, value in answer.getheaders()}
            assert b"steal" in answer.read()
        assert not {"set-cookie", "location", "clear-site-data", "service-worker-allowed"} & headers.keys()
        assert headers["referrer-policy"] == "no-referrer"
    (asked,) = upstream.asked
    assert b"cookie" not in asked.lower()
    assert b"secret" not in asked
    assert b"of-another-service" not in asked


def test_posted_data_arrives_unless_another_origin_sends_it() -> None:
    upstream = Upstream(HONEST)
    with served(upstream) as (browser, _):
        body = bytes(300_000)
        with browser.asked(browser.place + "data/x", "POST", body, {"Content-Type": "application/json"}) as answer:
            assert (answer.status, answer.read()) == (200, b"hello")
        assert upstream.asked[0].endswith(body)
        with browser.asked(browser.place + "data/x", "POST", body, {"Origin": "http://127.0.0.1:1"}) as answer:
            assert answer.status == 403
        with browser.asked(browser.place, "DELETE") as answer:
            assert answer.status == 405
        with browser.asked(browser.place, "HEAD") as answer:
            assert (answer.status, answer.read()) == (200, b"")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("Content-Length", "9" * 5000, 411), ("Content-Length", "+1", 411), ("Origin", "http://[", 403)],
)
def test_a_header_that_is_none_is_refused_and_shows_no_traceback(
    name: str, value: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    upstream = Upstream(HONEST)
    with served(upstream) as (browser, _), browser.asked(browser.place, headers={name: value}) as answer:
        assert answer.status == code
    assert upstream.asked == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "answer", [b"", b"\0" * 100, b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"x" * 100_000]
)
def test_an_invalid_upstream_answer_gives_502_and_the_next_request_works(
    answer: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    upstream = Upstream(answer)
    with served(upstream) as (browser, _):
        assert browser.get(browser.place)[0] == 502
        upstream.answer = HONEST
        assert browser.below() == "hello"
    assert capfd.readouterr().err == ""


SECOND = b"HTTP/1.1 200 OK\r\nSet-Cookie: dtctl=theirs\r\nContent-Length: 0\r\n\r\n"
SMUGGLED = {
    "behind its length": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + SECOND,
    "in chunks of another length": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"%x\r\n%b\r\n0\r\n\r\n" % (len(SECOND) + 2, b"ok" + SECOND),
    "in a folded header": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n Set-Cookie: dtctl=theirs\r\n\r\n",
    "behind a bare return": b"HTTP/1.1 200 OK\r\nContent-Type: x\rSet-Cookie: dtctl=theirs\r\n\r\nok",
    "in a reason": b"HTTP/1.1 200 OK\rSet-Cookie: dtctl=theirs\r\n\r\nok",
    "behind a hundred": b"HTTP/1.1 100 Continue\r\nSet-Cookie: dtctl=theirs\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok",
    "where nothing follows": b"HTTP/1.1 204 No\r\nSet-Cookie: dtctl=theirs\r\n\r\n" + SECOND,
    "as another protocol": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nSet-Cookie: dtctl=theirs\r\n\r\n" + SECOND,
}


@pytest.mark.parametrize("how", SMUGGLED)
def test_no_answer_of_a_host_holds_a_second_one(how: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Each answer ends with its connection, and only known headers are passed on."""
    with served(Upstream(SMUGGLED[how])) as (browser, _):
        head, _, _ = raw(browser).partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        assert "connection: close" in [line.lower() for line in lines]
        assert not [line for line in lines if "\r" in line or line.lower().startswith(("set-cookie", "upgrade"))]
        assert raw(browser).startswith(b"HTTP/1.1 ")
    assert capfd.readouterr().err == ""


def raw(browser: Page) -> bytes:
    """All that a browser is sent until the connection is closed."""
    with socket.create_connection((str(browser._at.hostname), browser._at.port or 0), timeout=PATIENCE_S) as connection:
        host = f"{browser._at.hostname}:{browser._at.port}"
        connection.sendall(f"GET {browser.place} HTTP/1.1\r\nHost: {host}\r\nCookie: {browser.cookie}\r\n\r\n".encode())
        with connection.makefile("rb") as stream:
            return stream.read()


@few
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(list(SMUGGLED.values()))), max_size=3).map(b"".join))
def test_any_bytes_of_a_host_are_an_answer_or_a_refusal(answer: bytes) -> None:
    with served(Upstream(answer)) as (browser, _):
        got = raw(browser)
    assert got.startswith(b"HTTP/1.1 ")
    assert b"\nset-cookie" not in got.partition(b"\r\n\r\n")[0].lower()


@pytest.fixture
def copies() -> Iterator[Copies]:
    with Copies() as made:
        yield made
    assert not made.place.exists()


def event_file(**fields: Any) -> EventFile:
    whole = {"dir": "/out", "name": "train", "identity": "7-x", "file": "tfevents.1", "inode": "5", "offset": 0}
    return checked(EventFile, {**whole, **fields})


def files(copies: Copies) -> dict[str, bytes]:
    every = [path for path in copies.directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(copies.directory)): path.read_bytes() for path in every}


def test_pieces_are_put_together_and_a_new_file_takes_the_place_of_the_old(copies: Copies) -> None:
    copies.add("a", event_file(), b"one")
    copies.add("a", event_file(offset=3), b"two")
    copies.add("a", event_file(name="."), b"top")
    assert files(copies) == {"out/train/tfevents.1": b"onetwo", "out/tfevents.1": b"top"}
    (had, _) = copies.had("a")
    assert had == {"dir": "/out", "name": "train", "file": "tfevents.1", "inode": "5", "size": 6}
    copies.add("a", event_file(inode="6"), b"new")
    assert files(copies)["out/train/tfevents.1"] == b"new"
    assert copies.had("b") == []


def test_directories_of_one_name_stay_apart_and_a_shared_one_comes_from_one_host(copies: Copies) -> None:
    copies.add("a", event_file(), b"a")
    copies.add("b", event_file(), b"shared with a")
    copies.add("b", event_file(identity="8-x"), b"b")
    copies.add("a", event_file(dir="/elsewhere/out", identity="9-x"), b"c")
    assert files(copies) == {
        "out/train/tfevents.1": b"a",
        "out@b/train/tfevents.1": b"b",
        "out@a/train/tfevents.1": b"c",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../../etc"},
        {"name": "a/../../b"},
        {"dir": "/x/.."},
        {"name": "a" * 300},
        {"name": "a\ud800"},
        {"dir": "/x/\ud800"},
        {"file": "tfevents\ud800"},
        {"file": "tfevents" + "\u00e4" * 240},
        {"name": "a\0b"},
        {"offset": 5},
        {"offset": 10**9},
    ],
    ids=str,
)
def test_nothing_is_written_elsewhere_or_with_a_gap(copies: Copies, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        copies.add("a", event_file(**fields), b"x")
    assert files(copies) == {}


@pytest.mark.parametrize("name", ["passwd", "../tfevents", "a/tfevents", "tfevents\0", "x" * 300 + "tfevents"])
def test_a_file_of_another_name_is_no_event_file(name: str) -> None:
    with pytest.raises(InvalidValue):
        event_file(file=name)


def test_an_absolute_name_is_one_below_the_directory(copies: Copies) -> None:
    copies.add("a", event_file(name="/etc/cron.d"), b"x")
    assert files(copies) == {"out/etc/cron.d/tfevents.1": b"x"}


def test_a_disk_that_is_nearly_full_is_not_filled(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Folder, "refuse_without_room", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    )
    with pytest.raises(DtctlError) as full:
        copies.add("a", event_file(), b"x")
    assert "TMPDIR=" in full.value.hint


def test_data_after_the_end_is_discarded() -> None:
    with Copies() as made:
        pass
    made.add("a", event_file(), b"x")
    assert not made.place.exists()


def test_directories_of_the_longest_name_stay_apart(copies: Copies) -> None:
    longest = "\u00e4" * 127 + "x"
    for number, host in enumerate(("a", "b", "c")):
        copies.add(host, event_file(dir=f"/{number}/{longest}", identity=f"{number}-x"), host.encode())
    assert sorted(files(copies).values()) == [b"a", b"b", b"c"]


def answer(*names: str, tensorboard: bool = True) -> EventDirsResult:
    return {
        "run": "c-1",
        "dirs": ["/out"],
        "folders": [{"dir": "/out", "name": name, "identity": f"7-{name}"} for name in names],
        "sizes": {"files": len(names), "bytes": 10},
        "tensorboard": "/venv/bin/python" if tensorboard else None,
        "tried": [] if tensorboard else ["/usr/bin/python3"],
    }


def found_files(**answers: EventDirsResult) -> EventFileSources:
    return EventFileSources("c-1", answers, {})


CASES = {
    "one host has them": (found_files(a=answer("x"), b=answer()), True, Location("a", "one_host")),
    "the lead's host of those that share them": (
        found_files(a=answer("x"), b=answer("x")),
        True,
        Location("b", "one_host"),
    ),
    "that of them which can": (
        found_files(a=answer("x"), b=answer("x", tensorboard=False)),
        False,
        Location("a", "one_host"),
    ),
    "none yet": (found_files(a=answer(), b=answer()), True, Location("b", "no_files")),
    "the host cannot, this machine can": (
        found_files(a=answer("x", tensorboard=False), b=answer(tensorboard=False)),
        True,
        Location(None, "no_tensorboard", ("b", "a")),
    ),
    "on two hosts": (found_files(a=answer("x"), b=answer("y")), True, Location(None, "several_hosts", ("b", "a"))),
    "on two hosts, and not here": (
        found_files(a=answer("x", "z"), b=answer("y")),
        False,
        Location("a", "not_here", left_out=("b",)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_runs_where_it_shows_all_of_them(case: str) -> None:
    found, here, place = CASES[case]
    assert choose(found, "b", copy=False, here=here) == place


def test_copies_are_of_each_directory_once_and_of_hosts_that_may_still_have_some() -> None:
    found = found_files(a=answer("x"), b=answer("x", "y"), c=answer(), d=answer("x"))
    assert choose(found, "b", copy=True, here=True) == Location(None, "asked", ("b", "c"))


@pytest.mark.parametrize(
    ("hosts", "here", "place"),
    [
        ({"a": answer()}, True, Location(None, "storage", ("a",), urls=("gs://b/x", "gs://b/y"))),
        ({"a": answer("x")}, False, Location("a", "not_here", left_out=("gs://b",))),
    ],
)
def test_event_files_at_a_storage_url_are_shown_on_this_machine(
    hosts: dict[str, EventDirsResult], here: bool, place: Location
) -> None:
    assert choose(found_files(**hosts), "a", copy=False, here=here, urls=("gs://b/x", "gs://b/y")) == place


def test_missing_tensorboard_is_reported_with_the_searched_pythons() -> None:
    with pytest.raises(PreflightError) as nowhere:
        choose(found_files(a=answer("x", tensorboard=False)), "a", copy=False, here=False)
    assert "a has none in /usr/bin/python3" in nowhere.value.detail
    assert "pip install tensorboard" in nowhere.value.hint
    with pytest.raises(PreflightError):
        choose(found_files(a=answer("x")), "a", copy=True, here=False)

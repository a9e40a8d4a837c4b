"""Who is let in, by what name, and what an answer forbids a browser; and readers over real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import pytest

from dtctl.agent.records.answers import Log
from dtctl.agent.records.kinds import made
from dtctl.model import TaskId
from dtctl.operations.client.streams import Feed
from dtctl.operations.logs import LogLines
from dtctl.rooms.pages import dashboard_page as page
from dtctl.rooms.pages.dashboard import MOST_READERS, Board, answering
from dtctl.rooms.pages.dashboard_page import parts
from dtctl.rooms.pages.log_page import MOST_READERS as MOST_LOGS
from dtctl.rooms.pages.log_page import LogTails
from dtctl.rooms.pages.webserver import MOST_UNKNOWN, Door, Server, listen
from tests.unit.report.reports import report
from tests.waiting import PATIENCE_S

LOG = b"begins\nAPI_KEY=hush-hush-hush\n<b>bold</b>\x1b[31m\x00\n"


def log_of(task: TaskId) -> Feed:
    """A log that is read once, and then grows no more."""

    def lines() -> Generator[object, None, None]:
        yield LogLines(made(Log, task=str(task), attempt=1, offset=0, end=len(LOG), time=1000.0), LOG)

    return Feed(lines).start()


@contextmanager
def served(board: Board, door: Door) -> Iterator[Server]:
    entrance = page.entrance("dtctl dashboard")
    logs = LogTails(lambda: [TaskId("worker", 0)], log_of)
    answer = answering(board, page.whole, page.headers(), logs.follow)
    with listen(0) as listener, Server(listener, door, entrance, answer) as server:
        yield server
        board.close()


@dataclass(frozen=True)
class Answer:
    code: int
    headers: dict[str, str]
    text: str


class Visit:
    """A browser that has not been let in yet."""

    def __init__(self, server: Server, board: Board, door: Door) -> None:
        self.board, self.door = board, door
        self.board.put(parts(report()))
        self.cookie = ""
        self.at = urlsplit(server.address)

    def enter(self) -> str:
        """The cookie as it is set."""
        answer = self.ask("/", token=self.door.token)
        assert answer.code == 200
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer.headers["set-cookie"]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.at.port or 0), timeout=PATIENCE_S)

    def ask(self, path: str, *, token: str = "", host: str = "127.0.0.1:8000", method: str = "GET") -> Answer:
        connection = http.client.HTTPConnection(str(self.at.hostname), self.at.port, timeout=PATIENCE_S)
        with closing(connection):
            connection.putrequest(method, path + (f"?token={quote(token)}" if token else ""), skip_host=True)
            connection.putheader("Host", host)
            if self.cookie:
                connection.putheader("Cookie", self.cookie.encode("latin-1"))
            connection.endheaders()
            with connection.getresponse() as answer:
                headers = {name.lower(): value for name, value in answer.getheaders()}
                return Answer(answer.status, headers, answer.read().decode())


@pytest.fixture
def visit() -> Iterator[Visit]:
    board, door = Board(), Door()
    with served(board, door) as server:
        yield Visit(server, board, door)


def test_the_address_lets_one_browser_in_once(visit: Visit) -> None:
    token = visit.door.token
    cookie = visit.enter()
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert f"Path={visit.door.place};" in cookie
    assert visit.ask(visit.door.place).code == 200
    visit.cookie = ""
    assert visit.ask("/", token=token).code == 403
    assert visit.ask(visit.door.place).code == 403


def test_the_token_stands_in_no_page_and_the_page_that_it_opens_leads_on_by_itself(visit: Visit) -> None:
    token = visit.door.token
    answer = visit.ask("/", token=token)
    assert f'content="0;url={visit.door.place}"' in answer.text
    whole = visit.ask(visit.door.place).text
    assert token not in answer.text + whole
    assert visit.door.token not in answer.text + whole


def test_after_a_browser_there_is_an_address_for_another(visit: Visit) -> None:
    addresses: list[str] = []
    visit.door.on_entry = lambda: addresses.append(visit.door.token)
    visit.enter()
    assert addresses == [visit.door.token]
    visit.cookie = ""
    visit.enter()
    assert visit.ask(visit.door.place).code == 200


@pytest.mark.parametrize("token", ["", "x", "x" * 43, "ö" * 43, "\x00"])
def test_wrong_token_is_refused(visit: Visit, token: str) -> None:
    answer = visit.ask("/", token=token)
    assert answer.code == 403
    assert "set-cookie" not in answer.headers
    assert "dtctl dashboard has printed" in answer.text
    assert "digits-1" not in answer.text


@pytest.mark.parametrize("cookie", ["", "dtctl=", "dtctl=x", "dtctl=\xff", "=;=;dtctl", 'dtctl="\\777"'])
def test_request_without_cookie_is_refused(visit: Visit, cookie: str) -> None:
    visit.cookie = cookie
    for place in (visit.door.place, f"{visit.door.place}news"):
        answer = visit.ask(place)
        assert answer.code == 403
        assert "digits-1" not in answer.text


@pytest.mark.parametrize("others", ['pref={"a": "b, c"}', "dtctl=x", "=;=;[]\x01", 'a="', "dtctl"])
def test_foreign_cookies_are_ignored(visit: Visit, others: str) -> None:
    visit.enter()
    for cookie in (f"{visit.cookie}; {others}", f"{others}; {visit.cookie}"):
        visit.cookie = cookie
        assert visit.ask(visit.door.place).code == 200
        visit.cookie = visit.cookie.replace(f"; {others}", "").replace(f"{others}; ", "")


@pytest.mark.parametrize("name", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_a_name_that_is_not_this_machines_gets_nothing(visit: Visit, name: str) -> None:
    visit.enter()
    for place in ("/", visit.door.place, f"{visit.door.place}news"):
        answer = visit.ask(place, host=name, token=visit.door.token)
        assert answer.code == 400
        assert "digits-1" not in answer.text


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:9000"])
def test_this_machines_own_names_are_good_at_any_port_as_a_tunnel_may_have_another(visit: Visit, name: str) -> None:
    visit.enter()
    assert visit.ask(visit.door.place, host=name).code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(visit: Visit, method: str) -> None:
    visit.enter()
    for place in ("/", visit.door.place, f"{visit.door.place}news"):
        assert visit.ask(place, method=method, token=visit.door.token).code == 405


def test_a_look_at_the_head_alone_uses_no_token_up(visit: Visit) -> None:
    assert visit.ask("/", method="HEAD", token=visit.door.token).code == 403
    visit.enter()


def test_every_answer_forbids_what_the_page_does_not_need(visit: Visit) -> None:
    answers = [visit.ask("/"), visit.ask("/nosuch"), visit.ask("/", host="evil")]
    visit.enter()
    answers.append(visit.ask(visit.door.place))
    assert [answer.code for answer in answers] == [403, 404, 400, 200]
    for answer in answers:
        rule = answer.headers["content-security-policy"]
        assert rule.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in rule
        assert "frame-ancestors 'none'" in rule
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"


class Reader:
    """A connection to what is new, read as it comes or not at all."""

    def __init__(self, server: Server, door: Door, cookie: str, last: str = "") -> None:
        port = int(server.address.split(":")[2].split("/")[0])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        asked = f"GET {door.place}news{last} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie.split(';')[0]}\r\n\r\n"
        self.socket.sendall(asked.encode())
        self.got = b""

    def until(self, what: bytes) -> bytes:
        while what not in self.got:
            data = self.socket.recv(1 << 20)
            assert data, self.got[-500:]
            self.got += data
        return self.got

    def close(self) -> None:
        self.socket.close()


def test_a_reader_that_takes_nothing_slows_neither_the_writer_nor_another_reader() -> None:
    board, door = Board(), Door()
    board.put({"a": "begin"})
    with served(board, door) as server:
        cookie = door.enter(door.token) or ""
        slow, quick = Reader(server, door, cookie), Reader(server, door, cookie)
        for reader in (slow, quick):
            reader.until(b"begin")
        for number in range(100):
            board.put({"a": f"<{number}>" + "x" * 500_000})
            quick.until(f"<{number}>".encode())
            quick.got = b""
        board.put({"a": "the end"})
        assert len(slow.until(b"the end")) < 20_000_000, "of 50 MB"
        slow.close()
        quick.close()


def test_readers_are_informed_of_the_end_and_the_server_has_ended_then() -> None:
    board, door = Board(), Door()
    board.put({"a": "begin"})
    with served(board, door) as server:
        reader = Reader(server, door, door.enter(door.token) or "", "?from=1")
        reader.until(b"alive")
        began = time.monotonic()
    assert b"event: over" in reader.until(b"event: over")
    assert b"begin" not in reader.got, "it had been seen"
    assert not server.alive
    assert time.monotonic() - began < PATIENCE_S
    reader.close()


def test_there_are_only_so_many_readers() -> None:
    board, door = Board(), Door()
    board.put({"a": "begin"})
    with served(board, door) as server:
        cookie = door.enter(door.token) or ""
        readers = [Reader(server, door, cookie) for _ in range(MOST_READERS)]
        for reader in readers:
            reader.until(b"begin")
        one_more = Reader(server, door, cookie)
        assert b" 503 " in one_more.until(b"\r\n\r\n")
        for reader in (*readers, one_more):
            reader.close()


def test_text_of_hosts_is_escaped_in_later_updates() -> None:
    board = Board()
    board.put(parts(report()))
    text = json.dumps(board.since(0)[1])
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_half_open_requests_do_not_keep_the_owner_out(visit: Visit) -> None:
    others = []
    for _ in range(3 * MOST_UNKNOWN):
        others.append(visit.connect())
        with suppress(ConnectionError):
            others[-1].sendall(b"GET /?token=x HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    visit.enter()
    assert visit.ask(visit.door.place).code == 200
    assert others[0].recv(1) == b"", "the oldest was hung up on"
    for other in others:
        other.close()


@pytest.mark.parametrize(
    "request_line", [b"\0\xff\r\n\r\n", b"GET /" + b"x" * 70_000, b"GET / HTTP/9.9\r\n\r\n", b"BREW / HTTP/1.1\r\n\r\n"]
)
def test_malformed_request_is_refused_without_a_traceback(
    visit: Visit, request_line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with visit.connect() as other:
        other.sendall(request_line)
        other.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while other.recv(1 << 16):
                pass
    visit.enter()
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has 127.0.0.1 alone")
def test_a_page_that_is_not_dtctls_own_gets_an_address_to_itself() -> None:
    with listen(0, apart=True) as one, listen(0, apart=True) as two:
        addresses = {one.getsockname()[0], two.getsockname()[0]}
    assert len(addresses) == 2
    assert all(address.startswith("127.") for address in addresses)
    assert "127.0.0.1" not in addresses


def test_an_address_fits_into_a_line_of_a_terminal() -> None:
    """As a note shows it, two columns in."""
    door = Door()
    entrance = page.entrance("dtctl tensorboard")
    with listen(0, apart=True) as here, Server(here, door, entrance, lambda *_: None) as server:
        assert len(f"  {server.address}") < 80


def test_the_log_of_a_task_comes_safe_and_masked(visit: Visit) -> None:
    visit.enter()
    with visit.connect() as connection:
        request = (
            f"GET {visit.door.place}log?task=worker:0 HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {visit.cookie}\r\n\r\n"
        )
        connection.sendall(request.encode())
        got = b""
        while b"bold" not in got:
            data = connection.recv(1 << 16)
            assert data, got
            got += data
    lines = json.loads(got.rpartition(b"data: ")[2])
    assert lines[:2] == ["begins", "API_KEY=***"]
    assert lines[2] == "<b>bold</b>\\x00", "as text, which a script puts into a text node"
    assert b"hush" not in got


def test_the_log_of_no_task_of_the_run_is_not_found(visit: Visit) -> None:
    visit.enter()
    for name in ("", "worker:1", "../../etc/passwd", "worker:" + "9" * 5000):
        assert visit.ask(f"{visit.door.place}log?task={name}").code == 404


def test_a_log_is_not_shown_to_a_stranger(visit: Visit) -> None:
    assert visit.ask(f"{visit.door.place}log?task=worker:0").code == 403


def test_only_so_many_logs_are_followed_and_one_that_is_closed_makes_room() -> None:
    logs = LogTails(lambda: [TaskId("worker", 0)], log_of)
    followed = [logs.follow("worker:0", lambda: False) for _ in range(MOST_LOGS)]
    assert logs.follow("worker:0", lambda: False) == 503
    first = followed[0]
    assert not isinstance(first, int)
    next(first)
    first.close()
    assert not isinstance(logs.follow("worker:0", lambda: False), int)


def test_updates_are_compressed_for_browsers_with_earlier_ones_in_view() -> None:
    board, door = Board(), Door()
    text = "".join(f"<td>{number * 7919 % 1000}</td>" for number in range(1000))
    board.put({"a": text})
    with served(board, door) as server:
        cookie = door.enter(door.token) or ""
        at = urlsplit(server.address)
        connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=PATIENCE_S)
        with closing(connection):
            headers = {"Cookie": cookie.split(";")[0], "Accept-Encoding": "gzip"}
            connection.request("GET", f"{door.place}news", headers=headers)
            with connection.getresponse() as answer:
                assert answer.getheader("Content-Encoding") == "gzip"
                unpacking, sizes, got = zlib.decompressobj(wbits=31), [0, 0], b""
                for number in range(2):
                    while got.count(b"event: parts") <= number or not got.endswith(b"\n\n"):
                        data = answer.read1(1 << 16)
                        sizes[number] += len(data)
                        got += unpacking.decompress(data)
                    board.put({"a": text + "more"})
    assert sizes[1] < sizes[0] / 10

"""WebHDFS through fsspec's client, with limits on the server's answers and redirects.

A cluster file names the server, which therefore may be anybody's. A name node sends its clients on to data nodes
(https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html, "Two-step write"): redirects.py
decides which of these redirects are followed.
"""

import time
from typing import Any
from urllib.parse import urlsplit

import requests
from fsspec.implementations.webhdfs import WebHDFS
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool

from dtctl.agent.records.kinds import AtMost, InvalidValue, List, OneOf, Record, Within, checked, parse_json
from dtctl.rooms.storage.errors import InvalidAnswer, StorageError
from dtctl.rooms.storage.redirects import Server

MOST_BYTES = 16 << 20
"""The most bytes of an answer, as of any other JSON; parsed, it takes up to twelve times as much memory."""

MOST_ENTRIES = 100_000
MOST_VALUES = 1_000_000
"""The most commas in a listing: an object of it has 13 fields."""
CONNECT_S = 10.0
READ_S = 30.0
SLOW_S = 60.0
"""After each such time an answer must have grown by LEAST_BYTES, and must be complete after LONGEST_S."""
LEAST_BYTES = 64 << 10
LONGEST_S = 1800.0
_CHUNK_BYTES = 64 << 10
_MOST_ERROR_BYTES = 64 << 10
"""The limit for an answer that reports no success, because fsspec parses it itself."""


class FileStatus(Record):
    """The fields that dtctl uses; the source is WebHDFS.html, "FileStatus JSON Schema"."""

    pathSuffix: AtMost[str, 8192]
    type: OneOf["FILE", "DIRECTORY", "SYMLINK"]  # noqa: F821
    length: int
    modificationTime: Within[int, 0, 2**46]


class FileStatuses(Record):
    FileStatus: AtMost[List[FileStatus], MOST_ENTRIES]


class Listing(Record):
    FileStatuses: FileStatuses


class Status(Record):
    FileStatus: FileStatus


class _Bounded(HTTPAdapter):
    """Reads every response itself, including redirects, of which `requests` would read without a limit."""

    def __init__(self, server: Server) -> None:
        self._server = server
        super().__init__()

    def init_poolmanager(self, *given: Any, **options: Any) -> None:
        super().init_poolmanager(*given, **options)
        self.poolmanager.pool_classes_by_scheme = {
            "http": _checking(HTTPConnectionPool, self._server),
            "https": _checking(HTTPSConnectionPool, self._server),
        }

    def send(self, request: requests.PreparedRequest, *given: Any, **options: Any) -> requests.Response:
        options.update(stream=True, timeout=(CONNECT_S, READ_S))
        response = super().send(request, **options)
        try:
            response._content = _content(response, str(request.url))
            response._content_consumed = True
        finally:
            response.raw.close()
        return response


def _checking(pool: Any, server: Server) -> Any:
    """A pool that closes connections to forbidden addresses before a byte is sent."""

    class Connection(pool.ConnectionCls):  # type: ignore[misc]
        def _new_conn(self) -> Any:
            connection = super()._new_conn()
            try:
                server.check_address(self.host, str(connection.getpeername()[0]))
            except BaseException:
                connection.close()
                raise
            return connection

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


def _content(response: requests.Response, url: str) -> bytes:
    """The bytes as they arrive, uncompressed: dtctl asks for no compression. Raises StorageError."""
    pieces: list[bytes] = []
    begun = checked_at = time.monotonic()
    size = size_then = 0
    host = urlsplit(url).netloc.rpartition("@")[2]
    read = getattr(response.raw, "read1", None) or response.raw.read  # urllib3 1.26 has no read1
    while piece := read(_CHUNK_BYTES, decode_content=False):
        pieces.append(piece)
        size += len(piece)
        if not response.ok or response.is_redirect:
            if size > _MOST_ERROR_BYTES:
                break
        elif size > MOST_BYTES:
            raise StorageError(
                f"{host} answers with more than {MOST_BYTES >> 20} MiB at once",
                hint="a directory of about 50,000 files has so long a listing: dtctl needs one for the run alone",
            )
        now = time.monotonic()
        if now - checked_at > SLOW_S:
            if size - size_then < LEAST_BYTES or now - begun > LONGEST_S:
                raise TimeoutError(f"{host} sent {size - size_then} bytes in {now - checked_at:.0f} s")
            checked_at, size_then = now, size
    return b"".join(pieces)


class _Session(requests.Session):
    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self.headers["Accept-Encoding"] = "identity"
        self.max_redirects = 2
        for prefix in ("http://", "https://"):
            self.mount(prefix, _Bounded(server))

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Sends credentials to the server only: a data node gets what the redirect contains."""
        if not self._server.is_named_by(str(request.url)):
            request.auth = lambda prepared: prepared
        return super().prepare_request(request)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """`requests` sends each request by this method, and the followers of each redirect, too."""
        self._server.check_url(str(request.url))
        return super().send(request, **options)


class BoundedWebHDFS(WebHDFS):  # type: ignore[misc]
    """Raises what WebHDFS does, and StorageError."""

    protocol = ("webhdfs",)
    session: requests.Session

    def _connect(self) -> None:
        super()._connect()
        plain: requests.Session = self.session
        self.session = _Session(Server(self.url))
        self.session.auth, self.session.verify, self.session.cert = plain.auth, plain.verify, plain.cert

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        listing = self._asked(Listing, "LISTSTATUS", path)
        found = [
            _entry(one, f"{path.rstrip('/')}/{one['pathSuffix']}") for one in listing["FileStatuses"]["FileStatus"]
        ]
        return found if detail else [one["name"] for one in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return _entry(self._asked(Status, "GETFILESTATUS", path)["FileStatus"], path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Asks for these bytes alone, without a question for the size before."""
        begin = start or 0
        length = {} if end is None else {"length": end - begin}
        data: bytes = self._call("OPEN", path=path, offset=begin, **length).content
        return data

    def _asked(self, record: Any, operation: str, path: str) -> Any:
        """The validated answer. Raises InvalidAnswer."""
        content = self._call(operation, path=path).content
        if content.count(b",") > MOST_VALUES:
            raise InvalidAnswer(f"the answer to {operation} is invalid: it has more than {MOST_VALUES} values")
        try:
            return checked(record, parse_json(content))
        except (ValueError, InvalidValue) as error:
            raise InvalidAnswer(f"the answer to {operation} is invalid: {error}") from error


def _entry(status: FileStatus, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": status["type"].lower(),
        "size": status["length"],
        "modificationTime": status["modificationTime"],
    }

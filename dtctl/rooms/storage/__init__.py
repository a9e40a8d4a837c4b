"""Lists, reads, writes and removes objects at a storage URL from this machine, through fsspec.

The readers of TensorFlow's formats (dtctl/agent/checkpoints, dtctl/agent/rooms/metrics) read files: what they need
of a place is copied into a directory here (found.py, checkpoints.py, metrics.py), and they judge it as they judge one
on a host.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from dtctl.agent.records.values import normal_url
from dtctl.dataclass import dataclass
from dtctl.rooms.storage.errors import InvalidAnswer, Missing, StorageError
from dtctl.rooms.storage.limits import within

__all__ = ["InvalidAnswer", "Missing", "Object", "Place", "StorageError", "is_passing", "label", "within"]

MOST_OBJECTS = 100_000
MOST_DIRECTORIES = 200
PIECE_BYTES = 8 << 20
PATIENCE_S = 90.0
"""How long a required request is retried while the server is overloaded or unreachable."""

_LONGEST_PAUSE_S = 15.0

T = TypeVar("T")

_SYSTEMS = {
    "gs": ("gcsfs.core", "GCSFileSystem"),
    "s3": ("s3fs", "S3FileSystem"),
    "webhdfs": ("dtctl.rooms.storage.webhdfs", "BoundedWebHDFS"),
}
"""The file systems by scheme: gcsfs.GCSFileSystem would use gRPC for unneeded features; the others are fsspec's."""

_REQUEST_S = 120.0
_LEAST_BYTES_PER_S = 16 << 10
"""The time limit of a request, and the least rate at which its content must be transferred."""

_MOST_SIZE = 2**53
_LAST_TIME = 253402300799.0
"""The end of the year 9999."""

_EXTRAS = {"gs": "gs", "s3": "s3", "hdfs": "hdfs", "viewfs": "hdfs", "webhdfs": "hdfs"}
"""The extra of dtctl for a scheme; the other schemes are Azure's."""

_PASSING_CODES = frozenset({408, 429, 500, 502, 503, 504})
_PASSING = frozenset(
    {
        *("ConnectionError", "TimeoutError", "Timeout", "IncompleteRead"),
        *("ClientConnectionError", "ClientPayloadError"),  # aiohttp
        *("EndpointConnectionError", "ConnectionClosedError", "HTTPClientError"),  # botocore
        *("ServiceRequestError", "ServiceResponseError"),  # azure.core
    }
)
"""Names of temporary errors, of libraries that need not be installed."""


class _Short(ConnectionError):
    """The server sent another number of bytes than requested."""


@dataclass(frozen=True)
class Object:
    """`name`: below the URL, with slashes. `version`: another one when its content is another."""

    name: str
    size: int
    time: float
    version: str


def label(url: str) -> str:
    """The bucket, which is shown in place of a host."""
    return "/".join(url.split("/")[:3])


class Place:
    """One URL. Raises StorageError with the message of the library.

    `patience_s`: how long is tried again what may pass.
    """

    def __init__(self, url: str, patience_s: float = 0.0) -> None:
        self.url = normal_url(url)
        self.cut = False
        """Whether there are more objects than `objects` has yielded."""
        self._patience_s = patience_s
        self._system, self._path = self._ask(self._open)

    def _open(self) -> tuple[Any, str]:
        kind = _system(self.url.partition(":")[0])
        given = kind._get_kwargs_from_urls(self.url)
        return kind(**given, use_listings_cache=False, skip_instance_cache=True), str(kind._strip_protocol(self.url))

    def objects(self, depth: int, is_left_out: Callable[[str], bool] = lambda name: False) -> Iterator[Object]:
        """The objects at this URL and in the directories below, to this depth. A place where nothing is yet has
        none.
        """
        left, room, self.cut = [("", 0)], MOST_OBJECTS, False
        for _ in range(MOST_DIRECTORIES):
            if not left or not room:
                break
            below, level = left.pop(0)
            entries = self._listed(below)
            self.cut = self.cut or len(entries) > room
            for entry in entries[:room]:
                name = entry.name.rstrip("/").rpartition("/")[2]
                if not _is_name(name):
                    continue
                if not entry.is_directory:
                    yield Object(below + name, entry.size, entry.time, entry.version)
                elif level < depth and not is_left_out(name):
                    left.append((f"{below}{name}/", level + 1))
            room -= min(room, len(entries))
        self.cut = self.cut or bool(left)

    def _listed(self, below: str) -> list[_Entry]:
        path = self._at(below).rstrip("/")
        try:
            found = self._ask(lambda: [_entry(one) for one in self._system.ls(path, detail=True)])
        except Missing:
            return []
        return [entry for entry in found if entry.name.strip("/") != path.strip("/")]

    def inside(self, below: str) -> tuple[list[Object], list[str]]:
        """The objects and the names of the directories that are directly in one; `below`: its path, with a / at its
        end, or empty.
        """
        objects: list[Object] = []
        directories: list[str] = []
        for entry in self._listed(below):
            name = entry.name.rstrip("/").rpartition("/")[2]
            if not _is_name(name):
                continue
            if entry.is_directory:
                directories.append(name)
            else:
                objects.append(Object(below + name, entry.size, entry.time, entry.version))
        return objects, directories

    def ranges(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        """Parts of objects, by name, begin and end, many at once; None for an object that is gone."""
        full = [one for one in wanted if one[2] > one[1]]

        def read() -> list[bytes | Exception]:
            found: list[bytes | Exception] = self._system.cat_ranges(
                [self._at(name) for name, _, _ in full],
                [begin for _, begin, _ in full],
                [end for _, _, end in full],
                on_error="return",
            )
            for one, (_, begin, end) in zip(found, full, strict=True):
                if isinstance(one, Exception) and not isinstance(one, FileNotFoundError):
                    raise one  # an unreadable object is not necessarily gone
                _refuse_short(one, end - begin)
            return found

        sizes = sum(end - begin for _, begin, end in full)
        found = dict(zip(full, self._ask(read, sizes), strict=True)) if full else {}
        each = (found.get(one, b"") for one in wanted)
        return [data if isinstance(data, bytes) else None for data in each]

    def piece(self, name: str, begin: int, end: int) -> bytes:
        def read() -> bytes:
            data = bytes(self._system.cat_file(self._at(name), start=begin, end=end)) if end > begin else b""
            _refuse_short(data, end - begin)
            return data

        return self._ask(read, end - begin)

    def whole(self, name: str) -> bytes:
        """Reads a small object, whatever its size is by now; empty if there is none. Raises StorageError for a large
        one."""
        try:
            size = self._ask(lambda: _size(self._system.info(self._at(name))))
        except Missing:
            return b""
        if size > PIECE_BYTES:
            raise InvalidAnswer(f"{self.url}/{name} has {size} bytes, and is expected to be small")
        return self.piece(name, 0, size)

    def pieces(self, one: Object, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """The content from this offset on, each piece with its own offset."""
        while offset < one.size:
            data = self.piece(one.name, offset, min(offset + PIECE_BYTES, one.size))
            yield offset, data
            offset += len(data)

    def upload(self, name: str, file: Path, report: Callable[[int], None]) -> None:
        """Uploads a file; `report` receives the number of bytes sent so far."""
        from fsspec.callbacks import Callback

        callback = Callback(hooks={"bytes": lambda size, value, **_: report(value)})
        self._ask(lambda: self._system.put_file(str(file), self._at(name), callback=callback), file.stat().st_size)

    def write(self, name: str, data: bytes) -> None:
        self._ask(lambda: self._system.pipe_file(self._at(name), data), len(data))

    def remove(self, name: str) -> None:
        """Removes an object; it may be gone already."""
        with suppress(Missing):
            self._ask(lambda: self._system.rm_file(self._at(name)))

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _ask(self, work: Callable[[], T], size_bytes: int = 0) -> T:
        """Calls the library, and translates its exceptions; few libraries have a time limit.

        `size_bytes`: of what is transferred, for the time limit.
        """
        until, pause_s = time.monotonic() + self._patience_s, 1.0
        limit_s = _REQUEST_S + size_bytes / _LEAST_BYTES_PER_S
        while True:
            try:
                return within(limit_s, self.url, work)
            except StorageError:
                raise
            except Exception as error:
                passes = is_passing(error)
                if not passes or time.monotonic() + pause_s > until:
                    raise self._error(error, passes) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _error(self, error: Exception, passes: bool) -> StorageError:
        if isinstance(error, ImportError):
            extra = _EXTRAS.get(self.url.partition(":")[0], "azure")
            return StorageError(f"{self.url} cannot be opened here: {error}", hint=f"pip install 'dtctl[{extra}]'")
        why = " ".join(str(error)[:4000].split())[:500] or type(error).__name__
        if isinstance(error, FileNotFoundError):
            return Missing(f"{self.url}: there is no {why}")
        return StorageError(
            f"{self.url} cannot be used from this machine: {why}",
            hint="the next command tries again"
            if passes
            else "dtctl needs credentials here, too: those of your own account that may list, read and write",
        )


def _system(scheme: str) -> Any:
    if scheme in _SYSTEMS:
        module, name = _SYSTEMS[scheme]
        return getattr(import_module(module), name)
    return import_module("fsspec").get_filesystem_class(scheme)


def _refuse_short(data: object, size: int) -> None:
    """Refuses short content: fsspec's WebHDFS takes an error of a data node for content."""
    if isinstance(data, bytes) and len(data) != size:
        raise _Short(f"{len(data)} bytes have come, and {size} were asked for")


def _is_name(name: str) -> bool:
    """Whether the name is valid: it may become the name of a file here."""
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:  # a character was cut in half
        return False
    return name not in ("", ".", "..") and not {"\0", "/"} & set(name) and size <= 255


@dataclass(frozen=True)
class _Entry:
    """One object in a listing, validated. `name`: its path."""

    name: str
    is_directory: bool
    size: int
    time: float
    version: str


def _entry(found: Any) -> _Entry:
    """Validates an entry. Raises InvalidAnswer: libraries pass on what a server claims."""
    name = found.get("name") if isinstance(found, Mapping) else None
    if not isinstance(name, str):
        raise InvalidAnswer("the listing has an entry without a name")
    return _Entry(name, found.get("type") == "directory", _size(found), _time(found), _version(found))


def _size(found: Mapping[str, Any]) -> int:
    size = found.get("size") or 0
    if isinstance(size, str) and size.isdecimal() and len(size) < 20:
        size = int(size)
    if type(size) is not int or not 0 <= size <= _MOST_SIZE:
        raise InvalidAnswer("the listing has an object whose size is no number of bytes")
    return size


def _time(entry: Mapping[str, Any]) -> float:
    for key in ("mtime", "LastModified", "last_modified", "updated", "modified", "modificationTime"):
        found = entry.get(key)
        with suppress(ValueError, OverflowError, OSError):
            if isinstance(found, str):
                found = datetime.fromisoformat(found[:100].replace("Z", "+00:00"))
            seconds = found.timestamp() if isinstance(found, datetime) else found
            if isinstance(seconds, int | float):
                seconds = seconds / 1000.0 if seconds > 1e11 else float(seconds)  # WebHDFS reports milliseconds
                return min(max(0.0, seconds), _LAST_TIME) if seconds == seconds else 0.0
    return 0.0


def _version(entry: Mapping[str, Any]) -> str:
    named = next((entry[key] for key in ("generation", "ETag", "etag", "content_md5") if entry.get(key)), None)
    return str(named if isinstance(named, str | int) else f"{_size(entry)}-{_time(entry)}")[:100]


def is_passing(error: BaseException | None) -> bool:
    """Whether a retry may succeed: the error is a server's or a network's."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        of_boto = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
        codes = (getattr(error, "code", None), getattr(error, "status", None), getattr(error, "status_code", None))
        for code in (*codes, getattr(response, "status_code", None), of_boto):
            if str(code).isdecimal() and int(str(code)) in _PASSING_CODES:
                return True
        if getattr(error, "errno", None) == errno.EBUSY or _PASSING & {one.__name__ for one in type(error).__mro__}:
            return True  # s3fs turns SlowDown into EBUSY
        error = error.__cause__
    return False

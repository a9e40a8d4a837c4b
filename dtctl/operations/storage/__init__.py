"""What lies at a storage URL, listed and read on this machine by fsspec. Nothing is written or removed there.

The readers of TensorFlow's formats (dtctl/agent/checkpoints, dtctl/agent/metrics) read files: what they need of a place
is copied into a directory here (../checkpoints/urls.py, events.py), and they judge it as they judge one on a host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, TypeVar

from dtctl.errors import DtctlError

MOST_OBJECTS = 100_000
MOST_DIRECTORIES = 200
PIECE_BYTES = 8 << 20
EVERY_S = 60.0
"""A place is listed once in so long at most, unless somebody asks for its checkpoints."""

LIMIT_S = 30.0
"""For a listing and what is read with it."""

T = TypeVar("T")

_SYSTEMS = {"gs": ("gcsfs.core", "GCSFileSystem"), "s3": ("s3fs", "S3FileSystem")}
"""gcsfs.GCSFileSystem asks by gRPC for what is not needed here. Others as fsspec knows them."""

_EXTRAS = {"gs": "dtctl[gs]", "s3": "dtctl[s3]", "hdfs": "dtctl[hdfs]", "viewfs": "dtctl[hdfs]"}
_PACKAGES = {"webhdfs": "fsspec requests"}
_AZURE = "adlfs"


class StorageError(DtctlError):
    """A storage URL cannot be listed or read from here."""


@dataclass(frozen=True)
class Object:
    """`name`: below the URL, with slashes. `version`: another one when its content is another."""

    name: str
    size: int
    time: float
    version: str


def label(url: str) -> str:
    """What stands in the place of a host: the bucket."""
    return "/".join(url.split("/")[:3])


class Place:
    """One URL. Raises StorageError in the words of the library that was asked."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        with self._told():
            kind = _system(self.url.partition(":")[0])
            self._system = kind(
                **kind._get_kwargs_from_urls(self.url), use_listings_cache=False, skip_instance_cache=True
            )
            self._path = str(kind._strip_protocol(self.url))

    def objects(self, depth: int, is_left_out: Callable[[str], bool] = lambda name: False) -> Iterator[Object]:
        """Those in it and in the directories below, so many levels of them. A place where nothing is yet has none."""
        left = [("", 0)]
        for _ in range(MOST_DIRECTORIES):
            if not left:
                break
            below, level = left.pop(0)
            for entry in self._listed(below):
                name = str(entry["name"]).rstrip("/").rpartition("/")[2]
                if not _is_name(name):
                    continue
                if entry.get("type") != "directory":
                    yield Object(below + name, int(entry.get("size") or 0), _time(entry), _version(entry))
                elif level < depth and not is_left_out(name):
                    left.append((f"{below}{name}/", level + 1))

    def _listed(self, below: str) -> list[Mapping[str, Any]]:
        path = f"{self._path}/{below}".rstrip("/")
        try:
            with self._told():
                found: list[Mapping[str, Any]] = self._system.ls(path, detail=True)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise
        own = [entry for entry in found if str(entry["name"]).strip("/") != path.strip("/")]
        return own[:MOST_OBJECTS]

    def contents(self, names: Iterable[str]) -> dict[str, bytes]:
        """Of small objects, many at once; of those that are there."""
        paths = {f"{self._path}/{name}": name for name in names}
        if not paths:
            return {}
        with self._told():
            found = self._system.cat(list(paths), on_error="omit")
        if isinstance(found, bytes):  # of one alone
            return {next(iter(paths.values())): found}
        return {paths[path]: data for path, data in found.items() if path in paths}

    def piece(self, name: str, begin: int, end: int) -> bytes:
        with self._told():
            return bytes(self._system.cat_file(f"{self._path}/{name}", start=begin, end=end))

    def pieces(self, one: Object, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Its content from there on, each piece with its own offset."""
        while offset < one.size:
            data = self.piece(one.name, offset, min(offset + PIECE_BYTES, one.size))
            if not data:
                return  # it has become shorter meanwhile
            yield offset, data
            offset += len(data)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Each library and storage has exceptions of its own."""
        try:
            yield
        except ImportError as error:
            raise StorageError(
                f"{self.url} cannot be opened here: {error}", hint=f"pip install {self._needs}"
            ) from error
        except Exception as error:
            why = " ".join(str(error).split())[:500] or type(error).__name__
            raise StorageError(
                f"{self.url} cannot be read from this machine: {why}",
                hint="dtctl needs credentials here, too: those of your own account that may list and read",
            ) from error

    @property
    def _needs(self) -> str:
        scheme = self.url.partition(":")[0]
        return f"'{_EXTRAS[scheme]}'" if scheme in _EXTRAS else _PACKAGES.get(scheme, f"fsspec {_AZURE}")


def _system(scheme: str) -> Any:
    if scheme in _SYSTEMS:
        module, name = _SYSTEMS[scheme]
        return getattr(import_module(module), name)
    return import_module("fsspec").get_filesystem_class(scheme)


def _is_name(name: str) -> bool:
    """It may become that of a file here."""
    return name not in ("", ".", "..") and "\0" not in name and len(name.encode("utf-8", "surrogateescape")) <= 255


def _time(entry: Mapping[str, Any]) -> float:
    for key in ("mtime", "LastModified", "last_modified", "updated", "modified", "modificationTime"):
        found = entry.get(key)
        if isinstance(found, str):
            found = datetime.fromisoformat(found.replace("Z", "+00:00"))
        if isinstance(found, datetime):
            return max(0.0, found.timestamp())
        if isinstance(found, int | float):
            return max(0.0, found / 1000.0 if found > 1e11 else float(found))  # webhdfs counts milliseconds
    return 0.0


def _version(entry: Mapping[str, Any]) -> str:
    named = next((entry[key] for key in ("generation", "ETag", "etag", "content_md5") if entry.get(key)), None)
    return str(named or f"{entry.get('size')}-{_time(entry)}")[:100]


def within(limit_s: float, url: str, work: Callable[[], T]) -> T:
    """What `work` returns, or raises; StorageError if it takes longer. It is then left to itself."""
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if raised:
        raise raised[0]
    if not found:
        raise StorageError(f"{url} did not answer within {limit_s:g} s")
    return found[0]

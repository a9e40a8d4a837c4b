"""Caches listings of a storage URL on this machine for a minute: listings are billed.

Where it cannot be read what was found before stays, with the time at which that was.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from dtctl.agent.records.kinds import InvalidValue
from dtctl.agent.records.values import normal_url
from dtctl.dataclass import dataclass
from dtctl.folder import PRIVATE, Folder
from dtctl.paths import cache_directory
from dtctl.rooms.storage import Place, StorageError, within

EVERY_S = 60.0
"""A place is listed at most once in this time, except by `dtctl checkpoints`."""

LIMIT_S = 30.0
"""The time limit for a listing and the reads that belong to it."""

_QUICK_S = 2.0
"""A problem that was found this fast is checked again by the next command: it may be solved by then."""

_MOST_BYTES = 64 << 20

T = TypeVar("T")


@dataclass(frozen=True)
class _Kept:
    content: Any = None
    time: float = 0.0
    """When it was found; 0: never."""
    asked: float = 0.0
    problem: str | None = None


class Cached(Generic[T]):
    """`what` names the kind of content, which is stored as JSON; `check` raises InvalidValue for invalid content."""

    def __init__(self, url: str, what: str, check: Callable[[Any], T]) -> None:
        self._url = normal_url(url)
        self._check = check
        self._folder = cache_directory() / "storage"
        self._name = f"{what}-{url_hash(url)}.json"

    def find(self, look: Callable[[Place], T], *, fresh: bool = False) -> tuple[T | None, str | None]:
        """The content, and why it may be outdated. `fresh`: as it is now."""
        kept = self._read()
        if fresh or not 0 <= time.time() - kept.asked < EVERY_S:
            kept = self._look(look, kept)
            self._write(kept)
        problem = kept.problem
        if problem and kept.time:
            problem = f"not read since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(kept.time))}: {problem}"
        return kept.content, problem

    def _look(self, look: Callable[[Place], T], before: _Kept) -> _Kept:
        began, now = time.monotonic(), time.time()
        try:
            return _Kept(within(LIMIT_S, self._url, lambda: look(Place(self._url))), now, now)
        except (StorageError, OSError) as error:
            asked = now if time.monotonic() - began > _QUICK_S else 0.0
            return replace(before, asked=asked, problem=str(error).replace("\n", "; ")[:3900])

    def _read(self) -> _Kept:
        with suppress(OSError, ValueError, KeyError, TypeError, InvalidValue), Folder(self._folder) as folder:
            kept = json.loads(folder.read(self._name, _MOST_BYTES))
            if kept.pop("url") == self._url:
                found = _Kept(**kept)
                content = None if found.content is None else self._check(found.content)
                return replace(found, content=content, time=float(found.time), asked=float(found.asked))
        return _Kept()

    def _write(self, kept: _Kept) -> None:
        with suppress(OSError), Folder(self._folder, make=PRIVATE) as folder:
            folder.replace(self._name, json.dumps({"url": self._url, **vars(kept)}).encode(), durable=False)


def url_hash(url: str) -> str:
    return hashlib.sha256(normal_url(url).encode()).hexdigest()[:32]

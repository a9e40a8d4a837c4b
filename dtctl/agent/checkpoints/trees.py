"""The files of a checkpoint that is a directory: which there are, and whether those of a known format are whole."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import islice

from ..host import files
from ..records.kinds import parse_json
from . import safetensors, torch_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Pattern, Set, Tuple

    from ..host.budget import Budget

    Check = Callable[[], None]

INTERRUPTED = "the save has not ended, or was interrupted"

_MOST_DEPTH = 6
_MOST_SNIFFED = 1000
_MOST_JSON_BYTES = 8 << 20
_BEGINNING_BYTES = 256
_MOST_METADATA_BYTES = 32 << 20
_SHARD_IN_METADATA = rb"(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]{1,200}\.distcp"
"""It is tried at the beginnings of words alone: otherwise a file of one long word would take minutes."""


_OF_SAFETENSORS = r"\.tmp[A-Za-z0-9]{6}\Z"
"""The name of a file that the library has not finished (its save_file, by the crate tempfile)."""

_FRAME, _STOP = b"\x95", b"."
_MOST_FRAMES = 10_000


class Names:
    """What a directory contains, by names: enough to recognise a checkpoint, however much else it contains."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: Optional[List[str]] = None

    def has(self, name: str) -> bool:
        return os.path.lexists(os.path.join(self._path, name))

    def has_any(self, pattern: str) -> bool:
        """Whether one of its first thousand names matches."""
        return any(re.match(pattern, name) for name in self._first())

    def begins_with(self, name: str, mark: bytes) -> bool:
        """Whether a regular file of this name has these bytes near its beginning."""
        with suppress(OSError), files.opened(os.path.join(self._path, name)) as file:
            return mark in files.read_at(file, 0, _BEGINNING_BYTES)
        return False

    def is_empty(self) -> bool:
        """Whether nothing is in it, or nothing but what safetensors renames when it has written it."""
        return all(re.match(_OF_SAFETENSORS, name) for name in self._first())

    def _first(self) -> List[str]:
        if self._names is None:
            self._names = []
            with suppress(OSError), os.scandir(self._path) as listed:  # who searches it reports that
                self._names = [entry.name for entry in islice(listed, _MOST_SNIFFED)]
        return self._names


class Tree:
    """All files below a directory, with their sizes, by their paths in it; links are not followed.

    Raises OSError, and Spent if there are too many.
    """

    def __init__(self, path: str, budget: Budget) -> None:
        self.path = path
        self.sizes: Dict[str, int] = {}
        self._budget = budget
        self._named: Dict[str, Set[str]] = {}
        self._collect("", 0)

    def _collect(self, below: str, depth: int) -> None:
        with os.scandir(os.path.join(self.path, below)) as listed:
            for entry in listed:
                self._budget.name()
                with suppress(FileNotFoundError):  # removed just now
                    if not entry.is_dir(follow_symlinks=False):
                        self.sizes[below + entry.name] = entry.stat(follow_symlinks=False).st_size
                    elif depth < _MOST_DEPTH:
                        self._collect(below + entry.name + "/", depth + 1)

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())

    def at(self, path: str) -> str:
        return os.path.join(self.path, path)

    def named(self, metadata: str) -> Set[str]:
        """The shards that a file of metadata of DCP names, which is a pickle and is never unpickled. Raises OSError."""
        if metadata not in self._named:
            with files.opened(self.at(metadata)) as file:
                content = files.read_at(file, 0, min(self.sizes[metadata], _MOST_METADATA_BYTES))
            self._named[metadata] = {one.decode("ascii") for one in re.findall(_SHARD_IN_METADATA, content)}
        return self._named[metadata]

    def is_cut_pickle(self, path: str) -> bool:
        """Whether a pickle ends too early, by its last byte and its frames' lengths (PEP 3154). Raises OSError."""
        at, size = 2, self.sizes[path]
        with files.opened(self.at(path)) as file:
            for _ in range(_MOST_FRAMES):
                head = files.read_at(file, at, 9)
                if not head.startswith(_FRAME):
                    break
                if len(head) < 9:
                    return True
                at += 9 + int.from_bytes(head[1:], "little")
            return at > size or files.read_at(file, max(0, size - 1), 1) != _STOP

    def matching(self, pattern: str) -> List[str]:
        """The paths whose last name matches, in order."""
        compiled: Pattern[str] = re.compile(pattern)
        return sorted(path for path in self.sizes if compiled.match(path.rpartition("/")[2]))

    def json(self, name: str) -> Any:
        """The content of a JSON file in it; None if that is damaged. Raises OSError."""
        try:
            return parse_json(files.read(os.path.join(self.path, name), _MOST_JSON_BYTES), finite=False)
        except ValueError:
            return None

    def problem(self) -> Optional[str]:
        """The first of its files that is not whole, as far as its format says so; None if there is none."""
        return next(iter(self._problems(lambda path: of_part(path))), None)

    def damage(self, check: Check) -> Tuple[List[str], List[str]]:
        """The same for every byte; and why some could not be checked."""
        unread: List[str] = []

        def judge(path: str) -> Optional[str]:
            found, why = damage_of_part(path, check)
            if why is not None:
                unread.append(why)
            return found

        return self._problems(judge, most=10), unread

    def _problems(self, judge: Callable[[str], Optional[str]], most: int = 1) -> List[str]:
        found: List[str] = []
        for name in self.matching(PARTS):
            self._budget.check()
            try:
                problem = None if self._is_surplus(name) else judge(self.at(name))
            except FileNotFoundError:
                continue  # removed just now
            except files.Unfit as unfit:
                problem = str(unfit.strerror)
            except OSError as error:
                problem = "cannot be read: %s" % error.strerror
            if problem is not None:
                found.append("%s: %s" % (name, problem))
            if len(found) >= most:
                break
        return found or self._lacking()

    def _is_surplus(self, name: str) -> bool:
        """Whether it is a shard that the metadata beside it do not name: of a rank that had nothing to save."""
        above, _, file = name.rpartition("/")
        metadata = (above + "/.metadata").lstrip("/")
        return file.endswith(torch_files.SHARD) and metadata in self.sizes and file not in self.named(metadata)

    def _lacking(self) -> List[str]:
        """A part that a list of parts names, as `model.safetensors.index.json` does."""
        for name in self.matching(INDEX):
            self._budget.check()
            content = self.json(name)
            listed = content.get("weight_map") if isinstance(content, dict) else None
            if not isinstance(listed, dict):
                return ["%s is damaged" % name]
            above = name[: len(name) - len(os.path.basename(name))]
            for part in sorted({str(one)[:200] for one in listed.values()}):
                if above + part not in self.sizes:
                    return ["%s is missing" % (above + part)]
        return []


PARTS = r"(?s).+\.(?:safetensors|pt|pth|bin|ckpt|pkl|distcp)\Z"
"""The files in a directory that are judged: by their content, as names such as `scheduler.bin` say little."""

INDEX = r"(?s).+\.(?:safetensors|bin)\.index\.json\Z"


def of_part(path: str) -> Optional[str]:
    """Why this file is not whole; None if it may be. Raises OSError."""
    if path.endswith(".safetensors"):
        return safetensors.problem(path)
    try:
        return torch_files.problem(path, several=path.endswith(torch_files.SHARD))
    except torch_files.Foreign:
        return None


def damage_of_part(path: str, check: Check) -> Tuple[Optional[str], Optional[str]]:
    """The damage by every byte of this file, and why they could not all be checked. Raises OSError."""
    if path.endswith(".safetensors"):
        return safetensors.problem(path), safetensors.NO_CHECKSUMS
    try:
        return torch_files.damage(path, check, several=path.endswith(torch_files.SHARD))
    except torch_files.Foreign:
        return None, None

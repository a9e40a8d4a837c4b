"""What a bundle's tree holds, down to the hashes (docs/agent.md, "Bundles")."""

from __future__ import annotations

import hashlib
import json
import re

from ..host import files
from ..host.errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Set, Tuple

MOST_BYTES = 256 * 1024 * 1024

_HASH = re.compile(r"[0-9a-f]{64}\Z")


class Manifest:
    """A checked manifest: no path in it leaves the tree, not even through one of its own links."""

    def __init__(
        self,
        files: List[Tuple[str, int, int, str]],
        links: List[Tuple[str, str]],
        dirs: List[Tuple[str, int]],
        cluster: Optional[str] = None,
    ) -> None:
        self.files = files
        self.links = links
        self.dirs = dirs
        self.cluster = cluster

    @classmethod
    def parse(cls, text: bytes, bundle_id: str) -> Manifest:
        """From the canonical JSON that the id is the hash of. Raises Refused."""
        if hashlib.sha256(text).hexdigest() != bundle_id:
            raise Refused("bundle_damaged", "the manifest is not that of bundle %s" % bundle_id[:12])
        try:
            value = json.loads(text)
            if value["version"] != 1:
                raise Refused("bad_request", "the bundle's manifest has version %r, not 1" % value["version"])
            manifest = cls(
                [(path, mode, size, sha256) for path, mode, size, sha256 in value["files"]],
                [(path, target) for path, target in value["links"]],
                [(path, mode) for path, mode in value["dirs"]],
                value.get("cluster"),
            )
            manifest._check()
        except (ValueError, KeyError, TypeError) as error:
            raise Refused("bad_request", "the bundle's manifest cannot be read", detail=repr(error)) from error
        return manifest

    @classmethod
    def load(cls, path: str, bundle_id: str) -> Optional[Manifest]:
        """From a complete bundle's own copy; None when there is none, or none that can be believed."""
        try:
            return cls.parse(files.read(path, MOST_BYTES), bundle_id)
        except (OSError, Refused):
            return None

    def paths(self) -> Set[str]:
        """Of the files and links."""
        return {entry[0] for entry in self.files} | {entry[0] for entry in self.links}

    def _check(self) -> None:
        directories = {""}
        for path, mode in self.dirs:  # sorted by path, so that a parent comes before what it holds
            _check_place(path, directories)
            _check_number(mode, path, 0o777)
            directories.add(path)
        seen = set(directories)
        entries: List[Tuple[Any, ...]] = [*self.files, *self.links]
        for path, *_ in entries:
            _check_place(path, directories)
            if path in seen:
                raise _unsafe(path, "is there twice")
            seen.add(path)
        for path, mode, size, sha256 in self.files:
            _check_number(mode, path, 0o777)
            _check_number(size, path, 1 << 62)
            if not isinstance(sha256, str) or not _HASH.match(sha256):
                raise _unsafe(path, "has no proper hash")
        for path, target in self.links:
            if not isinstance(target, str) or not target or "\0" in target:
                raise _unsafe(path, "has no proper target")


def is_bundle_id(name: object) -> bool:
    return isinstance(name, str) and bool(_HASH.match(name))


def _check_place(path: object, directories: Set[str]) -> None:
    """Refuses all but plain paths below directories of the manifest: so none can lead through a link."""
    if not isinstance(path, str) or "\0" in path:
        raise _unsafe(path, "is not a path")
    parent, _, name = path.rpartition("/")
    if path.startswith("/") or name in ("", ".", "..") or parent not in directories:
        raise _unsafe(path, "leads out of the tree, or lies in no directory of it")


def _check_number(number: object, path: str, most: int) -> None:
    if type(number) is not int or not 0 <= number <= most:
        raise _unsafe(path, "has a mode or size that cannot be")


def _unsafe(path: object, what: str) -> Refused:
    return Refused("bad_request", "the bundle's manifest is refused: %r %s" % (path, what))

"""The training code as it is pushed: the content of a bundle in its canonical form (docs/agent.md, "Bundles")."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dtctl.config.outgoing import Sending
from dtctl.dataclass import dataclass


class FileEntry(NamedTuple):
    """One file; `path` is relative to the tree, with `/`, and `mode` holds the permission bits only."""

    path: str
    mode: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of a tree, each part sorted by path."""

    files: tuple[FileEntry, ...]
    links: tuple[tuple[str, str], ...]
    """Paths and targets."""
    dirs: tuple[tuple[str, int], ...]
    """Paths and modes; a directory comes before its content."""
    cluster: str = ""
    """The cluster's name is part of the bundle: trainers write to the code directory, which no other cluster may share.
    """

    @cached_property
    def canonical(self) -> bytes:
        """The JSON whose hash is the id."""
        value: dict[str, object] = {"version": 1, "files": self.files, "links": self.links, "dirs": self.dirs}
        if self.cluster:
            value["cluster"] = self.cluster
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self.canonical).hexdigest()

    @cached_property
    def code_id(self) -> str:
        """The id without the cluster's name: the same code has the same one in all clusters."""
        return dataclasses.replace(self, cluster="").id


OWN = ""
"""The rule against dtctl's own directories, and the files of secrets and keys with which the run is started."""


class LeftOut(NamedTuple):
    """A path that is not sent, with a trailing `/` for a whole directory, and the rule that excludes it."""

    path: str
    rule: str


@dataclass(frozen=True)
class Bundle:
    """The code directory as one scan found it."""

    root: Path
    manifest: Manifest
    skipped: tuple[LeftOut, ...]
    """Paths that the ignore rules left out."""
    withheld: tuple[LeftOut, ...] = ()
    """Paths that usually hold secrets, and were left out without a rule of the user's."""
    twins: tuple[str, ...] = ()
    """Other names and copies of files that are known to be secret: no rule can include them."""
    sending: Sending | None = None
    """The consent that it needs to be sent; None: it needs none."""
    digests: Mapping[str, bytes] = field(default_factory=dict)
    """The SHA-256 of each block of the large files that this scan has read, by path."""

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def code_id(self) -> str:
        return self.manifest.code_id

    @cached_property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.manifest.files)

    def left_out(self, path: str) -> LeftOut | None:
        """Why this path, or a directory above it, is not sent; None if it is sent or does not exist."""
        if not os.path.lexists(self.root / path):
            return None
        known = (one for one in (*self.withheld, *self.skipped) if one.rule != OWN)
        return next((one for one in known if f"{path.rstrip('/')}/".startswith(f"{one.path.rstrip('/')}/")), None)

"""The training code as it is pushed: what a bundle holds, in its canonical form (docs/agent.md, "Bundles")."""

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

from dtctl.dataclass import dataclass


class FileEntry(NamedTuple):
    """One file; `path` is relative to the tree, with `/`, and `mode` holds the permission bits only."""

    path: str
    mode: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """All that a tree holds, each sorted by path."""

    files: tuple[FileEntry, ...]
    links: tuple[tuple[str, str], ...]
    """Path and target."""
    dirs: tuple[tuple[str, int], ...]
    """Path and mode; a directory comes before what it holds."""
    cluster: str = ""
    """The cluster's name is part of the bundle: trainers write to the code directory, which no other cluster may share.
    """

    @cached_property
    def canonical(self) -> bytes:
        """The JSON that the id is the hash of."""
        value: dict[str, object] = {"version": 1, "files": self.files, "links": self.links, "dirs": self.dirs}
        if self.cluster:
            value["cluster"] = self.cluster
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self.canonical).hexdigest()


OWN = ""
"""The rule against dtctl's own directories, and the files of secrets and keys that the run is started with."""


class LeftOut(NamedTuple):
    """What does not travel: a path, with a `/` at the end for a whole directory, and the rule that says so."""

    path: str
    rule: str


@dataclass(frozen=True)
class Bundle:
    """The code directory as one scan has found it."""

    root: Path
    manifest: Manifest
    skipped: tuple[LeftOut, ...]
    """What the ignore rules left out."""
    withheld: tuple[LeftOut, ...] = ()
    """What holds secrets as a rule and was left out though no rule of the user's says so."""
    twins: tuple[str, ...] = ()
    """Other names and copies of files that are known to be secret: nothing can make them travel."""
    digests: Mapping[str, bytes] = field(default_factory=dict)
    """The SHA-256 of each block of the large files that this scan has read, by path."""

    @property
    def id(self) -> str:
        return self.manifest.id

    @cached_property
    def code_id(self) -> str:
        """The same for all clusters."""
        return dataclasses.replace(self.manifest, cluster="").id

    @cached_property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.manifest.files)

    def left_out(self, path: str) -> LeftOut | None:
        """Why this path does not travel, by itself or with a directory above it; None if it does, or is not there."""
        if not os.path.lexists(self.root / path):
            return None
        known = (one for one in (*self.withheld, *self.skipped) if one.rule != OWN)
        return next((one for one in known if f"{path.rstrip('/')}/".startswith(f"{one.path.rstrip('/')}/")), None)

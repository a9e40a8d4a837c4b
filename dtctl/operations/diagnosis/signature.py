"""A known way in which runs go wrong, and one that was found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from configparser import ConfigParser
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dtctl.operations.diagnosis.facts import End, Facts
from dtctl.operations.snapshot import TaskStatus

if TYPE_CHECKING:
    from dtctl.model import TaskId

Fields = Mapping[str, Any]
"""What sentences and commands are filled with. The names say what they are: `_s` seconds, `_at` epoch seconds,
`_bytes`, `_share`; tuples are tasks or hosts."""

Join = Callable[[Facts, TaskStatus, Fields], Fields | None]
"""What else is known, for a task whose log has the pattern; None: other facts say that it is something else."""

Find = Callable[[Facts], Iterable["Seen"]]


class Level(IntEnum):
    """What it does to the run. The most important comes first."""

    ENDS = 1
    BLOCKS = 2
    SLOWS = 3
    NOTE = 4


@dataclass(frozen=True)
class Signature:
    """One row of a table, as signatures.ini describes it."""

    name: str
    level: Level
    seen: str
    beside: str
    means: str
    remedy: tuple[str, ...]
    pattern: str = ""
    join: Join = lambda facts, task, fields: {}
    find: Find = lambda facts: ()
    after_end: bool = False
    """It is a problem of a run that has succeeded or was stopped, too."""
    family: str = ""
    """Of rows with the same family, only the first that fits a task or host is shown."""
    follows: str = ""
    """What it follows from: `ends`, or `anything`. It is only shown if no such thing is found."""


def table(file: Path, function: Callable[[str], Any] = str) -> Rows:
    """The rows of a file, in its order. `function`: the one that the words of a join or find name."""
    sections = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    sections.read_string(file.read_text("utf-8"))

    def row(name: str) -> Signature:
        texts = sections[name]
        return Signature(
            name,
            Level[texts.get("level", "ends").upper()],
            texts.get("seen", "").replace("\n", " ").strip(),
            texts.get("beside", "").replace("\n", " ").strip(),
            texts["means"].replace("\n", " ").strip(),
            tuple(texts["remedy"].strip().split("\n")),
            texts.get("pattern", "").replace("\n", ""),
            function(texts["join"]) if "join" in texts else Signature.join,
            function(texts["find"]) if "find" in texts else Signature.find,
            texts.getboolean("after_end", False),
            texts.get("family", name),
            texts.get("follows", ""),
        )

    return tuple(map(row, sections.sections()))


Rows = tuple[Signature, ...]

ENDED_SOMEHOW = "ended"
"""The signature of ends whose logs match no other."""


K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, both in the order of the pairs."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


Version = tuple[str, tuple[str, ...]]
"""One of several versions, and the hosts that have it."""


def versions(pairs: Iterable[tuple[str, str]]) -> tuple[Version, ...]:
    """By pairs of a version and a host."""
    return tuple((version, tuple(dict.fromkeys(hosts))) for version, hosts in sorted(grouped(pairs).items()))


def commonness(one: Version) -> tuple[int, list[int]]:
    """To sort by: what more hosts have comes last, of two that as many have the newer one."""
    return len(one[1]), [int(part) for part in re.findall(r"\d+", one[0])]


@dataclass(frozen=True)
class Wait:
    """A task that lives and needs another."""

    task: TaskId
    host: str
    for_s: float
    text: str
    """The line of its log about it."""


@dataclass(frozen=True)
class Seen:
    """That something is so: of which tasks and hosts, and what else is known."""

    tasks: tuple[TaskId, ...] = ()
    hosts: tuple[str, ...] = ()
    fields: Fields = field(default_factory=dict)
    end: End | None = None
    """How the tasks have ended."""
    complaint: str = ""
    """What they say, where they live."""
    waiting: tuple[Wait, ...] = ()
    """Who needs them."""
    over: bool = False
    """They were restarted, and have run since for longer than before."""


@dataclass(frozen=True)
class Finding:
    """A signature that fits."""

    signature: Signature
    seen: Seen
    first: bool = False
    """The run has failed of it."""

    @property
    def is_known(self) -> bool:
        """More than that something has ended."""
        return self.signature.name != ENDED_SOMEHOW

    @property
    def order(self) -> tuple[bool, int, bool]:
        """By importance; what other tasks wait for comes first."""
        return not self.first, self.signature.level, not self.seen.waiting

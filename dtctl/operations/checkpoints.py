"""The checkpoints that the hosts have found in a run's directories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.agent.records import answers


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint as its files tell it."""

    prefix: str
    step: int | None
    time: float
    """Epoch seconds of the last change, by the host's clock."""
    size_bytes: int
    shards: int
    complete: bool
    problem: str
    kind: str = "tensorflow"
    """Or `keras`: one file; `orbax`: one directory."""
    held: tuple[int, ...] = ()
    """Shards that lie on this host."""
    identity: str = ""
    """The same on hosts that share it."""


@dataclass(frozen=True)
class Checkpoints:
    """One directory on one host, newest first."""

    host: str
    directory: str
    newest_complete: Checkpoint | None
    incomplete: tuple[Checkpoint, ...]
    """Incomplete ones that are newer than the newest complete one."""
    all: tuple[Checkpoint, ...]
    problem: str = ""
    """Why there may be more than were found."""
    identity: str = ""
    """Of the directory: hosts that tell another do not share it."""
    guessed: bool = False
    """No setting names it: the lead's command line does, or the lead works there."""
    others: tuple[str, ...] = ()
    """Other hosts that see the same directory."""


def read_checkpoints(host: str, reports: Iterable[answers.CheckpointReport]) -> list[Checkpoints]:
    """Checkpoints of the `checkpoints` field of an agent's answer."""
    return [
        Checkpoints(
            host=host,
            directory=report["dir"],
            newest_complete=read_checkpoint(report["newest_complete"]) if report["newest_complete"] else None,
            incomplete=tuple(read_checkpoint(entry) for entry in report["incomplete"]),
            all=tuple(read_checkpoint(entry) for entry in report["all"]),
            problem=report["problem"] or "",
            identity=report["identity"],
            guessed=report["guessed"],
        )
        for report in reports
    ]


def newest_of_run(found: Sequence[Checkpoints]) -> Checkpoints | None:
    """The directory with the newest complete checkpoint; among equals (a shared directory) the first, the lead's."""
    complete = [one for one in found if one.newest_complete]
    if not complete:
        return next((one for one in found if one.all or one.problem), None)
    return max(complete, key=lambda one: one.newest_complete.time if one.newest_complete else 0.0)


def read_checkpoint(entry: answers.Checkpoint) -> Checkpoint:
    """One entry of such a report."""
    return Checkpoint(
        prefix=entry["prefix"],
        step=entry["step"],
        time=entry["time"],
        size_bytes=entry["size_bytes"],
        shards=entry["shards"],
        complete=entry["complete"],
        problem=entry["problem"] or "",
        kind=entry["kind"],
        held=tuple(entry["held"]),
        identity=entry["identity"],
    )

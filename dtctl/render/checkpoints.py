"""Checkpoints as text and tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dtctl.operations.checkpoints import Checkpoints, at, epoch_of, newest_scattered
from dtctl.render.format import count, duration, fold, size
from dtctl.render.terminal import console
from dtctl.render.terminal.console import print_table, styled, table

if TYPE_CHECKING:
    from rich.text import Text

    from dtctl.agent.records.checkpoints import Checkpoint
    from dtctl.operations.snapshot import RunStatus


def checkpoint_lines(status: RunStatus) -> list[str]:
    found = status.newest_checkpoint
    if found is None:
        return []
    lines = []
    report, newest = found.report, status.newest_complete
    if newest:
        reached = f"{found_at}, " if (found_at := position(newest)) else ""
        lines.append(
            f"checkpoint: {reached}{age(newest, status.time)} old,"
            f" {size(newest['size_bytes'])} in {count(newest['shards'], 'shard')},"
            f" {found.where}/{newest['prefix']}"
        )
    elif report["problem"]:
        lines.append(f"checkpoint: none known {'in' if found.is_url else 'on'} {found.host}")
    else:
        lines.append(f"checkpoint: no complete one in {found.where}")
    if report["problem"]:
        lines.append(f"            there may be others: {report['problem']}")
    spread = newest_scattered(status.checkpoints)
    if spread is not None:
        lines.append(
            f"            {spread.checkpoint['prefix']} lies on {fold(spread.hosts)}, which no restore sees as a whole:"
            " dtctl checkpoints pull brings it together"
        )
    elif report["incomplete"]:
        newer = report["incomplete"][0]
        lines.append(f"            a newer one, {newer['prefix']}, is not complete: {newer['problem']}")
    return lines


def show_checkpoints(
    places: Sequence[Checkpoints],
    now: float,
    elsewhere: Callable[[Checkpoints, Checkpoint], Mapping[int, str]] = lambda place, one: {},
) -> None:
    """Shows the checkpoints of each place.

    `elsewhere`: the shards of a checkpoint that a host lacks, and their hosts.
    """
    out = console.out()
    for place in places:
        report, hosts = place.report, fold((place.host, *place.others))
        out.print(at(hosts, report["dir"]) + (" (which no setting names)" if report["guessed"] else ""))
        if report["problem"]:
            out.print(f"  there may be more than those found: {report['problem']}", style="yellow")
        if not report["all"]:
            out.print("  none found" if report["problem"] else "  no checkpoint")
            continue
        columns: dict[str, list[str] | list[Text]] = {
            "CHECKPOINT": [one["prefix"] for one in report["all"]],
            "STEP": [position(one).removeprefix("step ") for one in report["all"]],
            "AGE": [age(one, now) for one in report["all"]],
            "SIZE": [size(one["size_bytes"]) for one in report["all"]],
            "SHARDS": [str(one["shards"]) for one in report["all"]],
            "STATE": [_state(one, report["newest_complete"], elsewhere(place, one)) for one in report["all"]],
        }
        print_table(table(columns))


def _state(one: Checkpoint, newest: Checkpoint | None, lacking: Mapping[int, str]) -> Text:
    if newest and one["prefix"] == newest["prefix"]:
        return styled("complete, newest", "bold")
    if lacking:
        return styled(f"incomplete here: {_held_by(one, lacking)}", "" if one["complete"] else "yellow")
    return styled("complete", "") if one["complete"] else styled(f"incomplete: {one['problem']}", "yellow")


def _held_by(one: Checkpoint, lacking: Mapping[int, str]) -> str:
    hosts = fold(dict.fromkeys(lacking.values()))
    if one["kind"] == "dcp" and not one["lacking"]:
        return f"{count(len(one['held']), 'shard')}; others, and perhaps the metadata, are on {hosts} alone"
    if len(one["held"]) + len(lacking) < one["shards"]:
        return f"{count(len(lacking), 'shard')} of {one['shards']} on {hosts}, others on no host that answers"
    return f"{count(len(lacking), 'shard')} of {one['shards']} on {hosts} alone, which a restore here does not see"


def position(checkpoint: Checkpoint) -> str:
    """Where the training was when it was saved: its step, else the epoch in its name; empty if neither is known."""
    epoch = epoch_of(checkpoint)
    if checkpoint["step"] is not None:
        return f"step {checkpoint['step']}"
    return "" if epoch is None else f"epoch {epoch}"


def at_position(checkpoint: Checkpoint) -> str:
    """The same after a name."""
    found = position(checkpoint)
    return f" ({found})" if found else ""


def age(checkpoint: Checkpoint, now: float) -> str:
    return duration((now or time.time()) - checkpoint["time"])

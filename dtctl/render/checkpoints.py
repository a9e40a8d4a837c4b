"""Checkpoints as text and tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.operations.checkpoints import Checkpoints, Found, at
from dtctl.render.format import count, duration, fold, size
from dtctl.render.terminal import console
from dtctl.render.terminal.console import print_table, styled, table

if TYPE_CHECKING:
    from rich.text import Text

    from dtctl.agent.records.checkpoints import Checkpoint
    from dtctl.operations.checkpoints.pull import Pulled
    from dtctl.operations.checkpoints.push import Pushed
    from dtctl.operations.checkpoints.upkeep import Pruning, Verification
    from dtctl.operations.snapshot import RunStatus


def checkpoint_lines(status: RunStatus) -> list[str]:
    found = status.newest_checkpoint
    if found is None:
        return []
    lines = []
    report, newest = found.report, status.newest_complete
    if newest:
        step = f"step {newest['step']}, " if newest["step"] is not None else ""
        lines.append(
            f"checkpoint: {step}{age(newest, status.time)} old,"
            f" {size(newest['size_bytes'])} in {count(newest['shards'], 'shard')},"
            f" {found.where}/{newest['prefix']}"
        )
    elif report["problem"]:
        lines.append(f"checkpoint: none known {'in' if found.is_url else 'on'} {found.host}")
    else:
        lines.append(f"checkpoint: no complete one in {found.where}")
    if report["problem"]:
        lines.append(f"            there may be others: {report['problem']}")
    if report["incomplete"]:
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
            "STEP": ["" if one["step"] is None else str(one["step"]) for one in report["all"]],
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
    if len(one["held"]) + len(lacking) < one["shards"]:
        return f"{count(len(lacking), 'shard')} of {one['shards']} on {hosts}, others on no host that answers"
    return f"{count(len(lacking), 'shard')} of {one['shards']} on {hosts} alone, which a restore here does not see"


def show_verified(outcome: Verification) -> None:
    """Shows one line for each checkpoint, and its problems below it."""
    for one in outcome.checked:
        checkpoint = one.found.checkpoint
        report = one.report
        read = f"{size(report['read_bytes'])} in {report['seconds']:.1f} s"
        verdict = "damaged" if report["problems"] else "not all read" if report["unread"] else "sound"
        style = {"damaged": "bold red", "sound": "green"}.get(verdict, "yellow")
        console.out().print(
            styled(f"{at(one.found.host, one.found.path)}{_at_step(checkpoint)}: {verdict}, {read}", style)
        )
        for line in (*report["problems"], *([report["unread"]] if report["unread"] else [])):
            console.out().print(f"  {line}")


def show_pull(found: Found, directory: Path) -> None:
    console.report(f"{found.path}{_at_step(found.checkpoint)} from {fold(found.hosts)} to {directory}")


def show_pulled(outcome: Pulled) -> None:
    before = outcome.size_bytes - outcome.sent_bytes
    resumed = f", {size(before)} of it had arrived before" if before > 0 else ""
    for path in outcome.files:
        console.say(str(path))
    console.report(f"{count(len(outcome.files), 'file')}, {size(outcome.size_bytes)}{resumed}")


def show_reading(prefix: Path) -> None:
    console.report(f"reading every byte of {prefix}")


def show_pushed(outcome: Pushed) -> None:
    """Shows where the checkpoint is, and what a trainer does with it."""
    own = outcome.own
    for one in outcome.placed:
        what = f"{size(one.sent_bytes)} sent"
        if one.sent_bytes < own.size_bytes:
            before = size(own.size_bytes - one.sent_bytes)
            what = f"{what}, {before} of it had arrived before" if one.sent_bytes else "it was all there already"
        shared = f", which {fold(one.others)} share{'s' if len(one.others) == 1 else ''}" if one.others else ""
        console.say(f"{at(one.host, one.directory)}/{one.prefix}{shared}: {what}")
    since = "from it" if own.step is None else f"at step {own.step}"
    console.report(f"it is the newest there now: a trainer that restores the newest continues {since} after dtctl up")


def show_pruned(outcome: Pruning, *, dry_run: bool) -> None:
    """Shows which checkpoints were removed, or why none was."""
    would = "would be removed" if dry_run else "removed"
    for host, one in outcome.directories:
        where = at(host, one["dir"])
        for each in one["removed"]:
            console.say(f"{where}/{each['prefix']}{_at_step(each)}: {would}")
        freed = f", {size(one['freed_bytes'])}" if one["removed"] else ""
        console.say(f"{where}: {len(one['removed'])} {would}{freed}, {len(one['kept'])} complete kept")
        if one["problem"]:
            console.out().print(f"  not all: {one['problem']}", style="yellow")
        if one["removed"] and not one["listed"]:
            console.report("  the trainer lists its checkpoints in `checkpoint` itself, at its next save")
    if not outcome.directories and not outcome.errors:
        console.report("no complete checkpoint was found, so nothing is removed")


def _at_step(checkpoint: Checkpoint) -> str:
    return f" (step {checkpoint['step']})" if checkpoint["step"] is not None else ""


def age(checkpoint: Checkpoint, now: float) -> str:
    return duration((now or time.time()) - checkpoint["time"])

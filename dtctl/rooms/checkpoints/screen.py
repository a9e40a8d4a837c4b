"""The results of `checkpoints` as text."""

from __future__ import annotations

from pathlib import Path

from dtctl.config.ranges import fold
from dtctl.operations.checkpoints import Found, at
from dtctl.render.checkpoints import at_position
from dtctl.render.format import count, size
from dtctl.render.terminal import console
from dtctl.rooms.checkpoints.pull import Pulled
from dtctl.rooms.checkpoints.push import Pushed
from dtctl.rooms.checkpoints.upkeep import Pruning, Verification


def show_verified(outcome: Verification) -> None:
    """Shows one line for each checkpoint, and its problems below it."""
    for one in outcome.checked:
        checkpoint = one.found.checkpoint
        report = one.report
        read = f"{size(report['read_bytes'])} in {report['seconds']:.1f} s"
        verdict = "damaged" if report["problems"] else "not all read" if report["unread"] else "sound"
        style = {"damaged": "bold red", "sound": "green"}.get(verdict, "yellow")
        where = at(fold(one.found.hosts), one.found.path)
        console.out().prose(f"{where}{at_position(checkpoint)}: {verdict}, {read}", style)
        for line in (*report["problems"], *([report["unread"]] if report["unread"] else [])):
            console.out().prose(f"  {line}")


def show_pull(found: Found, directory: Path) -> None:
    console.report(f"{found.path}{at_position(found.checkpoint)} from {fold(found.hosts)} to {directory}")


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
    if own.found_by:
        console.report(f"it is there now; how a trainer finds it: {own.found_by}")
        return
    since = "from it" if own.step is None else f"at step {own.step}"
    console.report(f"it is the newest there now: a trainer that restores the newest continues {since} after dtctl up")


def show_pruned(outcome: Pruning, *, dry_run: bool) -> None:
    """Shows which checkpoints were removed, or why none was."""
    would = "would be removed" if dry_run else "removed"
    for host, one in outcome.directories:
        where = at(host, one["dir"])
        for each in one["removed"]:
            console.say(f"{where}/{each['prefix']}{at_position(each)}: {would}")
        freed = f", {size(one['freed_bytes'])}" if one["removed"] else ""
        console.say(f"{where}: {len(one['removed'])} {would}{freed}, {len(one['kept'])} complete kept")
        if one["problem"]:
            console.out().print(f"  not all: {one['problem']}", style="yellow")
        if one["removed"] and not one["listed"]:
            console.report("  the trainer lists its checkpoints in `checkpoint` itself, at its next save")
    if not outcome.directories and not outcome.errors:
        console.report("no complete checkpoint was found, so nothing is removed")

"""Checkpoints as text and tables."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dtctl.operations.checkpoints import Checkpoint, Checkpoints
from dtctl.operations.status import RunStatus
from dtctl.render.tables import print_table, styled, table
from dtctl.render.terminal import console
from dtctl.render.words import count, duration, size


def checkpoint_lines(status: RunStatus) -> list[str]:
    found = status.newest_checkpoint
    if found is None:
        return []
    lines = []
    newest = found.newest_complete
    if newest:
        step = f"step {newest.step}, " if newest.step is not None else ""
        lines.append(
            f"checkpoint: {step}{age(newest, status.time)} old,"
            f" {size(newest.size_bytes)} in {count(newest.shards, 'shard')},"
            f" {found.host}:{found.directory}/{newest.prefix}"
        )
    elif found.problem:
        lines.append(f"checkpoint: none known on {found.host}")
    else:
        lines.append(f"checkpoint: no complete one in {found.host}:{found.directory}")
    if found.problem:
        lines.append(f"            there may be others: {found.problem}")
    if found.incomplete:
        newer = found.incomplete[0]
        lines.append(f"            a newer one, {newer.prefix}, is not complete: {newer.problem}")
    return lines


def show_checkpoints(found: Sequence[Checkpoints], now: float) -> None:
    out = console.out()
    for directory in found:
        out.print(f"{directory.host}:{directory.directory}")
        if directory.problem:
            out.print(f"  there may be more than those found: {directory.problem}", style="yellow")
        if not directory.all:
            out.print("  none found" if directory.problem else "  no checkpoint")
            continue
        grid = table("CHECKPOINT", "STEP", "AGE", "SIZE", "SHARDS", "STATE")
        for one in directory.all:
            step = "" if one.step is None else str(one.step)
            state = "complete" if one.complete else f"incomplete: {one.problem}"
            if directory.newest_complete and one.prefix == directory.newest_complete.prefix:
                state = "complete, newest"
            style = "bold" if state.endswith("newest") else "" if one.complete else "yellow"
            grid.add_row(one.prefix, step, age(one, now), size(one.size_bytes), str(one.shards), styled(state, style))
        print_table(grid)


def age(checkpoint: Checkpoint, now: float) -> str:
    return duration((now or time.time()) - checkpoint.time)

"""What `dtctl gc` has found, host by host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtctl.render.tables import print_table, table
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import one_line
from dtctl.render.words import count, fold, size

if TYPE_CHECKING:
    from dtctl.operations.client.written import Written
    from dtctl.operations.gc import GcResult, Remains

_SHOWN_COMMAND = 60


def show_remains(found: GcResult, *, dry_run: bool) -> None:
    """Hosts with nothing to remove are one line; each process is named."""
    busy = {host: one for host, one in found.remains.items() if not one.nothing}
    clean = [host for host in found.remains if host not in busy]
    if busy:
        grid = table("HOST", "FOUND" if dry_run else "REMOVED", "FREED")
        for host, one in busy.items():
            grid.add_row(host, _words(one), size(one.freed_bytes))
        print_table(grid)
        for host, one in busy.items():
            for line in _details(host, one):
                console.say(line)
    for written in found.written:
        console.say(f"{'to be removed' if dry_run else 'removed'}: {_where(written)}")
    for kept in found.kept:
        console.say(written_line(kept))
    if clean:
        console.say(f"{fold(clean)}: nothing to remove")
    if found.kept:
        console.tell("dtctl gc --written    removes what trainers wrote as well")
    if busy and dry_run:
        console.tell("nothing has been removed yet")


def written_line(one: Written) -> str:
    return f"kept: {_where(one)}"


def _where(one: Written) -> str:
    each = " each" if one.directories > 1 else ""
    cluster = f" of {one.cluster}" if one.cluster else ""
    what = f"{size(one.size_bytes)}{each}, with {count(one.files, 'file')} that trainers{cluster} wrote"
    return f"{what}: {one_line(one.path)} on {fold(one.hosts)}"


def _words(one: Remains) -> str:
    counts = (
        (len(one.processes), "process"),
        (len(one.runs), "run"),
        (len(one.bundles), "bundle"),
        (len(one.files), "file"),
        (one.written, "working directory"),
    )
    return ", ".join(count(number, noun) for number, noun in counts if number)


def _details(host: str, one: Remains) -> list[str]:
    lines = [f"{host}: process {orphan.pid} of {orphan.run}: {_short(orphan.command)}" for orphan in one.processes]
    lines += [
        f"{host}: process {left.pid} of {left.run} outlived SIGKILL: {_short(left.command)}" for left in one.survivors
    ]
    return lines + [f"{host}: {run.run}: {run.reason}, {size(run.size_bytes)}" for run in one.runs]


def _short(command: str) -> str:
    return command if len(command) <= _SHOWN_COMMAND else command[:_SHOWN_COMMAND] + "..."

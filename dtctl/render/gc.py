"""What `dtctl gc` finds on the hosts and removes, and what it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtctl.errors import clipped
from dtctl.render.format import count, fold, size
from dtctl.render.tables import print_table, table
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import one_line

if TYPE_CHECKING:
    from dtctl.agent.records import answers
    from dtctl.operations.gc import GcResult, Written


def show_remains(found: GcResult, *, dry_run: bool) -> None:
    """Hosts with nothing to remove are one line; each process is named."""
    from dtctl.operations.gc import is_nothing

    busy = {host: one for host, one in found.remains.items() if not is_nothing(one)}
    clean = [host for host in found.remains if host not in busy]
    if busy:
        found_words = [_text(one) for one in busy.values()]
        freed = [size(one["freed_bytes"]) for one in busy.values()]
        print_table(table({"HOST": [*busy], "FOUND" if dry_run else "REMOVED": found_words, "FREED": freed}))
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
        console.report("dtctl gc --written    removes what trainers wrote as well")
    if busy and dry_run:
        console.report("nothing has been removed yet")


def written_line(one: Written) -> str:
    return f"kept: {_where(one)}"


def _where(one: Written) -> str:
    each = " each" if one.directories > 1 else ""
    cluster = f" of {one.cluster}" if one.cluster else ""
    what = f"{size(one.size_bytes)}{each}, with {count(one.files, 'file')} that trainers{cluster} wrote"
    return f"{what}: {one_line(one.path)} on {fold(one.hosts)}"


def _text(one: answers.GcResult) -> str:
    counts = (
        (len(one["processes"]), "process"),
        (len(one["runs"]), "run"),
        (len(one["bundles"]), "bundle"),
        (len(one["environments"]), "environment"),
        (len(one["files"]), "file"),
        (len(one["written"]), "working directory"),
    )
    return ", ".join(count(number, noun) for number, noun in counts if number)


def _details(host: str, one: answers.GcResult) -> list[str]:
    lines = [
        f"{host}: process {left['pid']} of {left['run']}{outlived}: {clipped(left['command'], 63)}"
        for outlived, group in (("", one["processes"]), (" outlived SIGKILL", one["survivors"]))
        for left in group
    ]
    return lines + [f"{host}: {run['run']}: {run['reason']}, {size(run['size_bytes'])}" for run in one["runs"]]

"""Data sets as text: their state on hosts, and the files that were sent and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dtctl.model import grouped
from dtctl.plan import shown_path
from dtctl.render.format import by_value, count, size, summarize_hosts
from dtctl.render.terminal import console
from dtctl.render.terminal.console import print_table, styled, table
from dtctl.render.terminal.moving import LastLine, moving

if TYPE_CHECKING:
    from rich.text import Text

    from dtctl.agent.rooms.data.records import DataDropped
    from dtctl.bundle import Bundle
    from dtctl.bundle.scanning import ScanReport
    from dtctl.rooms.data.operation import DataSet, PlaceState
    from dtctl.rooms.data.pushing import PushedData

T = TypeVar("T")

_PUSH = "dtctl data push    sends what is missing"
_STYLES = {"complete": "green", "missing": "yellow", "incomplete": "yellow"}


@contextmanager
def source_progress(source: Path, *, quiet: bool = False) -> Iterator[ScanReport]:
    """Shows on a terminal how much of the source has been read."""
    line = ""

    def report(files: int, read_bytes: int) -> None:
        nonlocal line
        line = f"reading {source}: {count(files, 'file')}, {size(read_bytes)} new"

    with nullcontext() if quiet or not console.interactive() else moving(LastLine(lambda: line)):
        yield report


def show_data_states(states: Iterable[PlaceState]) -> None:
    """Shows a line for hosts with the same directory in the same state."""
    alike = grouped(((shown_path(one.place.directory), one.state, _words(one)), one.place.host) for one in states)
    columns: dict[str, list[str] | list[Text]] = {
        "HOST": [summarize_hosts(hosts) for hosts in alike.values()],
        "DIRECTORY": [directory for directory, _, _ in alike],
        "STATE": [styled(words, _STYLES.get(state, "red")) for _, state, words in alike],
    }
    print_table(table(columns))


def _words(place_state: PlaceState) -> str:
    held = place_state.held
    whole = f"{count(held['files'], 'file')}, {size(held['size_bytes'])}"
    if place_state.state == "complete":
        return f"complete: {whole}"
    if place_state.state == "missing":
        return "missing" + (": the directory is there, and nothing was pushed into it" if held["there"] else "")
    if place_state.state == "differs":
        return f"differs: {whole} of another state of the source"
    lacking = [f"{held['missing']} missing ({size(held['missing_bytes'])})"] if held["missing"] else []
    lacking += [f"{held['changed']} changed"] if held["changed"] else []
    return f"{place_state.right_files} of {count(held['files'], 'file')}: {', '.join(lacking)}"


def next_steps(states: Iterable[PlaceState]) -> list[str]:
    """The commands to type; none if all data is complete."""
    found = {one.state for one in states}
    if found == {"complete"} or not found:
        return []
    verify = ["dtctl data verify    reads the changed files"] if "changed" in found else []
    return [*verify, _PUSH]


def show_data_examples(states: Iterable[PlaceState]) -> None:
    """Shows names of files that are missing or changed."""
    for one in states:
        if examples := one.held["examples"]:
            more = one.held["files"] - one.right_files - len(examples)
            also = f" and {more} more" if more else ""
            console.out().prose(f"{one.place.host}:{shown_path(one.place.directory)}: {', '.join(examples)}{also}")


def show_data_pushed(outcome: Mapping[str, Sequence[PushedData]]) -> None:
    """Shows what each host was sent."""
    _say_by_host(outcome, _pushed)


def _pushed(one: PushedData) -> str:
    answer = one.answer
    what = f"{count(answer['sent_files'], 'file')} sent" if answer["sent_files"] else "already had everything"
    found = f", {answer['found_files']} were there already" if answer["found_files"] and answer["sent_files"] else ""
    removed = f", {answer['removed_files']} removed" if answer["removed_files"] else ""
    return f"{shown_path(one.place.directory)}: {what}{found}{removed}"


def show_data_source(bundle: Bundle, data: DataSet) -> None:
    shares = {place.share for place in data.places if place.share is not None}
    dealt = f", dealt out to {count(len(shares), 'task')}" if shares else ""
    console.report(f"data: {count(len(bundle.manifest.files), 'file')}, {size(bundle.total_bytes)}{dealt}")


def show_data_dropped(outcome: Mapping[str, Sequence[DataDropped]]) -> None:
    _say_by_host(outcome, _dropped)


def _say_by_host(outcome: Mapping[str, Sequence[T]], words: Callable[[T], str]) -> None:
    """Prints a line for all hosts with the same text."""
    texts = {host: "; ".join(map(words, each)) for host, each in outcome.items()}
    for text, hosts in by_value(texts).items():
        console.out().prose(f"{summarize_hosts(hosts)}: {text}")


def _dropped(one: DataDropped) -> str:
    kept = f", {count(one['kept_files'], 'file')} of others kept" if one["kept_files"] else ""
    return f"{shown_path(one['dir'])}: {count(one['removed_files'], 'file')} removed, {size(one['freed_bytes'])}{kept}"

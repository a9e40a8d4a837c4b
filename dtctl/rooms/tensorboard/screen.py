"""The messages of `dtctl tensorboard`: where it runs, and why there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dtctl.agent.rooms.tensorboard.records import TensorboardResult
from dtctl.render import errors
from dtctl.render.format import count, fold, size
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import LastLine, moving
from dtctl.render.terminal.safe import lines_of
from dtctl.rooms.tensorboard import EventFileSources, Location


def say_place(place: Location, found_files: EventFileSources) -> None:
    """Reports where it starts, beforehand."""
    dirs = sorted({one for answer in found_files.answers.values() for one in answer["dirs"]})
    if not place.urls and not any(answer["folders"] for answer in found_files.answers.values()):
        errors.note(f"no event files yet below {', '.join(dirs[:5]) or 'any directory of the run'}")
    if place.host is not None:
        errors.note(f"TensorBoard begins on {place.host}: {_why_there(place)}")
    else:
        what = " and ".join([*_amount(place, found_files), *place.urls])
        errors.note(f"TensorBoard begins on this machine, on copies of {what}: {_why_here(place)}")


@contextmanager
def beginning(place: Location, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Shows on a terminal that it begins, and for how long it has, until its address is known."""
    began = clock()
    where = place.host or "this machine"
    with ExitStack() as stack:
        if console.interactive():
            line = LastLine(lambda: f"waiting for TensorBoard on {where} ({clock() - began:.0f} s)")
            stack.enter_context(moving(line))
        yield


def _why_there(place: Location) -> str:
    if place.choice == "no_files":
        return "the run has one, and no event files yet"
    if place.choice == "not_here":
        return (
            f"this machine has none that could show copies, so event files of {fold(place.left_out)} are not shown"
            " (pip install tensorboard here to see them)"
        )
    return "the event files are there"


def _why_here(place: Location) -> str:
    if place.choice == "asked":
        return "you asked for copies"
    if place.choice == "no_tensorboard":
        return "the Python that trains has no TensorBoard"
    if place.choice == "storage":
        return "the run writes to storage, which is read from here once a minute"
    return f"they are on several hosts, {fold(place.sources)}"


def _amount(place: Location, found_files: EventFileSources) -> list[str]:
    """The event files of hosts; empty for a run that writes only to storage."""
    sizes = [found_files.answers[host]["sizes"] for host in place.sources]
    files, size_bytes = (sum(one.get(name, 0) for one in sizes) for name in ("files", "bytes"))
    return [f"{count(files, 'event file')} ({size(size_bytes)})"] if files or not place.urls else []


def document(place: Location, run: str | None) -> dict[str, object]:
    """The fields of the document with its address."""
    return {
        "kind": "TensorBoard",
        "run": run,
        "host": place.host,
        "why": place.choice,
        "copiedFrom": [*place.sources, *place.urls],
    }


def say_shown(place: Location, dirs: Sequence[str]) -> None:
    """Reports below the address what it shows."""
    if place.host is not None:
        errors.note(f"it shows {', '.join(dirs)} of {place.host}, over dtctl's own connection")
    errors.note("it works once, in one browser; Ctrl-C ends it, and leaves nothing behind")


def show_end(host: str, result: TensorboardResult) -> None:
    """Reports an end that the user did not request."""
    if result["end"] == "silent":
        errors.note(f"TensorBoard on {host} has ended: this machine sent nothing for a minute")
    else:
        errors.note(f"TensorBoard on {host} has ended by itself", *lines_of(result["said"])[-5:])

"""Copies the event files of several hosts to one directory, and keeps the copies up to date."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dtctl.agent.rooms.metrics.records import FolderAt
from dtctl.agent.rooms.tensorboard.records import MOST_FOLDERS, CaughtUp, EventDirsResult, EventFile
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, PreflightError
from dtctl.folder import PRIVATE, temporary_folder
from dtctl.model import Host
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Request, about, ask_hosts, frames_of, knows_no_run, request
from dtctl.operations.client.plausible import wrong
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.metrics.operation import Key, key_of
from dtctl.rooms.storage import label
from dtctl.transport.seam import Session, Transport

if TYPE_CHECKING:
    from dtctl.rooms.storage.metrics import Copies as StorageCopies

Choice = Literal["asked", "no_tensorboard", "several_hosts", "one_host", "no_files", "not_here", "storage"]
"""Why it runs where it does: `asked` for copies; the files are on `one_host`; they are on `several_hosts`, or that
host has `no_tensorboard`; there are `no_files` yet; the run writes to `storage`; they are on several hosts or there,
and there is no TensorBoard here (`not_here`)."""


@dataclass(frozen=True)
class EventFileSources:
    """The directories that hosts have reported; `run` None: no host has a run."""

    run: str | None
    answers: Mapping[str, EventDirsResult]
    errors: Mapping[str, DtctlError]


@dataclass(frozen=True)
class Location:
    """Where TensorBoard runs. `host` None: here, on copies from `sources` and `urls`. `left_out`: hosts and buckets
    that are not shown.
    """

    host: str | None
    choice: Choice
    sources: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()


def find_event_files(record: RunRecord, transport: Transport) -> EventFileSources:
    """Finds event files over one connection to each host."""
    outcomes = ask_hosts(record, ImpatientTransport(transport, record), Request("event_dirs", EventDirsResult))
    results = outcomes.results
    runs = [results[host]["run"] for host in sorted(results, key=lambda name: name != record.coordinator)]
    run = runs[0] if runs else None
    answers = {host: answer for host, answer in results.items() if answer["run"] == run}
    return EventFileSources(
        run, answers, {host: error for host, error in outcomes.errors.items() if not knows_no_run(error)}
    )


def choose(
    found_files: EventFileSources, coordinator: str, *, copy: bool, here: bool, urls: Sequence[str] = ()
) -> Location:
    """Chooses where TensorBoard runs. `urls`: where the run writes besides; `here`: this machine has TensorBoard.

    Raises PreflightError where there is none that could show them.
    """
    order = sorted(found_files.answers, key=lambda host: (host != coordinator, host))
    every = {key for host in order for key in keys_of(found_files.answers[host])}
    whole = [host for host in order if keys_of(found_files.answers[host]) == every]
    able = [host for host in whole if found_files.answers[host]["tensorboard"]]
    if copy:
        if not here:
            raise none_here()
        return Location(None, "asked", _sources(found_files, order), urls=tuple(urls))
    if urls and here:
        return Location(None, "storage", _sources(found_files, order), urls=tuple(urls))
    if able and urls:
        return Location(able[0], "not_here", left_out=tuple(dict.fromkeys(map(label, urls))))
    if able:
        return Location(able[0], "one_host" if every else "no_files")
    if here:
        return Location(None, "no_tensorboard" if whole else "several_hosts", _sources(found_files, order))
    return _some(found_files, order)


def _some(found_files: EventFileSources, order: list[str]) -> Location:
    """The host that can show most of the files. Raises PreflightError where none can."""
    with_it = [host for host in order if found_files.answers[host]["tensorboard"]]
    if not with_it:
        tried = [
            f"{host} has none in {', '.join(answer['tried']) or 'any Python'}"
            for host, answer in found_files.answers.items()
        ]
        raise PreflightError(
            "neither the hosts nor this machine have TensorBoard",
            detail="\n".join(tried[:10]),
            hint="pip install tensorboard    here, in dtctl's environment, or in that of the trainers",
        )
    host = max(with_it, key=lambda name: len(keys_of(found_files.answers[name])))
    own = keys_of(found_files.answers[host])
    return Location(host, "not_here", left_out=tuple(one for one in order if keys_of(found_files.answers[one]) - own))


def none_here() -> PreflightError:
    return PreflightError(
        "this machine has no TensorBoard that could show copies",
        hint="pip install tensorboard    in the environment of dtctl, or in the active one",
    )


def _sources(found_files: EventFileSources, order: list[str]) -> tuple[str, ...]:
    """The hosts to copy from: those that have files, of this run and not of an earlier one."""
    seen: set[Key] = set()
    chosen = []
    for host in order:
        own = keys_of(found_files.answers[host])
        if not own or own - seen:
            chosen.append(host)
        seen |= own
    return tuple(chosen)


def keys_of(answer: EventDirsResult) -> set[Key]:
    return set(map(key_of, answer["folders"]))


MOST_FILES = 10_000
TICK_S = 0.5
_LONGEST_NAME = 255


@dataclass(frozen=True)
class Copied:
    """All the files that a host or a storage URL had when it was asked are here."""

    host: str
    files: int


@dataclass
class _File:
    names: tuple[str, ...]
    """The parts of its path below the directory."""
    host: str
    source: tuple[str, str, str]
    inode: str = ""
    size: int = 0


class Copies(AbstractContextManager["Copies"]):
    """The copies below `directory`, in a temporary `place` that is removed at the end. A context manager.

    What hosts share comes from the first to report it.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        place = self._stack.enter_context(temporary_folder("dtctl-tensorboard-"))
        self._shown = self._stack.enter_context(place.below("shown", make=PRIVATE))
        self.place, self.directory = place.path, self._shown.path
        self._closed = False
        self._files: dict[tuple[str, str, str, str], _File] = {}
        self._owner: dict[Key, str] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            self._stack.close()

    def had(self, host: str) -> list[dict[str, object]]:
        """The sizes of a host's copies, for the request `event_files`."""
        with self._lock:
            own = [file for file in self._files.values() if file.host == host]
            places = [dict(zip(("dir", "name", "file"), file.source, strict=True)) for file in own]
            return [{**at, "inode": file.inode, "size": file.size} for at, file in zip(places, own, strict=True)]

    def add(self, host: str, answer: EventFile, data: bytes) -> None:
        """Raises InvalidValue for a path outside the directory, and DtctlError when the disk is full."""
        key = key_of(answer)
        with self._lock:
            if self._closed or self._owner.setdefault(key, host) != host:
                return
            file = self._file(host, answer)
            if answer["offset"] == 0:
                file.inode, file.size = answer["inode"], 0
            if (answer["inode"], answer["offset"]) != (file.inode, file.size):
                raise wrong("offset", f"{file.size} of the file that was begun", answer["offset"])
            self._write(file, data)

    def show(self, url: str, files: Path) -> None:
        """Shows the cached copies of a storage URL (../storage/events.py)."""
        with self._lock:
            if not self._closed and ("", url) not in self._labels:
                self._shown.link(self._label("", url), files)

    def _file(self, host: str, answer: EventFile) -> _File:
        place = (host, answer["dir"], answer["name"], answer["file"])
        if place not in self._files:
            if len(self._files) >= MOST_FILES:
                raise wrong("file", f"one of at most {MOST_FILES}", answer["file"])
            names = (self._label(host, answer["dir"]), *_parts(answer["name"]), *_parts(answer["file"]))
            self._files[place] = _File(names, host, (answer["dir"], answer["name"], answer["file"]))
        return self._files[place]

    def _label(self, host: str, directory: str) -> str:
        """The directory's own name; with its host's name, or a number, if another directory has the same."""
        if (host, directory) not in self._labels:
            name = (_parts(directory) or ["root"])[-1]
            names = chain((name, f"{name}@{host}"), (f"{number}-{name}" for number in count(2)))
            labels = (os.fsdecode(os.fsencode(one)[:_LONGEST_NAME]) for one in names)
            self._labels[host, directory] = next(one for one in labels if one not in self._labels.values())
        return self._labels[host, directory]

    def _write(self, file: _File, data: bytes) -> None:
        try:
            self._shown.refuse_without_room(len(data))
            *above, name = file.names
            with self._shown.below("/".join(above), make=PRIVATE) as folder:
                if not file.size:
                    with suppress(FileNotFoundError):
                        folder.unlink(name)
                with folder.append(name) as copy:
                    copy.write(data)
        except OSError as error:
            raise DtctlError(
                f"cannot copy the event files to {self.directory}: {error.strerror}",
                hint="TMPDIR=DIRECTORY dtctl tensorboard --copy    copies them elsewhere",
            ) from error
        file.size += len(data)


def _parts(name: str) -> list[str]:
    """The parts of a path below a directory. Raises InvalidValue for one that leads out of it, or that no file system
    has.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for part in parts:
        try:
            size = len(os.fsencode(part))
        except UnicodeEncodeError:
            size = _LONGEST_NAME + 1
        if part == ".." or "\0" in part or size > _LONGEST_NAME:
            raise wrong("name", "a path below its directory", name)
    return parts


@dataclass(frozen=True)
class CopyStream:
    """The conversation with one host; begun again after a break, it continues where it was."""

    record: RunRecord
    host: Host
    copies: Copies
    streams: Streams
    without: list[FolderAt]

    def converse(self, session: Session) -> bool:
        name = self.host.name
        fields = {"without": self.without, "have": self.copies.had(name)}
        session.send({**request(self.record, self.host, "event_files"), **fields})
        for message in frames_of(session, "event_file", "caught_up", most_bytes=None):
            if message.type == "event_file":
                with about(name, "sent an invalid `event_file`"):
                    self.copies.add(name, message.of(EventFile), message.payload)
            elif message.type == "caught_up":
                self.streams.put(Copied(name, message.of(CaughtUp)["files"]))
        return False


def follow_copies(
    record: RunRecord, transport: Transport, place: Location, found_files: EventFileSources, copies: Copies
) -> Iterator[Copied | Disconnected | Reconnected | None]:
    """What happens with the hosts that are copied from, and None now and then; never ends."""
    with Streams(transport) as streams:
        for name in place.sources:
            host, own = record.route_to(name), without(name, place.sources, found_files.answers)
            streams.begin(host, CopyStream(record, host, copies, streams, own).converse)
        if place.urls:
            streams.work("storage", partial(_follow_urls, place.urls, copies, streams))
        for answer in streams.all(TICK_S):
            assert answer is None or isinstance(answer, Copied | Disconnected | Reconnected)
            yield answer


def _follow_urls(urls: Sequence[str], copies: Copies, streams: Streams) -> None:
    from dtctl.rooms.storage.metrics import keep_up

    def show(url: str, kept: StorageCopies) -> None:
        copies.show(url, kept.files)
        streams.put(Copied(url, 0))

    keep_up(urls, streams, threading.Event(), show)


def without(host: str, sources: Sequence[str], answers: Mapping[str, EventDirsResult]) -> list[FolderAt]:
    """Files that this host must not send, because an earlier one does."""
    earlier = [answers[name] for name in sources[: sources.index(host)] if name in answers]
    return [folder for answer in earlier for folder in answer["folders"]][:MOST_FOLDERS]

"""Copies of the event files of several hosts in one directory, kept up with what is added to them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain, count

from dtctl.agent.records.tensorboard import MOST_FOLDERS, CaughtUp, EventDirsResult, EventFile, FolderAt
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.client.conversation import about, request, said
from dtctl.operations.client.plausible import wrong
from dtctl.operations.client.streams import Away, Back, Streams
from dtctl.operations.history.record import RunRecord
from dtctl.operations.tensorboard.choosing import Key, Looked, Place
from dtctl.places import PRIVATE, temporary_folder
from dtctl.transport.seam import Session, Transport

MOST_FILES = 10_000
TICK_S = 0.5
_LONGEST_NAME = 255


@dataclass(frozen=True)
class Copied:
    """All that a host had when it was asked is here."""

    host: str
    files: int


@dataclass
class _File:
    names: tuple[str, ...]
    """Its path below the directory."""
    host: str
    told: tuple[str, str, str]
    inode: str = ""
    size: int = 0


class Copies:
    """Below `directory`, in a temporary `place` that is removed at the end. A context manager.

    What hosts share comes from the first to tell of it.
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

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            self._stack.close()

    def had(self, host: str) -> list[dict[str, object]]:
        """How far a host's files are here, as `event_files` is told."""
        with self._lock:
            return [
                {
                    "dir": file.told[0],
                    "name": file.told[1],
                    "file": file.told[2],
                    "inode": file.inode,
                    "size": file.size,
                }
                for file in self._files.values()
                if file.host == host
            ]

    def add(self, host: str, told: EventFile, data: bytes) -> None:
        """Raises Wrong for what would go elsewhere than below the directory, and DtctlError when the disk is full."""
        key = (told["dir"], told["name"], told["identity"])
        with self._lock:
            if self._closed or self._owner.setdefault(key, host) != host:
                return
            file = self._file(host, told)
            if told["offset"] == 0:
                file.inode, file.size = told["inode"], 0
            if (told["inode"], told["offset"]) != (file.inode, file.size):
                raise wrong("offset", f"{file.size} of the file that was begun", told["offset"])
            self._write(file, data)

    def _file(self, host: str, told: EventFile) -> _File:
        place = (host, told["dir"], told["name"], told["file"])
        if place not in self._files:
            if len(self._files) >= MOST_FILES:
                raise wrong("file", f"one of at most {MOST_FILES}", told["file"])
            names = (self._label(host, told["dir"]), *_parts(told["name"]), *_parts(told["file"]))
            self._files[place] = _File(names, host, (told["dir"], told["name"], told["file"]))
        return self._files[place]

    def _label(self, host: str, directory: str) -> str:
        """The directory's own name; with its host's, or a number, where another has the same."""
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
    """Of a path below a directory. Raises Wrong for one that leads out of it, or that no file system has."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for part in parts:
        try:
            size = len(os.fsencode(part))
        except UnicodeEncodeError:
            size = _LONGEST_NAME + 1
        if part == ".." or "\0" in part or size > _LONGEST_NAME:
            raise wrong("name", "a path below its directory", name)
    return parts


class CopyStream:
    """The conversation with one host; begun again after a break, it goes on where it was."""

    def __init__(
        self, record: RunRecord, host: Host, copies: Copies, streams: Streams, without: Sequence[FolderAt]
    ) -> None:
        self._record = record
        self._host = host
        self._copies = copies
        self._streams = streams
        self._without = list(without)

    def converse(self, session: Session) -> bool:
        name = self._host.name
        fields = {"without": self._without, "have": self._copies.had(name)}
        session.send({**request(self._record, self._host, "event_files"), **fields})
        for message in said(session, "event_file", "caught_up", most_bytes=None):
            if message.type == "event_file":
                with about(name, "sent an invalid `event_file`"):
                    self._copies.add(name, message.of(EventFile), message.payload)
            elif message.type == "caught_up":
                self._streams.tell(Copied(name, message.of(CaughtUp)["files"]))
        return False


def follow_copies(
    record: RunRecord, transport: Transport, place: Place, looked: Looked, copies: Copies
) -> Iterator[Copied | Away | Back | None]:
    """Endless: what becomes of the hosts that are copied from, and None now and then."""
    with Streams(transport) as streams:
        for name in place.sources:
            host, own = record.way_to(name), without(name, place.sources, looked.answers)
            streams.begin(host, CopyStream(record, host, copies, streams, own).converse)
        for told in streams.all(TICK_S):
            assert told is None or isinstance(told, Copied | Away | Back)
            yield told


def without(host: str, sources: Sequence[str], answers: Mapping[str, EventDirsResult]) -> list[FolderAt]:
    """What this host is not to send, because one before it does."""
    earlier = [answers[name] for name in sources[: sources.index(host)] if name in answers]
    return [folder for answer in earlier for folder in answer["folders"]][:MOST_FOLDERS]

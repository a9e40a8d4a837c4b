"""Sets damaged checkpoints aside, so that a restarted trainer restores the newest complete one.

TensorFlow restores the checkpoint that its file `checkpoint` names, and fails each time with DataLossError if that was
cut off by a full disk or a crash; DeepSpeed has such a file, too, Lightning `last.ckpt`, and others take the one with
the largest number. A file whose name is fixed stays where it is: without it a program would begin anew, and not find
an older one. Nothing is deleted: the files are moved into a directory next to them. Bytes that differ from the saved
ones are searched for only after a trainer has failed to restore them: to read everything takes long, and each restart
would wait for it.

Other users may write there: all operations are below a descriptor of the directory, so that their links are not
followed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import contextmanager, suppress
from itertools import islice

from ..host import files
from ..host.budget import Budget, Silent, within
from ..records.kinds import made
from ..records.run_state import MOST_REPAIRS, LostCheckpoint, Repaired
from ..records.values import Repair, brief
from . import formats, reading, state_file, verifying

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

    from ..records.answers import Checkpoint

LIMIT_S = reading.LOOK_S + 1.0
"""The time limit of a repair: after that a task may write there again."""

_STATE = state_file.STATE_FILE
_MOST_STATE_BYTES = 4 * 1024 * 1024
_MOST_ASIDE = 1000
_MOST_DEPTH = 20


class _TooLate(Exception):
    pass


def prepare_restore(
    directories: Sequence[str], others: Sequence[str], how: Repair, attempt: int, *, scratch: bool
) -> Repaired:
    """Repairs all of these directories before the attempt after `attempt`.

    `others`: directories in which there may be a sound checkpoint. `scratch`: the training may start over.
    """
    is_full = how == "full"
    done = [text for path in directories for text in repair_directory(path, is_full, is_full and scratch)]
    newest = reading.newest([*directories])
    lost = loss(directories, others) if is_full and not scratch else None
    step = newest["step"] if newest is not None else None
    reported = [brief(text) for text in done[:MOST_REPAIRS]]
    return made(Repaired, attempt=attempt, how=how, done=reported, step=step, lost=lost)


def repair_directory(directory: str, verify_all: bool = False, scratch: bool = False) -> List[str]:
    """Sets damaged checkpoints aside and reports what it did. Call it only while no task writes there.

    Without a complete checkpoint it changes nothing, unless `scratch` allows the training to start over. With
    `verify_all` it also reads those that look complete.
    """
    until = time.monotonic() + LIMIT_S
    try:
        return within(LIMIT_S, directory, lambda: _repair(directory, until, verify_all, scratch))
    except Silent:
        return ["checkpoints were not inspected: the file system of %s does not answer" % directory]


def _repair(directory: str, until: float, verify_all: bool, scratch: bool) -> List[str]:
    found, problem = _found(directory, time.monotonic() + reading.LOOK_S, verify_all)
    newest: Dict[Tuple[str, str, str], Checkpoint] = {}
    done = []
    for one in found:  # newest first
        if one["complete"]:
            for series in (_series(one), _of_all_versions(one)):
                newest.setdefault(series, one)
    for one in reversed(found):
        good = newest.get(_series(one)) or newest.get(_of_all_versions(one))
        afresh = good is None and scratch and problem is None
        if one["complete"] or not (afresh or (good is not None and one["time"] >= good["time"])):
            continue
        result = _set_aside(directory, one, good, until)
        done.append("checkpoint %s is damaged (%s): %s" % (one["prefix"], one["problem"], result))
    return done


def _series(one: Checkpoint) -> Tuple[str, str, str]:
    """Its series; that of all where it is a file that leads to the newest, and else its own."""
    row, (below, name) = formats.BY_KIND[one["kind"]], os.path.split(one["prefix"])
    return formats.series(one) or (below, row.kind, "" if row.newest_link else name)


def _of_all_versions(one: Checkpoint) -> Tuple[str, str, str]:
    """Its series with those of other starts of the program."""
    below, kind, name = _series(one)
    return formats.any_version(below), kind, name


def _set_aside(directory: str, one: Checkpoint, good: Optional[Checkpoint], until: float) -> str:
    """The result as text. `good`: the checkpoint to restore in its place; None: none."""
    row, (below, damaged) = formats.BY_KIND[one["kind"]], os.path.split(one["prefix"])
    kept = os.path.basename(good["prefix"]) if good is not None and _is_beside(good, one) else None
    try:
        with OpenDirectory.of(directory, below, until) as place:
            place.aside = row.aside
            if row is formats.TENSORFLOW:
                if kept is None:
                    place.move_state()
                else:
                    place.rename_in_state({damaged: kept})
                place.move(damaged)
                return "set aside"
            if row.pointer is not None and place.pointed(row) == damaged:
                place.point(row.pointer, kept)
            place.move_all([damaged, *row.companions(damaged)])
            if kept is not None and row.newest_link is not None and re.match(row.newest_link, damaged):
                place.link(damaged, kept)
                return "set aside; it is a link to %s now" % kept
    except _TooLate:
        return "it was left in place, because the file system was too slow"
    except OSError as error:
        return "it cannot be set aside: %s: %s" % (error.filename or directory, error.strerror)
    return "set aside"


class OpenDirectory:
    """A directory with checkpoints, by its descriptor."""

    def __init__(self, descriptor: int, until: float) -> None:
        self.descriptor = descriptor
        self.aside = formats.ASIDE
        """The name of the subdirectory for damaged ones."""
        self._until = until

    @classmethod
    @contextmanager
    def of(cls, directory: str, below: str, until: float) -> Iterator[OpenDirectory]:
        """The configured directory may be reached through any link; what is in it may not. Raises OSError."""
        descriptor = files.directory_below(directory, below or ".")
        try:
            yield cls(descriptor, until)
        finally:
            os.close(descriptor)

    def state(self) -> str:
        """The text of the file `checkpoint`; empty if TensorFlow has written none."""
        return self.text(_STATE)

    def text(self, name: str) -> str:
        """The text of a file that names the checkpoint to restore; empty if there is none."""
        try:
            return files.read(name, _MOST_STATE_BYTES, self.descriptor).decode("utf-8", "surrogateescape")
        except (FileNotFoundError, files.Unfit):
            return ""

    def pointed(self, row: formats.Format) -> Optional[str]:
        """The name of the checkpoint that the pointer of this format names; None if there is none."""
        if row is formats.TENSORFLOW:
            return state_file.restored_name(self.state())
        return self.text(row.pointer).strip() if row.pointer is not None else None

    def linked(self) -> Set[str]:
        """The names of entries here to which links here lead, as `last.ckpt` may."""
        found: Set[str] = set()
        with os.scandir(self.descriptor) as listed:
            for entry in islice(listed, reading.MOST_NAMES):
                if entry.is_symlink():
                    with suppress(OSError):
                        found.add(os.readlink(entry.name, dir_fd=self.descriptor).strip("/").rpartition("/")[2])
        return found

    def point(self, pointer: str, name: Optional[str]) -> None:
        """Makes a file that holds one name, as DeepSpeed's `latest` does, name this one; None: sets it aside."""
        if name is None:
            self._move([pointer])
        else:
            self._write(pointer, name)

    def link(self, name: str, other: str) -> None:
        """Makes `name`, which is free, lead to another entry here."""
        os.symlink(other, name, dir_fd=self.descriptor)

    def rename_in_state(self, renamed: Dict[str, str]) -> None:
        """Replaces these checkpoints in the file `checkpoint` by the others, and removes them from its list."""
        text = self.state()
        if text:
            for name, other in renamed.items():
                text = state_file.with_renamed(text.strip(), name, other)
            self._write_state(text)

    def name_newest(self, name: str, now: float) -> None:
        """Makes the file `checkpoint` name this checkpoint as the one to restore; its other entries stay."""
        self._write_state(state_file.with_newest(self.state(), name, now))

    def _write_state(self, text: str) -> None:
        self._write(_STATE, text)

    def _write(self, name: str, text: str) -> None:
        mode = 0o600
        with suppress(FileNotFoundError, files.Unfit):
            mode = files.stat_regular(name, self.descriptor).st_mode & 0o777  # keeps the permissions
        temporary = "%s.%s.new" % (name, os.urandom(8).hex())
        try:
            opened = files.descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self.descriptor)
            with open(opened, "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                os.fchmod(opened, mode)
            self._replace(temporary, name, self.descriptor)
        finally:
            with suppress(OSError):  # renamed, or never made
                os.unlink(temporary, dir_fd=self.descriptor)

    def move(self, name: str) -> None:
        beginnings = (name + ".index", name + ".data-", name + ".meta")
        with os.scandir(self.descriptor) as listed:
            found = [entry.name for entry in islice(listed, reading.MOST_NAMES)]
        self._move([entry for entry in found if entry.startswith(beginnings)])

    def remove_tree(self, name: str) -> None:
        """Removes a directory with all that is in it; links are removed, and not followed."""
        _remove_tree(name, self.descriptor, 0)

    def move_all(self, names: Sequence[str]) -> None:
        """Sets these files and directories aside, as far as they exist."""
        self._move([name for name in names if self._exists(name, self.descriptor)])

    @staticmethod
    def _exists(name: str, at: int) -> bool:
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=at, follow_symlinks=False)
            return True
        return False

    def move_state(self) -> None:
        """Sets the file `checkpoint` aside."""
        self.move_all([_STATE])

    def _move(self, removed: List[str]) -> None:
        if not removed:
            return
        aside = self._aside()
        try:
            for entry in removed:
                self._replace(entry, self._free_name(entry, aside), aside)
        finally:
            os.close(aside)

    def _free_name(self, name: str, aside: int) -> str:
        """The name for what is set aside: a directory replaces none that was set aside before, as a file does."""
        if not stat.S_ISDIR(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode):
            return name
        names = (name if not number else "%s.%d" % (name, number) for number in range(_MOST_ASIDE))
        return next((one for one in names if not self._exists(one, aside)), name)

    def _aside(self) -> int:
        """The subdirectory for damaged checkpoints; an existing one must belong to us, or to the checkpoints' owner."""
        made = False
        with suppress(FileExistsError):
            os.mkdir(self.aside, 0o700, dir_fd=self.descriptor)
            made = True
        opened = files.directory(self.aside, self.descriptor)
        owners = (os.geteuid(), os.fstat(self.descriptor).st_uid)
        if not made and os.fstat(opened).st_uid not in owners:
            os.close(opened)
            raise files.Unfit(self.aside, "belongs to another user")
        return opened

    def _replace(self, name: str, new_name: str, directory: int) -> None:
        if time.monotonic() > self._until:
            raise _TooLate
        os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=directory)


def _remove_tree(name: str, at: int, depth: int) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        with os.scandir(descriptor) as listed:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed]
        for entry, is_directory in entries:
            if is_directory and depth < _MOST_DEPTH:
                _remove_tree(entry, descriptor, depth + 1)
            elif not is_directory:
                with suppress(FileNotFoundError):
                    os.unlink(entry, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    os.rmdir(name, dir_fd=at)


def loss(directories: Sequence[str], others: Sequence[str] = ()) -> Optional[LostCheckpoint]:
    """The newest checkpoint, when neither it nor any other in its directory can be restored; None when that is unsure.

    `others`: directories in which there may be one that can.
    """
    until = time.monotonic() + reading.LOOK_S
    try:
        return within(LIMIT_S, "loss", lambda: _loss(directories, others, until))
    except Silent:
        return None


def _place(path: str) -> str:
    return formats.any_version(os.path.dirname(path))


def _is_beside(one: Checkpoint, other: Checkpoint) -> bool:
    return os.path.dirname(one["prefix"]) == os.path.dirname(other["prefix"])


def _loss(directories: Sequence[str], others: Sequence[str], until: float) -> Optional[LostCheckpoint]:
    found = []
    for directory in directories:
        checkpoints, problem = _found(directory, until, True)
        if problem is not None:
            return None  # there may be more
        found += [(directory, checkpoint) for checkpoint in checkpoints]
    if not found:
        return None
    directory, newest = max(found, key=lambda one: one[1]["time"])
    path = os.path.join(directory, newest["prefix"])
    complete = [os.path.join(directory, one["prefix"]) for directory, one in found if one["complete"]]
    if any(_place(one) == _place(path) for one in complete):
        return None
    for other in others:
        good = reading.read_checkpoints(other, until + reading.LEAST_S)["newest_complete"]
        if good is not None:
            complete.append(os.path.join(other, good["prefix"]))
    problem, elsewhere = brief(newest["problem"] or ""), next(iter(complete), None)
    return made(LostCheckpoint, path=brief(path), problem=problem, elsewhere=elsewhere and brief(elsewhere))


def _found(directory: str, until: float, verify_all: bool) -> Tuple[List[Checkpoint], Optional[str]]:
    """The checkpoints that may be set aside, the newest first, and why there may be more.

    With `verify_all` those with damaged bytes count as damaged, down to the first intact one; those for which there is
    no time count by their looks.
    """
    report = reading.read_checkpoints(directory, until)
    budget, sound, found = Budget(until, reading.MOST_NAMES), set(), []
    for one in report["all"]:
        row = formats.BY_KIND[one["kind"]]
        if not row.is_repaired:
            continue
        series = _series(one)
        if verify_all and one["complete"] and series not in sound:
            problems = verifying.verify_format(os.path.join(directory, one["prefix"]), row, budget).problems
            if problems:
                one = {**one, "complete": False, "problem": brief(problems[0])}
            else:
                sound.add(series)
        found.append(one)
    return found, report["problem"]

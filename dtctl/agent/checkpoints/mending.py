"""Sets damaged checkpoints aside, so that a trainer which starts again goes back to the newest complete one.

TensorFlow restores what its file `checkpoint` names (state_file.py) and ends with DataLossError when that was cut off
by a full disk or a crash, for ever.
Nothing is deleted: the files are moved into a directory beside them. Bytes that differ from what was saved are found
where a trainer has failed to restore them: to read everything takes long, and each restart would wait for it.

Other users may write there: all is done below a descriptor of the directory, so that no link of theirs leads away.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import islice

from ..host import files, patience
from . import reading, state_file
from .losing import distrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from ..records.answers import Checkpoint

LIMIT_S = reading.LOOK_S + 1.0
"""Nothing is touched after that: by then somebody may write there again."""

_STATE = state_file.NAME
_MOST_STATE_BYTES = 4 * 1024 * 1024


class _TooLate(Exception):
    pass


def mend(directory: str, distrust: bool = False, scratch: bool = False) -> List[str]:
    """Sets damaged checkpoints aside and says in words what it did. Call it only while nobody writes there.

    Without a complete checkpoint it touches nothing, unless `scratch` says that the training may start over. With
    `distrust` it reads those that look complete, too.
    """
    until = time.monotonic() + LIMIT_S
    try:
        return patience.within(LIMIT_S, directory, lambda: _mend(directory, until, distrust, scratch))
    except patience.Silent:
        return ["checkpoints were not looked at: the file system of %s does not answer" % directory]


def _mend(directory: str, until: float, distrust: bool, scratch: bool) -> List[str]:
    looked_until = time.monotonic() + reading.LOOK_S
    told = reading.look(directory, looked_until)
    told["all"] = [one for one in told["all"] if one["kind"] == "tensorflow"]
    found = distrusted(directory, told["all"], looked_until) if distrust else told["all"]
    newest: Dict[str, Checkpoint] = {}
    done = []
    for one in found:  # newest first
        if one["complete"]:
            newest.setdefault(os.path.dirname(one["prefix"]), one)
    for one in reversed(found):
        below, name = os.path.split(one["prefix"])
        good = newest.get(below)
        afresh = good is None and scratch and told["problem"] is None
        if not one["complete"] and (afresh or (good is not None and one["time"] >= good["time"])):
            kept = os.path.basename(good["prefix"]) if good is not None else None
            result = _set_aside(directory, below, name, kept, until)
            done.append("checkpoint %s is damaged (%s): %s" % (one["prefix"], one["problem"], result))
    return done


def _set_aside(directory: str, below: str, damaged: str, good: Optional[str], until: float) -> str:
    """Says what happened. `good`: what is restored in its place; None: nothing.

    The configured directory may be reached through any link; what is in it may not.
    """
    try:
        place = OpenDirectory.of(directory, below, until)
        try:
            if good is None:
                place.move_state()
            else:
                place.rename_in_state(damaged, good)
            place.move(damaged)
        finally:
            os.close(place.descriptor)
    except _TooLate:
        return "it was left in place, because the file system was too slow"
    except OSError as error:
        return "it cannot be set aside: %s: %s" % (error.filename or directory, error.strerror)
    return "set aside"


class OpenDirectory:
    """A directory with checkpoints, by its descriptor."""

    def __init__(self, descriptor: int, until: float) -> None:
        self.descriptor = descriptor
        self._until = until

    @classmethod
    def of(cls, directory: str, below: str, until: float) -> OpenDirectory:
        """Raises OSError."""
        base = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return cls(files.directory(below or ".", base), until)
        finally:
            os.close(base)

    def state(self) -> str:
        """What the file `checkpoint` says; empty where there is none that TensorFlow has written."""
        try:
            return files.read(_STATE, _MOST_STATE_BYTES, self.descriptor).decode("utf-8", "surrogateescape")
        except (FileNotFoundError, files.Unfit):
            return ""

    def forget_in_state(self, gone: Sequence[str]) -> None:
        """Lets the file `checkpoint` list no checkpoint of these names."""
        text = self.state()
        if text:
            for name in gone:
                text = state_file.renamed(text.strip(), name, name)
            self._write_state(text, files.look(_STATE, self.descriptor).st_mode & 0o777)

    def move(self, name: str) -> None:
        beginnings = (name + ".index", name + ".data-", name + ".meta")
        with os.scandir(self.descriptor) as listed:
            found = [entry.name for entry in islice(listed, reading.MOST_NAMES)]
        self._move([entry for entry in found if entry.startswith(beginnings)])

    def move_state(self) -> None:
        """Away with the file that says what is to be restored."""
        with suppress(FileNotFoundError):
            os.stat(_STATE, dir_fd=self.descriptor, follow_symlinks=False)
            self._move([_STATE])

    def _move(self, doomed: List[str]) -> None:
        if not doomed:
            return
        aside = self._aside()
        try:
            for entry in doomed:
                self._replace(entry, entry, aside)
        finally:
            os.close(aside)

    def rename_in_state(self, damaged: str, good: str) -> None:
        """Lets the file `checkpoint` name `good` where it names `damaged`, in whatever way it writes paths."""
        text = self.state()
        if text:
            mode = files.look(_STATE, self.descriptor).st_mode
            self._write_state(state_file.renamed(text.strip(), damaged, good), mode & 0o777)

    def name_newest(self, name: str, now: float) -> None:
        """Lets the file `checkpoint` name this one as the one to be restored; what else it lists stays."""
        with suppress(FileNotFoundError, files.Unfit):
            mode = files.look(_STATE, self.descriptor).st_mode & 0o777
            self._write_state(state_file.with_newest(self.state(), name, now), mode)
            return
        self._write_state(state_file.with_newest("", name, now), 0o600)

    def _write_state(self, text: str, mode: int) -> None:
        temporary = "%s.%s.new" % (_STATE, os.urandom(8).hex())
        try:
            opened = files.descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self.descriptor)
            with open(opened, "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                os.fchmod(opened, mode)  # whoever could read it still can
            self._replace(temporary, _STATE, self.descriptor)
        finally:
            with suppress(OSError):  # renamed, or never made
                os.unlink(temporary, dir_fd=self.descriptor)

    def _aside(self) -> int:
        """The directory beside the checkpoints; one that is there has to belong to us, or to the owner of this one."""
        made = False
        with suppress(FileExistsError):
            os.mkdir(reading.ASIDE, 0o700, dir_fd=self.descriptor)
            made = True
        opened = files.directory(reading.ASIDE, self.descriptor)
        try:
            owners = (os.geteuid(), os.fstat(self.descriptor).st_uid)
            if not made and os.fstat(opened).st_uid not in owners:
                raise files.Unfit(reading.ASIDE, "belongs to another user")
        except BaseException:
            os.close(opened)
            raise
        return opened

    def _replace(self, name: str, new_name: str, directory: int) -> None:
        if time.monotonic() > self._until:
            raise _TooLate
        os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=directory)

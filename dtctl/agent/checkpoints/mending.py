"""Sets damaged checkpoints aside, so that a trainer which starts again goes back to the newest complete one.

TensorFlow restores what its file `checkpoint` names (a text CheckpointState, tensorflow/python/training/
checkpoint_state.proto) and ends with DataLossError when that was cut off by a full disk or a crash, for ever.
Nothing is deleted: the files are moved into a directory beside them.

Other users may write there: all is done below a descriptor of the directory, so that no link of theirs leads away.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from itertools import islice

from ..host import files, patience
from . import reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from ..records.answers import Checkpoint

LIMIT_S = reading.LOOK_S + 1.0
"""Nothing is touched after that: by then somebody may write there again."""

_STATE = "checkpoint"
_MOST_STATE_BYTES = 4 * 1024 * 1024

_PATH = re.compile(r'(model_checkpoint_path|all_model_checkpoint_paths): "(.*)"\s*\Z')
_TIMESTAMP = re.compile(r"all_model_checkpoint_timestamps: ")


class _TooLate(Exception):
    pass


def mend(directory: str) -> List[str]:
    """Sets damaged checkpoints aside and says in words what it did. Call it only while nobody writes there.

    Without a complete checkpoint it touches nothing.
    """
    until = time.monotonic() + LIMIT_S
    try:
        return patience.within(LIMIT_S, directory, lambda: _mend(directory, until))
    except patience.Silent:
        return ["checkpoints were not looked at: the file system of %s does not answer" % directory]


def _mend(directory: str, until: float) -> List[str]:
    found = reading.look(directory, time.monotonic() + reading.LOOK_S)["all"]
    newest: Dict[str, Checkpoint] = {}
    done = []
    for one in found:  # newest first
        if one["complete"]:
            newest.setdefault(os.path.dirname(one["prefix"]), one)
    for one in reversed(found):
        below, name = os.path.split(one["prefix"])
        good = newest.get(below)
        if good is not None and not one["complete"] and one["time"] >= good["time"]:
            told = _set_aside(directory, below, name, os.path.basename(good["prefix"]), until)
            done.append("checkpoint %s is damaged (%s): %s" % (one["prefix"], one["problem"], told))
    return done


def _set_aside(directory: str, below: str, damaged: str, good: str, until: float) -> str:
    """Says what happened. The configured directory may be reached through any link; what is in it may not."""
    try:
        base = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            place = _OpenDirectory(files.directory(below or ".", base), until)
        finally:
            os.close(base)
        try:
            place.rename_in_state(damaged, good)
            place.move(damaged)
        finally:
            os.close(place.descriptor)
    except _TooLate:
        return "it was left in place, because the file system was too slow"
    except OSError as error:
        return "it cannot be set aside: %s: %s" % (error.filename or directory, error.strerror)
    return "set aside"


class _OpenDirectory:
    """A directory with checkpoints, by its descriptor."""

    def __init__(self, descriptor: int, until: float) -> None:
        self.descriptor = descriptor
        self._until = until

    def move(self, name: str) -> None:
        beginnings = (name + ".index", name + ".data-", name + ".meta")
        with os.scandir(self.descriptor) as listed:
            found = [entry.name for entry in islice(listed, reading.MOST_NAMES)]
        doomed = [entry for entry in found if entry.startswith(beginnings)]
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
        try:
            mode = files.look(_STATE, self.descriptor).st_mode
            text = files.read(_STATE, _MOST_STATE_BYTES, self.descriptor).decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return
        except files.Unfit:
            return  # TensorFlow has not written it; its own error will say so
        self._write_state(_renamed(text.strip(), damaged, good), mode & 0o777)

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


def _renamed(text: str, damaged: str, good: str) -> str:
    lines: List[str] = []
    times: List[str] = []
    dropped: List[int] = []
    for line in text.split("\n"):
        match = _PATH.match(line)
        if _TIMESTAMP.match(line):
            times.append(line)
        elif match and os.path.basename(match.group(2)) == damaged:
            if match.group(1) == "model_checkpoint_path":
                lines.append('%s: "%s"' % (match.group(1), match.group(2)[: -len(damaged)] + good))
            else:
                dropped.append(_all_paths(lines) + len(dropped))
        else:
            lines.append(line)
    for index in reversed(dropped):  # a time stands for the path with the same index
        if index < len(times):
            del times[index]
    return "\n".join(lines + times) + "\n"


def _all_paths(lines: List[str]) -> int:
    return sum(line.startswith("all_model_checkpoint_paths") for line in lines)

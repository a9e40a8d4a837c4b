"""Files of `torch.save`: zip archives with one part for each tensor, and a pickle that is never unpickled.

PyTorch before 1.6 wrote pickles one after the other, whose end nothing tells. Distributed checkpoints (`.distcp`) have
several archives one after the other in a file. A step is found by its bytes: a pickle writes the name of a value before
it, as in `global_step` and a number.
"""

from __future__ import annotations

import os
import re
import struct
from itertools import islice

from ..host import files
from . import archives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Tuple

NAME = r"(?s)(?:.+\.(?:pt|pth|pth\.tar|pt\.tar)|(?:pytorch|adapter)_model(?:-[0-9]+-of-[0-9]+)?\.bin)\Z"
LIGHTNING_NAME = r"(?s)(.+)\.ckpt\Z"
SHARD = ".distcp"
OLD = "it is of a kind from before PyTorch 1.6, which has no checksums and no length"
NO_CHECKSUMS = "it was saved without checksums: only its table of contents was checked"
PART_OF_ANOTHER = "its table of contents does not reach back to its beginning"

_ZIP, _PICKLE = b"PK\3\4", b"\x80"
HEAD_BYTES = 256 << 10
"""Where the step is searched: the pickle is the first part, and has a hundred bytes for each tensor."""
_MOST_ARCHIVES = 1_000_000

_STEPS = (b"global_step", b"completed_steps", b"step", b"iteration", b"iter")
_NUMBER = rb"(?:K(.)|M(..)|J(....)|\x8a\x05(.{5})|\x8a\x06(.{6}))"
_MEMO = rb"(?:q(.)|r(....)|\x94)?"
_LARGEST_STEP = 1 << 50
_MOST_KEYS = 20
"""How often a name is looked at: a pickle writes it once, and refers to that afterwards."""

STEP_IN_NAME = r"(?i)(?:.*[^a-z])?(?:global[_-]?)?(?:step|iter|iteration)s?[_=-]?([0-9]{1,15})(?![0-9])"
"""A number in a name that can only be a step; that of `epoch_3.pt` or `model_3.pt` may count anything."""


class Foreign(Exception):
    """A file that only has the name of a checkpoint."""


def problem(path: str, several: bool = False) -> Optional[str]:
    """Why the file cannot be whole; None when it may be. `several`: archives one after the other.

    Raises OSError, and Foreign for a file that PyTorch has not written.
    """
    with files.opened(path) as file:
        return _problem(file, several)


def _problem(file: int, several: bool) -> Optional[str]:
    size = os.fstat(file).st_size
    head = files.read_at(file, 0, 4)
    if not head.strip(b"\0"):
        return "it is empty" if not size else "it begins with zeros: its content was never written"
    if head.startswith(_PICKLE):
        return None
    if head[: len(_ZIP)] != _ZIP[: len(head)]:
        raise Foreign
    last = archives.last_archive(file, size)
    if last is None:
        return archives.CUT
    return None if several or last.begin == 0 else PART_OF_ANOTHER


def damage(
    path: str, check: Callable[[], None] = lambda: None, several: bool = False
) -> Tuple[Optional[str], Optional[str]]:
    """The damage by every byte, and why not all could be checked. Raises OSError, Foreign, and what `check` does."""
    with files.opened(path) as file:
        found = _problem(file, several)
        if found is not None:
            return found, None
        if files.read_at(file, 0, 1) == _PICKLE:
            return None, OLD
        end = os.fstat(file).st_size
        for _ in range(_MOST_ARCHIVES):
            check()
            archive = archives.last_archive(file, end)
            if archive is None:
                return "what it has before %d bytes is no archive" % end, None
            try:
                found = archives.problem_of_parts(file, archive, check, archives.MOST_CONTENTS_OF_TORCH, may_lack=True)
            except archives.NoChecksums:  # set_crc32_options(False)
                return None, NO_CHECKSUMS
            if found is not None:
                return found, None
            end = archive.begin
            if not end:
                return None, None
        return None, "not all of it was read: it has too many archives"


def step(path: str) -> Optional[int]:
    """The step by the file's name, or else by the bytes of its pickle. Raises OSError."""
    in_name = re.match(STEP_IN_NAME, os.path.basename(path))
    if in_name:
        return int(in_name.group(1))
    with files.opened(path) as file:
        head = files.read_at(file, 0, HEAD_BYTES)
    end = head.find(_ZIP, 4)  # of the first part
    return step_in(head if end < 0 else head[:end])


def step_in(pickled: bytes) -> Optional[int]:
    """The number that a pickle has for a step, by the bytes in front of it."""
    for name in _STEPS:
        written = rb"(?s)(?:X%s|\x8c%s)%s" % (
            re.escape(struct.pack("<I", len(name))),
            re.escape(bytes([len(name)])),
            name,
        )
        for key in islice(re.finditer(written + _MEMO, pickled), _MOST_KEYS):
            number = _number(pickled, key.end())
            if number is None and key.group(1):  # the name was written for another value before
                again = re.compile(rb"(?s)h" + re.escape(key.group(1)) + _NUMBER).search(pickled, key.end())
                number = _value(again) if again else None
            if number is not None:
                return number
    return None


def _number(pickled: bytes, at: int) -> Optional[int]:
    return _value(re.compile(rb"(?s)" + _NUMBER).match(pickled, at))


def _value(match: Optional[re.Match[bytes]]) -> Optional[int]:
    if match is None:
        return None
    value = int.from_bytes(next(one for one in match.groups() if one is not None), "little")
    return value if value < _LARGEST_STEP and not (match.group(3) and value >> 31) else None

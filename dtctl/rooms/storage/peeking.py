"""Which bytes of an object the readers of checkpoints need to judge it, so that the rest of it is not downloaded."""

from __future__ import annotations

import re
import struct

from dtctl.agent.checkpoints import archives, deepspeed, formats, mxnet, orbax, safetensors, torch_files, trees

Range = tuple[int, int]

_HEAD_BYTES = 4096
_LENGTH_BYTES = 8
_MOST_WHOLE_BYTES = 16 << 20
_NOTE = r"(?s)(?:.+\.index|trainer_state\.json|meta\.json|strings\.json|.+\.index\.json|.*\.metadata)\Z"


class TooLarge(Exception):
    """Raised where judging an object would mean reading more of it than is allowed."""


class Peek:
    """One object, and what of it is known."""

    def __init__(self, path: str, size: int, *, is_single: bool) -> None:
        """`is_single`: whether it is a checkpoint of its own, which may have its step in its first bytes."""
        self._name = path.rpartition("/")[2]
        self._size = size
        self._is_single = is_single
        self.pieces: dict[int, bytes] = {}

    def add(self, begin: int, data: bytes) -> None:
        self.pieces[begin] = data

    def lacking(self) -> list[Range]:
        """What is still to be read; nothing when its reader needs no more. Raises TooLarge."""
        return [one for one in self._needed() if one[1] > one[0] and self._held(*one) is None]

    def _held(self, begin: int, end: int) -> bytes | None:
        for at, data in self.pieces.items():
            if at <= begin and end <= at + len(data):
                return data[begin - at : end - at]
        return None

    def _needed(self) -> list[Range]:
        if is_note(self._name):
            return [(0, self._size)]
        if re.match(safetensors.NAME, self._name):
            return self._of_safetensors()
        if re.match(mxnet.NAME, self._name):
            if self._size > _MOST_WHOLE_BYTES:
                raise TooLarge
            return [(0, self._size)]  # each of its arrays has a header of its own
        row = formats.of_file(self._name)
        if row is None and not re.match(trees.PARTS, self._name):
            return []
        return self._of_archive(row)

    def _of_safetensors(self) -> list[Range]:
        head = self._held(0, min(_HEAD_BYTES, self._size))
        if head is None:
            return [(0, min(_HEAD_BYTES, self._size))]
        length = struct.unpack_from("<Q", head)[0] if len(head) >= _LENGTH_BYTES else 0
        return [(0, _LENGTH_BYTES + length)] if length <= min(self._size - _LENGTH_BYTES, safetensors.MOST_READ) else []

    def _of_archive(self, row: formats.FileFormat | None) -> list[Range]:
        """The ranges to read of a file of `torch.save` or Keras: an archive has its table of contents at its end."""
        head_bytes = torch_files.HEAD_BYTES if self._is_single and _has_step_inside(row, self._name) else _HEAD_BYTES
        ends = [(0, min(head_bytes, self._size)), (max(0, self._size - archives.END_BYTES), self._size)]
        tail = self._held(*ends[1])
        places = archives.judged_by(tail, self._size) if tail is not None else []
        return [*ends, *((place, place + 4) for place in places)]


def _has_step_inside(row: formats.FileFormat | None, name: str) -> bool:
    return row is not None and row.resumes and formats.step_in_name(name) is None


def is_note(name: str) -> bool:
    """Whether an object is small, and read as a whole."""
    return name in (*orbax.MARKS, deepspeed.LATEST) or re.match(_NOTE, name) is not None

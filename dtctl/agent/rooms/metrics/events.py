"""TensorBoard's events, as far as they contain scalars.

The messages: `tensorflow/core/util/event.proto`, `tensorflow/core/framework/{summary,tensor,types}.proto`. A scalar is
a `simple_value`, as TF1 writes it, or a tensor of one number that belongs to the plugin `scalars`, as TF2 does.
"""

from __future__ import annotations

import os
import struct

from ...host import encodings, files
from ...host.encodings import fields, masked_crc32c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Container, Dict, Iterator, List, Optional, Tuple

    from ...host.encodings import Span


MOST_RECORD_BYTES = 32 << 20
"""Larger records are skipped unread: they contain images or graphs."""

_CHUNK = 1 << 20
_HEADER = struct.Struct("<QI")
_AROUND = 16
"""Bytes of a record besides its data."""
_BETWEEN_CHECKS = 256


class Damaged(Exception):
    """The file does not fit its own checksums; the text names the fault."""


class Replaced(Exception):
    """Another file has its name now, or it has become shorter."""


class RecordFile:
    """One file. `offset`: the end of the last complete record, where the next read begins."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.unread_bytes = 0
        self.passed_over = 0
        """Records that were too large."""
        self.inode: Optional[int] = None

    def note(self) -> None:
        """Updates the number of unread bytes."""
        self.unread_bytes = max(0, files.stat_regular(self.path).st_size - self.offset)

    def new(self, check: Callable[[], None]) -> Iterator[Tuple[bytes, int]]:
        """The data of each new record, and its expected checksum.

        An incomplete record is left for the next call. Raises Damaged (again on every call), Replaced, OSError,
        files.Unfit, and exceptions of `check`, which is called periodically.
        """
        with files.opened(self.path) as opened:
            found = os.fstat(opened)
            if (self.inode is not None and found.st_ino != self.inode) or found.st_size < self.offset:
                raise Replaced
            self.inode = found.st_ino
            self.unread_bytes = found.st_size - self.offset
            wanted = _CHUNK
            while self.unread_bytes >= _AROUND:
                check()
                chunk = files.read_at(opened, self.offset, min(wanted, self.unread_bytes))
                begin = self.offset
                yield from self._whole(chunk, check)
                wanted, cut_off = _CHUNK, self.offset - begin
                if len(chunk) - cut_off < _HEADER.size:
                    continue
                size = _length(chunk, cut_off, self.offset) + _AROUND
                if size > self.unread_bytes:
                    return  # it is being written, or never will be
                if size - _AROUND > MOST_RECORD_BYTES:
                    self._pass(size)
                    self.passed_over += 1
                wanted = max(_CHUNK, min(size, MOST_RECORD_BYTES + _AROUND))

    def _whole(self, chunk: bytes, check: Callable[[], None]) -> Iterator[Tuple[bytes, int]]:
        """The records that end within the chunk, which begins at `offset`."""
        position, base, left = 0, self.offset, _BETWEEN_CHECKS
        while len(chunk) - position >= _AROUND:
            size = _length(chunk, position, base + position)
            end = position + size + _AROUND
            if end > len(chunk):
                return
            data, checksum = chunk[position + 12 : end - 4], int.from_bytes(chunk[end - 4 : end], "little")
            yield data, checksum  # a caller that finds it damaged leaves it unread
            self._pass(end - position)
            position = end
            left -= 1
            if not left:
                check()
                left = _BETWEEN_CHECKS

    def _pass(self, size: int) -> None:
        self.offset += size
        self.unread_bytes -= size


def _length(chunk: bytes, position: int, offset: int) -> int:
    if len(chunk) - position < _HEADER.size:
        raise Damaged("it became shorter while it was read")
    size, checksum = _HEADER.unpack_from(chunk, position)
    if masked_crc32c(chunk[position : position + 8]) != checksum:
        raise Damaged("at byte %d there is no record: the checksum of its length is wrong" % offset)
    return int(size)


LONGEST_TAG = 1000
MOST_VALUES = 10_000
"""The most values of one event that are read."""
_MOST_FIELDS = 100
"""The most fields of a value, and of each message in it; TensorFlow writes ten."""

_START = 1
"""SessionLog.START."""
_SCALAR_CLASS = 1
"""DATA_CLASS_SCALAR."""
_PLUGIN = b"scalars"

_BFLOAT16, _HALF = 14, 19
_CONTENT = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 17: "<H", 19: "<e"}
_CONTENT.update({22: "<I", 23: "<Q", _BFLOAT16: ""})
"""The format of one number of each DataType in `tensor_content`; 14 is bfloat16, the upper half of a float."""
_FIELD = {1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 9: 10, 10: 11, 14: 13, 17: 7, 19: 13, 22: 16, 23: 17}
"""Type -> the repeated field with its values: float_val, double_val, int_val, int64_val, bool_val, half_val, ..."""


class Event:
    """`scalars`: tag and value, in their order. `starts`: a trainer begins (again) at this step."""

    __slots__ = ("scalars", "starts", "step", "values", "wall")

    def __init__(self) -> None:
        self.wall = 0.0
        self.step = 0
        self.scalars: List[Tuple[str, float]] = []
        self.starts = False
        self.values = 0
        """Values of any kind that were read."""


def decode(data: bytes, known: Container[str], check: Callable[[], None] = lambda: None) -> Event:
    """The event of a record.

    `known`: tags whose tensors are scalars even if the event does not repeat that. `check` is called for each value.
    Raises Damaged, and what `check` does.
    """
    event = Event()
    try:
        for number, kind, value in fields(data, (0, len(data))):
            if number == 1 and kind == encodings.FIXED64:
                event.wall = struct.unpack("<d", struct.pack("<Q", value))[0]
            elif number == 2 and isinstance(value, int):
                event.step = _signed(value)
            elif number == 5 and isinstance(value, tuple):
                _add_summary(event, data, value, known, check)
            elif number == 7 and isinstance(value, tuple):
                session = dict(_numbers(data, value))
                event.starts = session.get(1) == _START
    except encodings.Malformed as malformed:
        raise Damaged("a record %s" % malformed) from None
    except (IndexError, struct.error):
        raise Damaged("a record ends within a field") from None
    return event


def _add_summary(event: Event, data: bytes, span: Span, known: Container[str], check: Callable[[], None]) -> None:
    for value in _parts(data, span, 1, encodings.MOST_FIELDS):
        event.values += 1
        if event.values > MOST_VALUES:
            return
        check()
        found = _scalar(data, value, known)
        if found is not None:
            event.scalars.append(found)


def _scalar(data: bytes, span: Span, known: Container[str]) -> Optional[Tuple[str, float]]:
    """A Summary.Value; None when it is no scalar."""
    tag, plain = "", None
    tensor: Optional[Span] = None
    scalar = False
    for number, kind, value in fields(data, span, _MOST_FIELDS):
        if number == 1 and isinstance(value, tuple):
            if value[1] - value[0] > LONGEST_TAG:
                return None
            tag = data[slice(*value)].decode("utf-8", "replace")
        elif number == 2 and kind == encodings.FIXED32:
            plain = struct.unpack("<f", struct.pack("<I", value))[0]
        elif number == 8 and isinstance(value, tuple):
            tensor = value
        elif number == 9 and isinstance(value, tuple):
            scalar = _is_scalar(data, value)
    if plain is None and tensor is not None and (scalar or tag in known):
        plain = _number(data, tensor)
    return None if plain is None else (tag, plain)


def _is_scalar(data: bytes, span: Span) -> bool:
    """A SummaryMetadata."""
    names = [data[slice(*name)] for plugin in _parts(data, span, 1) for name in _parts(data, plugin, 1)]
    return _PLUGIN in names or (4, _SCALAR_CLASS) in _numbers(data, span)


def _number(data: bytes, span: Span) -> Optional[float]:
    """A TensorProto of one number as that; None for any other."""
    parts: Dict[int, Tuple[int, int | Span]] = {}
    elements = 1
    for number, kind, value in fields(data, span, _MOST_FIELDS):
        if number == 2 and isinstance(value, tuple):
            elements = _elements(data, value)
        else:
            parts.setdefault(number, (kind, value))
    dtype = parts.get(1, (encodings.VARINT, 0))[1]
    if elements != 1 or not isinstance(dtype, int) or dtype not in _FIELD:
        return None
    content = parts.get(4, (encodings.BYTES, (0, 0)))[1]
    if isinstance(content, tuple) and content[0] < content[1]:
        return _of_content(dtype, data[slice(*content)])
    if _FIELD[dtype] not in parts:
        return 0.0  # TensorFlow leaves out what is zero
    return _of_field(dtype, data, *parts[_FIELD[dtype]])


def _elements(data: bytes, shape: Span) -> int:
    """0 for a shape that is not known."""
    if dict(_numbers(data, shape)).get(3):
        return 0
    found = 1
    for size in _parts(data, shape, 2):
        found *= dict(_numbers(data, size)).get(1, 0)
        if found > 1:
            return 0
    return found


def _of_content(dtype: int, content: bytes) -> Optional[float]:
    if dtype == _BFLOAT16:
        return _upper_half(int.from_bytes(content, "little")) if len(content) == 2 else None
    form = _CONTENT[dtype]
    return float(struct.unpack(form, content)[0]) if len(content) == struct.calcsize(form) else None


def _of_field(dtype: int, data: bytes, kind: int, value: int | Span) -> Optional[float]:
    """The first number of a repeated field, which may be packed."""
    if isinstance(value, tuple):
        begin, end = value
        if begin == end:
            return 0.0
        if dtype in (1, 2):
            form = _CONTENT[dtype]
            return float(struct.unpack_from(form, data[begin:end])[0])
        value = encodings.varint(data, begin, end)[0]
    elif dtype in (1, 2):
        if kind != (encodings.FIXED32 if dtype == 1 else encodings.FIXED64):
            return None
        form, raw = ("<f", "<I") if dtype == 1 else ("<d", "<Q")
        return float(struct.unpack(form, struct.pack(raw, value))[0])
    if dtype == _BFLOAT16:
        return _upper_half(value & 0xFFFF)
    if dtype == _HALF:
        return float(struct.unpack("<e", struct.pack("<H", value & 0xFFFF))[0])
    return float(value if dtype in (22, 23) else _signed(value))


def _upper_half(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _parts(data: bytes, span: Span, field: int, most: int = _MOST_FIELDS) -> Iterator[Span]:
    """Texts and messages of one field."""
    return (value for number, _, value in fields(data, span, most) if number == field and isinstance(value, tuple))


def _numbers(data: bytes, span: Span) -> Iterator[Tuple[int, int]]:
    return ((number, value) for number, _, value in fields(data, span, _MOST_FIELDS) if isinstance(value, int))

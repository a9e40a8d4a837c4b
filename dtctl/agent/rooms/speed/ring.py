"""The file in which measurements are kept for the run's life: three rings of slots, of a fixed size.

Each slot holds one time span, compressed, with its checksum: one that a full disk or a kill has cut off is skipped. A
trainer could write to the file, as to all files of its user: what is read is checked.
"""

from __future__ import annotations

import os
import struct
import zlib

from ...host import files
from ...records import kinds
from ...records.kinds import checked
from .adding import added, largest
from .records import Sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple

FILE = "speed.ring"
SPANS: Tuple[Tuple[float, int], ...] = ((10.0, 90), (60.0, 180), (600.0, 1008))
"""Seconds of a slot, and how many: a quarter of an hour, three hours, and a week."""

_KEPT_S = SPANS[0][0] * SPANS[0][1]
_SIZE = 4096
_OF_A_TASK = 512
_LARGEST = 64 * 1024
_HEAD = struct.Struct("=III")
"""The mark, with the size of slots; the length of what follows; its checksum."""
_MARK = 0x64740000


class Ring:
    """`tasks`: how many the host has, by which slots are sized."""

    def __init__(self, directory: str, tasks: int) -> None:
        self._path = os.path.join(directory, FILE)
        self._slot_bytes = min(_LARGEST, _SIZE + -(-_OF_A_TASK * tasks // _SIZE) * _SIZE)
        self._mark = _MARK | self._slot_bytes >> 10
        self._last: Optional[float] = None
        """The end of the newest time span; None: the file was not read yet."""

    @property
    def most_bytes(self) -> int:
        return sum(count for _, count in SPANS) * self._slot_bytes

    def add(self, sample: Sample) -> None:
        """Adds a time span of about 10 s, and the longer ones that it completes. Raises OSError."""
        with files.opened(self._path, os.O_RDWR | os.O_CREAT) as file:
            before = self._last if self._last is not None else self._last_time(file)
            self._write(file, 0, sample)
            self._last = sample["time"]
            for level in range(1, len(SPANS)):
                span_s = SPANS[level][0]
                begin = before // span_s * span_s
                if not before or begin == sample["time"] // span_s * span_s:
                    return
                whole = added(self._of_span(file, level - 1, begin, span_s))
                if whole is not None:
                    self._write(file, level, whole)

    def minutes(self, most: int) -> List[Sample]:
        """Time spans of about a minute, newest first. Raises OSError."""
        with files.opened(self._path) as file:
            newest = sorted(self._all(file, 0), key=lambda one: one["time"])
            newest = [one for one in newest if one["time"] > newest[-1]["time"] - _KEPT_S]
            longer = sorted(self._all(file, 1), key=lambda one: -one["time"])
        found: List[Sample] = []
        while newest and len(found) < most:
            last = newest[-1]["time"]
            part = [one for one in newest if one["time"] > last - 59.0]
            newest = newest[: len(newest) - len(part)]
            whole = added(part)
            if whole is not None:
                found.append(whole)
        oldest = found[-1]["time"] - found[-1]["seconds"] if found else float("inf")
        found += [one for one in longer if one["time"] <= oldest + 1.0]
        return found[:most]

    def whole(self) -> Tuple[Optional[Sample], Optional[float]]:
        """All that is kept, added up, and its begin. Raises OSError."""
        parts: List[Sample] = []
        with files.opened(self._path) as file:
            for level in range(len(SPANS) - 1, -1, -1):
                found = sorted(self._all(file, level), key=lambda one: one["time"])
                covered = parts[-1]["time"] if parts else 0.0
                parts += [one for one in found if one["time"] - one["seconds"] / 2 >= covered]
        begins = [one["time"] - one["seconds"] for one in parts]
        return added(parts), max(0.0, min(begins)) if begins else None

    def _of_span(self, file: int, level: int, begin: float, span_s: float) -> List[Sample]:
        """The shorter time spans that end within a longer one, oldest first."""
        own_s, count = SPANS[level]
        first = int(begin // own_s)
        slots = (self._at(file, level, index % count) for index in range(first, first + int(span_s // own_s)))
        found = [one for one in slots if one is not None and begin <= one["time"] < begin + span_s]
        return sorted(found, key=lambda one: one["time"])

    def _last_time(self, file: int) -> float:
        """The end of the newest time span; 0 for none."""
        return max((one["time"] for one in self._all(file, 0)), default=0.0)

    def _place(self, level: int, index: int) -> int:
        return (sum(count for _, count in SPANS[:level]) + index) * self._slot_bytes

    def _all(self, file: int, level: int) -> Iterator[Sample]:
        for index in range(SPANS[level][1]):
            sample = self._at(file, level, index)
            if sample is not None:
                yield sample

    def _at(self, file: int, level: int, index: int) -> Optional[Sample]:
        return self._read(files.read_at(file, self._place(level, index), self._slot_bytes))

    def _read(self, data: bytes) -> Optional[Sample]:
        if len(data) < _HEAD.size:
            return None
        mark, size, checksum = _HEAD.unpack_from(data)
        packed = data[_HEAD.size : _HEAD.size + size]
        if mark != self._mark or len(packed) != size or zlib.crc32(packed) != checksum:
            return None
        try:
            text = zlib.decompressobj().decompress(packed, 1 << 20)
            return checked(Sample, kinds.parse_json(text))
        except (zlib.error, ValueError, kinds.InvalidValue):
            return None

    def _write(self, file: int, level: int, sample: Sample) -> None:
        span_s, count = SPANS[level]
        data = self._packed(sample)
        os.pwrite(file, data, self._place(level, int(sample["time"] // span_s) % count))

    def _packed(self, sample: Sample) -> bytes:
        """Packs a sample into a slot, without its smallest flows if it does not fit."""
        import json

        kept = sample
        while True:
            packed = zlib.compress(json.dumps(kept).encode(), 1)
            if _HEAD.size + len(packed) <= self._slot_bytes:
                return _HEAD.pack(self._mark, len(packed), zlib.crc32(packed)) + packed
            if not kept["flows"]:
                return b""
            flows = largest(kept["flows"], len(kept["flows"]) // 2)
            kept = {
                **sample,
                "flows": flows,
                "flows_omitted": sample["flows_omitted"] + len(sample["flows"]) - len(flows),
            }

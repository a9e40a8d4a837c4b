"""Files of safetensors: a length, a header in JSON, and the tensors' bytes, which end where the header says.

https://huggingface.co/docs/safetensors, "Format": eight bytes with the length of the header, then the header.
"""

from __future__ import annotations

import os
import struct

from ..host import files
from ..records.kinds import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

NAME = r"(?s)(.+)\.safetensors\Z"
NO_CHECKSUMS = "safetensors files have no checksums: only their headers and lengths were checked"

_LARGEST_HEADER = 100_000_000
"""The library refuses a larger one."""
MOST_READ = 8 << 20
"""A larger header is not read: it has a hundred thousand tensors, unless it was made to cost its reader."""


def problem(path: str) -> Optional[str]:
    """Why the file cannot be whole; None when it is. Raises OSError."""
    with files.opened(path) as file:
        size = os.fstat(file).st_size
        head = files.read_at(file, 0, 8)
        if len(head) < 8:
            return "it is cut short: it has %d bytes" % size
        (length,) = struct.unpack("<Q", head)
        if not 2 <= length <= _LARGEST_HEADER:
            return "it is damaged, or is no file of safetensors: its header would have %d bytes" % length
        if size < 8 + length:
            return "it is cut short: its header ends at %d bytes, and it has %d" % (8 + length, size)
        if length > MOST_READ:
            return None
        end = _end(files.read_at(file, 8, length))
    if end is None:
        return "its header is damaged"
    if size != 8 + length + end:
        short = size < 8 + length + end
        return "it %s: it has %d of %d bytes" % ("is cut short" if short else "is too long", size, 8 + length + end)
    return None


def _end(header: bytes) -> Optional[int]:
    """Where the last tensor ends; None for a header that the library refuses."""
    try:
        content = parse_json(header)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    end = 0
    for name, tensor in content.items():
        if name == "__metadata__":
            continue
        place = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not (isinstance(place, list) and len(place) == 2 and all(type(one) is int for one in place)):
            return None
        if not 0 <= place[0] <= place[1]:
            return None
        end = max(end, place[1])
    return end

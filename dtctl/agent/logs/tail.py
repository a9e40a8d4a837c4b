"""The end of a log: what is searched for a cause, and the last lines, as they are kept with an exit."""

from __future__ import annotations

from ..host import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..host.secrets import Masks

KEPT_BYTES = 2048
_READ_BYTES = 1 << 16
"""A cause may stand before much that a program writes while it goes down."""


def end_of(path: str, masks: Masks) -> str:
    """At most 64 KiB of whole lines without secrets; of a progress bar its last state."""
    text = paths.tail(path, _READ_BYTES).encode("utf-8", "surrogateescape")
    lines = [line.rsplit(b"\r", 1)[-1] for line in masks.hide(text).replace(b"\r\n", b"\n").rstrip().split(b"\n")]
    return b"\n".join(lines).decode("utf-8", "replace")


def last_lines(end: str) -> str:
    """Of what `end_of` gives at most 2 KiB of whole lines."""
    data = end.encode("utf-8", "replace")
    kept = data[-KEPT_BYTES:]
    if len(kept) < len(data):
        kept = kept[kept.find(b"\n") + 1 :]
    return kept.decode("utf-8", "replace")

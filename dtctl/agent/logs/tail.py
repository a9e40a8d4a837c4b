"""The last lines of a log, as they are kept with an exit."""

from __future__ import annotations

from ..host import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..host.secrets import Masks

KEPT_BYTES = 2048
_SLACK = 8192
"""Read in addition, so that no secret is cut in two at the beginning and shown by half."""


def last_lines(path: str, masks: Masks) -> str:
    """At most 2 KiB of whole lines without secrets; of a progress bar its last state."""
    text = paths.tail(path, KEPT_BYTES + _SLACK).encode("utf-8", "surrogateescape")
    lines = [line.rsplit(b"\r", 1)[-1] for line in masks.hide(text).replace(b"\r\n", b"\n").rstrip().split(b"\n")]
    data = b"\n".join(lines)
    kept = data[-KEPT_BYTES:]
    if len(kept) < len(data):
        kept = kept[kept.find(b"\n") + 1 :]
    return kept.decode("utf-8", "replace")

"""What the tests of all commands have to know of the room `checkpoints`."""

from __future__ import annotations

OWN = (
    r"project/pulled/(\.[^/]+\.part/)?((arrived|placing)(\.new)?|checkpoint|[^/]+\.(index|data-[0-9]{5}-of-[0-9]{5}))",
)

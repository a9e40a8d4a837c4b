"""What the tests of all commands have to know of the room `speed`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (
    spoken("speed"),
    spoken("speed -o json"),
)

TYPED = ("speed",)

"""What the tests of all commands have to know of the room `check`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (
    spoken("check", shows=True),
    spoken("check -o json"),
)

HEARD = {
    "check": "check result",
}

"""What the tests of all commands have to know of the room `dump`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (
    spoken("dump", endless=True, shows=True),
    spoken("dump -o json", endless=True, shows=True),
)

HEARD = {
    "dump": "dump, dump result",
}

TYPED = ("dump",)

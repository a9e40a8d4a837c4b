"""What the tests of all commands have to know of the room `diagnose`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (
    spoken("diagnose"),
    spoken("diagnose -o json", partly=True),
)

HEARD = {
    "diagnose": "status result, diagnose result",
}

TYPED = ("diagnose",)

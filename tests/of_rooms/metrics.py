"""What the tests of all commands have to know of the room `metrics`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (
    spoken("metrics", partly=True),
    spoken("metrics --plot"),
    spoken("metrics -o json"),
    spoken("metrics --csv -f", endless=True),
)

HEARD = {
    "metrics": "points, metrics result, status result",
}

TYPED = ("metrics",)

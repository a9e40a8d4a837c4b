"""What the tests of all commands have to know of the room `tensorboard`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (
    spoken("tensorboard", endless=True),
    spoken("tensorboard --copy", endless=True),
)

HEARD = {
    "tensorboard": "event_dirs result, tensorboard_ready, tensorboard result, event_file, caught_up",
}

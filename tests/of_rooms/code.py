"""What the tests of all commands have to know of the room `code`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (spoken("code demo-1 code", endless=True),)

HEARD = {
    "code": "code_part, code result, status result",
}

OWN = (r"project/code/train\.py",)

WORDS = {
    "code": "demo-1",
}

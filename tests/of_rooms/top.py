"""What the tests of all commands have to know of the room `top`."""

from __future__ import annotations

SILENT = {
    "top": "needs a terminal; tests/unit/render/top feeds its screen with poison",
}

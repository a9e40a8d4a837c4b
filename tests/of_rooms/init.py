"""What the tests of all commands have to know of the room `init`."""

from __future__ import annotations

SILENT = {
    "init": "writes a template and speaks to no host",
}

WORDS = {
    "init": "--template nosuch",
}

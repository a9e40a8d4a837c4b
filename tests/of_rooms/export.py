"""What the tests of all commands have to know of the room `export`."""

from __future__ import annotations

SILENT = {
    "export": "reads the cluster file and the code alone",
}

TYPED = (
    "export jobset",
    "export dockerfile",
)

WORDS = {
    "export": "tfjob",
}

"""What the tests of all commands have to know of the room `importing`."""

from __future__ import annotations

SILENT = {
    "import": "reads the source alone, and speaks to no host",
}

TYPED = ("import ssh_config",)

WORDS = {
    "import": "nosuchfile",
}

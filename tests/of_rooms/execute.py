"""What the tests of all commands have to know of the room `execute`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (
    spoken("exec -- true", endless=True),
    spoken("exec worker:0 worker:1 -- true", endless=True),
)

HEARD = {
    "exec": "output, exec result",
}

SILENT = {
    "ssh": "becomes OpenSSH's own client; dtctl hears nothing of what the host says",
}

WORDS = {
    "exec": "--home -o json -- true",
}

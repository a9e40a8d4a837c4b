"""What the tests of all commands have to know of the room `pages`."""

from __future__ import annotations

from tests.of_rooms import spoken

SPOKEN = (
    spoken("report --force"),
    spoken("report -O -", partly=True),
    spoken("report -O report.html"),
    spoken("report -O - --format md", partly=True),
    spoken("dashboard", endless=True),
    spoken("compare demo-1 demo-0"),
)

HEARD = {
    "report": "status result, event, events result, metrics result, speed result",
    "dashboard": "status result, event, events result, metrics result, speed result",
    "compare": "status result, metrics result, speed result",
}

OWN = (r"project/(demo-1|report)\.html",)

WORDS = {
    "compare": "demo-1 demo-2",
}

"""How the address of a page of `dtctl dashboard` or `dtctl tensorboard` is shown."""

from __future__ import annotations

from collections.abc import Mapping

from dtctl.render import errors
from dtctl.render.machine import document
from dtctl.render.terminal import console


def show_url(url: str, fields: Mapping[str, object], *notes: str, json: bool) -> None:
    """Once it can be opened. `fields`: of its document, besides the address."""
    if json:
        document.print_json_line({"apiVersion": document.API_VERSION, **fields, "url": url})
        return
    console.say(url)
    for note in notes:
        errors.note(note)


def show_next_url(url: str, fields: Mapping[str, object], *, json: bool) -> None:
    """When a browser has come in."""
    if json:
        show_url(url, fields, json=True)
    else:
        errors.note("opened; for another browser:", url)

"""What `dtctl dashboard` says on the terminal."""

from __future__ import annotations

from dtctl.render import errors
from dtctl.render.machine import document
from dtctl.render.terminal import console


def show_url(url: str, run: str | None, *, json: bool) -> None:
    """Once it can be opened."""
    if json:
        body = {"apiVersion": document.API_VERSION, "kind": "Dashboard", "run": run, "url": url}
        document.print_json_line(body)
        return
    console.say(url)
    errors.note("it works once, in one browser; Ctrl-C ends the dashboard, and the run goes on")


def show_next_url(url: str, run: str | None, *, json: bool) -> None:
    """When a browser has come in."""
    if json:
        show_url(url, run, json=True)
    else:
        errors.note(f"opened; for another browser: {url}")

"""The search of the documentation's site as a browser runs it: the site's own worker, on the site's own index."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import quickjs

from tests.documents.blocks import ROOT

_BROWSER = """
var answers = [], worker, self = globalThis;
var console = {warn: () => {}, log: () => {}};
function addEventListener(_, listener) { worker = listener; }
function postMessage(message) { answers.push(message); }
"""
"""What a browser has for a worker, as far as this one uses it."""

_SETUP, _QUERY = 0, 2
"""Types of messages, as the site's bundle sends them."""


def build(site: Path) -> None:
    """Builds the site into this directory."""
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    subprocess.run(mkdocs, cwd=ROOT, check=True, env={"NO_MKDOCS_2_WARNING": "1"})


class SiteSearch:
    """Answers what is typed into the search field of a built site."""

    def __init__(self, site: Path) -> None:
        (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.min.js")
        index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
        self._context = quickjs.Context()
        self._context.eval(_BROWSER + worker.read_text("utf-8"))
        self._ask(_SETUP, {**index, "options": {"suggest": False}})

    def pages(self, typed: str) -> list[str]:
        """Pages that the reader is shown, best first, as in `recovery.html`."""
        return [found[0]["location"].partition("#")[0] for found in self._ask(_QUERY, typed)["items"]]

    def _ask(self, kind: int, data: object) -> dict[str, list[list[dict[str, str]]]]:
        self._context.eval(f"answers = []; worker({{data: {json.dumps({'type': kind, 'data': data})}}}); 0")
        while self._context.execute_pending_job():
            pass
        answer: dict[str, list[list[dict[str, str]]]] = json.loads(
            self._context.eval("JSON.stringify(answers[0].data ?? {})")
        )
        return answer

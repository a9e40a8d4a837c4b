"""A report as one HTML file: it needs no network, no script and no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl import __version__
from dtctl.operations.report import MARK, Report
from dtctl.render.format import local_time
from dtctl.render.report.html import Html, joined, tag
from dtctl.render.report.sections import sections as sections_of
from dtctl.render.terminal import console

if TYPE_CHECKING:
    from dtctl.operations.compare import Comparison

STYLE = Path(__file__).with_name("report.css").read_text("utf-8")
"""Light and dark, narrow and wide, on paper. It fetches nothing."""


def page(report: Report, compared: Comparison | None = None) -> str:
    """`compared`: with other runs."""
    record = report.status.record
    run = record.run or record.cluster
    parts = sections_of(report, compared)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{run}: {report.status.verdict.outcome.value}"),
        tag("style", Html(STYLE)),
    )
    body = tag(
        "body",
        tag("a", "To the result", href="#result", class_="skip"),
        tag("header", tag("h1", run), tag("p", about(report), class_="soft")),
        nav({at: name for at, name, _ in parts}),
        tag("main", [section(at, name, held) for at, name, held in parts]),
        tag("footer", tag("p", f"dtctl {__version__}")),
    )
    return f"<!DOCTYPE html>\n{MARK} -->\n" + tag("html", head, body, lang="en") + "\n"


def nav(headings: Mapping[str, str]) -> Html:
    links = [tag("li", tag("a", name, href=f"#{at}")) for at, name in headings.items()]
    return tag("nav", tag("ul", links), aria_label="Sections")


def put(text: str) -> None:
    """On stdout: what is in a report was made safe when it was written."""
    console.put(text)


def policy() -> str:
    """Nothing is fetched and nothing runs; the one style sheet is known by its hash."""
    return f"default-src 'none'; style-src {known_by_hash(STYLE)}; base-uri 'none'; form-action 'none'"


def known_by_hash(text: str) -> str:
    """What is within the page, as a Content-Security-Policy names it (CSP 3, 2.3.1)."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def about(report: Report) -> str:
    record = report.status.record
    began = f", started {local_time(record.created)}" if record.created else ""
    return f"cluster {record.cluster}{began}; as of {local_time(report.status.time or report.made)}"


def section(at: str, name: str, held: Html) -> Html:
    return tag("section", tag("h2", name, id=f"{at}-heading"), joined(held), id=at, aria_labelledby=f"{at}-heading")

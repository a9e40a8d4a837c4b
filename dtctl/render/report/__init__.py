"""A report as one HTML file, which needs no network, no script and no other file; and as Markdown."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from dtctl import __version__
from dtctl.agent.host.secrets import hide_text
from dtctl.operations.report import MARK, Report
from dtctl.render.format import local_time
from dtctl.render.report.html import templates
from dtctl.render.report.sections import FUNCTIONS
from dtctl.render.report.sections import sections as sections_of
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import lines_of, one_line

if TYPE_CHECKING:
    from dtctl.operations.compare import Comparison

STYLE = Path(__file__).with_name("report.css").read_text("utf-8")
"""Light and dark, narrow and wide, on paper. It fetches nothing."""


def page(report: Report, compared: Comparison | None = None) -> str:
    """`compared`: with other runs."""
    return (
        templates()
        .get_template("page.html")
        .render(
            report=report,
            mark=Markup(MARK),
            run=report.status.record.run or report.status.record.cluster,
            policy=policy(),
            style=Markup(STYLE),
            about=about(report),
            parts=sections_of(report, compared),
            version=__version__,
        )
    )


def markdown(report: Report, compared: Comparison | None = None) -> str:
    """The same facts for a merge request or a chat, without the drawings."""
    form = templates().overlay(finalize=_marked).get_template("page.md", globals={**FUNCTIONS, "code": _code})
    run = report.status.record.run or report.status.record.cluster
    return form.render(report=report, compared=compared, run=run, mark=Markup(MARK)).rstrip("\n") + "\n"


def _code(text: str, language: str) -> Markup:
    """Between fences that the text cannot end."""
    lines = [line.replace(_FENCE, "'''' ") for line in lines_of(hide_text(text))]
    return Markup("\n".join([f"{_FENCE}{language}", *lines, _FENCE]))


_FENCE = "````"
_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")


def _marked(value: object) -> Markup:
    """Neither Markdown nor HTML, whatever a host says, and no @NAME mentions a user.

    An entity would still be a mention for GitHub and GitLab, which look for them in what is left of the text.
    """
    if isinstance(value, Markup):
        return value
    text = one_line(hide_text(str(value)).replace("\n", " "))
    return Markup(_SPECIAL.sub(r"\\\1", escape(text, quote=False)).replace("@", "@<!-- -->"))


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

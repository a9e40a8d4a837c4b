"""Tables with a caption and headings, which can be scrolled with the keyboard where they are too wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dtctl.render.report.html import Html, joined, tag
from dtctl.render.words import count


@dataclass(frozen=True)
class Column:
    """A heading, and the class of its cells: number, nowrap, wide."""

    heading: str
    kind: str | None = None


def scrolled(caption: str, columns: Sequence[Column | str], rows: Sequence[Sequence[str]], *, most: int = 1000) -> Html:
    """The first cell of each row is its heading. Of more rows than `most` the last are shown."""
    named = [one if isinstance(one, Column) else Column(one) for one in columns]
    left = max(0, len(rows) - most)
    head = tag("tr", [tag("th", one.heading, scope="col", class_=one.kind) for one in named])
    body = [_row(named, row) for row in rows[left:]]
    more = f" (the last {most}; {count(left, 'other')} left out)" if left else ""
    table = tag("table", tag("caption", caption + more), tag("thead", head), tag("tbody", body))
    return joined(tag("div", table, class_="scroll", role="region", aria_label=caption, tabindex="0"))


def _row(columns: Sequence[Column], row: Sequence[str]) -> Html:
    first, *rest = zip(columns, row, strict=True)
    cells = [tag("td", cell, class_=column.kind) for column, cell in rest]
    return tag("tr", tag("th", first[1], scope="row"), cells)

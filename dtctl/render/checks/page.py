"""What `check` shows: what is so by topic, then what is wrong, why, and what to type."""

from __future__ import annotations

from dtctl.operations.checks.checking import Checked
from dtctl.operations.checks.topic import fails
from dtctl.operations.diagnosis.signature import Finding
from dtctl.render.checks.lines import shown
from dtctl.render.errors import note, show_warning
from dtctl.render.health.findings import paragraph
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import still
from dtctl.render.words import count, crowd

NOTICED_S = 0.5
"""A brief check that takes so long is spoken of, though nothing is wrong."""


def show_checked(checked: Checked) -> None:
    out = console.out()
    for topic, lines in checked.told.items():
        rows = shown(lines, len(checked.hosts) - len(checked.errors))
        width = max((len(label) for label, _ in rows), default=0)
        if rows:
            out.print(topic, style="bold")
        for label, value in rows:
            out.print(f"  {label:<{width}}  {value}" if label else f"  {value}")
    show_findings(checked)
    out.print(summary(checked))


def show_findings(checked: Checked) -> None:
    """A paragraph for each; a blank line parts them."""
    out = console.out()
    for found in checked.found:
        out.print("")
        first, *rest = worded(found)
        out.print(first, style="bold")
        for line in rest:
            out.print(f"  {line}")
    if checked.found:
        out.print("")


def show_brief(checked: Checked) -> None:
    """Of the check by the way, where a bar may be moving: what is wrong, and the time, if it took any."""
    with still():
        for found in checked.found:
            what, *remedies = paragraph(found)
            show_warning(what, hint="\n".join(remedies))
        if checked.found or checked.seconds >= NOTICED_S:
            note(f"{summary(checked)}; --no-check leaves that out", "dtctl check    looks closer")


def worded(found: Finding) -> list[str]:
    """`problem` or `warning`, what is so, and what to type."""
    first, *rest = paragraph(found)
    return [f"{'problem' if fails(found) else 'warning'}: {first}", *rest]


def summary(checked: Checked) -> str:
    """As in `gpu-[1-8] checked in 3.2 s: 2 problems, 1 warning`."""
    asked = [host for host in checked.hosts if host not in checked.errors]
    if not asked:
        return "no host could be asked"
    problems = sum(fails(one) for one in checked.found)
    warnings = len(checked.found) - problems
    told = [count(problems, "problem")] * bool(problems) + [count(warnings, "warning")] * bool(warnings)
    return f"{crowd(asked)} checked in {checked.seconds:.1f} s: {', '.join(told) or 'nothing is wrong'}"

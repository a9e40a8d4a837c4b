"""What checks of hosts have found, as text: for `check`, and for a start that asks in passing."""

from __future__ import annotations

import dataclasses

from dtctl.errors import PreflightError
from dtctl.operations.findings import Checked, Finding, Level, fails
from dtctl.render.errors import note, show_warning
from dtctl.render.findings import paragraph
from dtctl.render.format import count, summarize_hosts
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import still

CLOSER = (
    "dtctl check    also tests for exposed ports, taken ports, limits, memory, shared GPUs, room for checkpoints, data "
    "and slow logins"
)
"""What a start does not test, as it takes longer (`Cost.CHECK` of the check's signatures)."""


def show_findings(checked: Checked) -> None:
    """Shows a paragraph for each finding, with blank lines between them."""
    out = console.out()
    for found in checked.found:
        out.print("")
        first, *rest = worded(found)
        out.prose(first, style="bold")
        for line in rest:
            out.prose(f"  {line}")
    if checked.found:
        out.print("")


def show_brief(checked: Checked, *, refused: bool = False) -> None:
    """Shows the findings of the checks during a start, when a bar may be moving, and the time if it took any.

    Notes are for `check`. `refused`: what makes the start fail follows as its error.
    """
    checked = dataclasses.replace(
        checked, found=tuple(one for one in checked.found if one.signature.level < Level.NOTE)
    )
    certain = checked.certain_failures if refused else ()
    with still():
        for found in checked.found:
            if found not in certain:
                what, *remedies = paragraph(found)
                show_warning(what, hint="\n".join(remedies))
        if checked.is_noticed:
            note(f"{summary(checked)} (brief check; --no-check skips it)", CLOSER)


def refuse_certain_failure(checked: Checked, *, hint: str) -> None:
    """Raises PreflightError for findings that make tasks fail for certain, with the commands of each.

    Its summary is the cause, which later commands repeat as that of the failed start. `hint`: how to start them anyway.
    """
    certain = checked.certain_failures
    if certain:
        remedies = dict.fromkeys(line for one in certain for line in paragraph(one)[1:])
        problems = [worded(one)[0] for one in certain]
        summary, outcome = certain[0].signature.stops, "nothing was started"
        if summary == _AT_ONCE:
            summary, outcome = paragraph(certain[0])[0], f"{_AT_ONCE}, so nothing was started"
            del problems[0]
        raise PreflightError(summary, detail="\n".join([*problems, outcome]), hint="\n".join([*remedies, hint]))


_AT_ONCE = "tasks would fail as soon as they start"
"""What most of these findings lead to: they are causes themselves."""


def worded(found: Finding) -> list[str]:
    """`problem` or `warning` with the finding, then the commands to type."""
    first, *rest = paragraph(found)
    return [f"{'problem' if fails(found) else 'warning'}: {first}", *rest]


def summary(checked: Checked) -> str:
    """The number of hosts, the time and the findings, as in `gpu-[1-8] checked in 3.2 s: 2 problems, 1 warning`."""
    asked = [host for host in checked.hosts if host not in checked.errors]
    if not asked:
        return "none of the hosts could be checked"
    problems = sum(fails(one) for one in checked.found)
    warnings = len(checked.found) - problems
    parts = [count(problems, "problem")] * bool(problems) + [count(warnings, "warning")] * bool(warnings)
    return f"{summarize_hosts(asked)} checked in {checked.seconds:.1f} s: {', '.join(parts) or 'no problem found'}"

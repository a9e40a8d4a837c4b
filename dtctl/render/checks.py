"""The results of `check` as text."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.errors import PreflightError
from dtctl.operations.checks import Line, Statement, fails
from dtctl.operations.checks.data import MISSING
from dtctl.operations.checks.storage import FROM_NOTHING
from dtctl.operations.diagnosis import Finding, Level
from dtctl.render.diagnosis import filled, paragraph, valued
from dtctl.render.errors import note, show_warning
from dtctl.render.format import by_value, count, fold, summarize_hosts
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import still

if TYPE_CHECKING:
    from dtctl.operations.checks.checking import Checked
    from dtctl.operations.checks.network.firewall import Kind, Rules


@functools.cache
def _texts() -> ConfigParser:
    texts = ConfigParser(interpolation=None, delimiters="=")
    texts.read_string(Path(__file__).with_suffix(".ini").read_text("utf-8"))
    return texts


def show_rules(rules: Iterable[Rules], kind: Kind, output: str) -> None:
    """Shows a block for each group of hosts with the same rules."""
    if output == "json":
        from dtctl.render.machine import document

        parts = [document.picked(rule, "hosts ports lines undo") for rule in rules]
        return document.print_json("Firewall", {"kind": kind, "rules": parts})
    out, texts = console.out(), _texts()[kind]
    for number, one in enumerate(rules):
        if number:
            out.print("")
        ports = ", ".join(map(str, one.ports))
        out.print(f"# {fold(one.hosts)}: {texts['how']}")
        out.print(f"# The cluster's hosts alone may connect to port {ports}. {texts['opens']}")
        out.print(f"# {texts['lasts']}")
        out.print("# To take them away again:")
        for line in one.undo:
            out.print(f"#   sudo {line}")
        for line in one.lines:
            out.print(line)
    return None


_MOST_VALUES = 6
"""The most values that are shown if hosts differ; of more, only the smallest and the largest."""


def shown(lines: Iterable[Line | Statement], hosts: int) -> list[tuple[str, str]]:
    """Labels and their values. `hosts`: the number of hosts."""
    return [row for one in lines if (row := _row(one, hosts)) is not None]


def _row(one: Line | Statement, hosts: int) -> tuple[str, str] | None:
    if isinstance(one, Statement):
        fields = {name: valued(name, value) for name, value in one.fields.items() if value not in (None, "")}
        return "", filled(_texts()["statements"][one.kind], fields)
    without = [host for host, value in one.values.items() if value in (None, "")]
    known = {host: value for host, value in one.values.items() if host not in without}
    if not known:
        return None
    label = _label(one.what)
    groups = by_value({host: valued(one.what, value) for host, value in known.items()})
    if len(groups) == 1 and len(known) == hosts:
        return label, next(iter(groups))
    parts = [f"{fold(names)}: {value}" for value, names in groups.items()]
    if len(groups) > _MOST_VALUES:
        parts = [_span(one.what, known)]
    return label, "; ".join([*parts, *([f"{fold(without)}: none"] if without else [])])


def _span(what: str, known: Mapping[str, Any]) -> str:
    """The smallest and the largest of many different values, with their hosts."""
    (least_host, least), *_, (most_host, most) = sorted(known.items(), key=lambda item: item[1])
    return f"{valued(what, least)} ({least_host}) to {valued(what, most)} ({most_host})"


def _label(what: str) -> str:
    """The name without its unit: `memory_bytes` -> memory."""
    for end in ("_bytes", "_flops", "_share", "_s"):
        what = what.removesuffix(end)
    return what.replace("_", " ")


def show_checked(checked: Checked) -> None:
    out = console.out()
    for topic, lines in checked.lines.items():
        rows = shown(lines, len(checked.hosts) - len(checked.errors))
        width = max((len(label) for label, _ in rows), default=0)
        if rows:
            out.print(topic, style="bold")
        for label, value in rows:
            out.prose(value, label=f"  {label:<{width}}  " if label else "  ")
    show_findings(checked)
    out.prose(summary(checked))


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
            note(f"{summary(checked)}; --no-check leaves that out", "dtctl check    looks closer")


def refuse_certain_failure(checked: Checked, *, hint: str) -> None:
    """Raises PreflightError for findings that make tasks fail for certain, with the commands of each.

    `hint`: how to start them anyway.
    """
    certain = checked.certain_failures
    if certain:
        remedies = dict.fromkeys(line for one in certain for line in paragraph(one)[1:])
        raise PreflightError(
            f"{_certainty(certain)}, so nothing was started",
            detail="\n".join(worded(one)[0] for one in certain),
            hint="\n".join([*remedies, hint]),
        )


def _certainty(certain: Iterable[Finding]) -> str:
    names = {one.signature.name for one in certain}
    if names <= set(MISSING):
        return "the hosts do not have the data"
    if names <= set(FROM_NOTHING):
        return "no host would have a whole checkpoint"
    return "tasks would fail as soon as they start"


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
    return f"{summarize_hosts(asked)} checked in {checked.seconds:.1f} s: {', '.join(parts) or 'nothing is wrong'}"

"""The results of `check` as text."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.render.checked import show_findings, summary
from dtctl.render.findings import filled, valued
from dtctl.render.format import by_value, fold, summarize_hosts
from dtctl.render.terminal import console
from dtctl.rooms.check import Line, Statement

if TYPE_CHECKING:
    from dtctl.operations.findings import Checked
    from dtctl.rooms.check.network.firewall import Kind, Rules


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


_LONGEST_HOSTS = 120
"""The most characters of the names of hosts with the same value; of more, JSON has them."""

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
    parts = [f"{summarize_hosts(names, _LONGEST_HOSTS)}: {value}" for value, names in groups.items()]
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
    """Shows nothing if no host has answered: the errors are all that is known."""
    out = console.out()
    if len(checked.errors) == len(checked.hosts):
        return
    for topic, lines in checked.lines.items():
        rows = shown(lines, len(checked.hosts) - len(checked.errors))
        width = max((len(label) for label, _ in rows), default=0)
        if rows:
            out.print(topic, style="bold")
        for label, value in rows:
            out.prose(value, label=f"  {label:<{width}}  " if label else "  ")
    show_findings(checked)
    out.prose(summary(checked))

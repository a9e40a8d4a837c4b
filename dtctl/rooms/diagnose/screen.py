"""The result of `diagnose` as text."""

from __future__ import annotations

from dtctl.render.findings import paragraph
from dtctl.render.format import count
from dtctl.render.terminal import console
from dtctl.rooms.diagnose.operation import Diagnosis


def show_diagnosis(diagnosis: Diagnosis) -> None:
    """Shows a paragraph for each finding; if there is none, what was inspected."""
    out = console.out()
    for number, found in enumerate(diagnosis.found):
        if number:
            out.print("")
        for at, line in enumerate(paragraph(found, typed="diagnose")):
            out.prose(line if at == 0 else f"  {line}", style="bold" if at == 0 else None)
    if not diagnosis.found:
        hosts = diagnosis.facts.hosts
        looked = f"{count(len(diagnosis.status.tasks), 'task')} and {count(len(hosts), 'host')} were inspected"
        out.prose(f"no known problem: {looked} (processes, ports, network, disks, memory, ends of logs)")

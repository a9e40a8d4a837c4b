"""Writes the part of a benchmark on docs/performance.md, below the words that people write there."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from benchmarks.peers import page
from benchmarks.peers.environment import Environment
from benchmarks.peers.options import Options, Report
from tests.nightly.page import commit
from tests.tables import replace_part


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by `make bench` -->", f"<!-- end of {name} -->"


def text(report: Report, options: Options, environment: Environment, load: float) -> str:
    """In Markdown; `load` is that of the machine before."""
    when = time.strftime("%Y-%m-%d", time.gmtime())
    system = f"{_system()}, {os.cpu_count()} cores, a load of {load:.1f} before"
    run = f"{report.hosts} hosts, {options.width} at once, medians of {options.rounds} rounds"
    return "\n\n".join(
        [
            f"Measured on {when} at commit {commit()}: {run}; {system}; Python {platform.python_version()}, "
            f"{', '.join(environment.versions())}. {page.left_out(report.standings)}",
            *report.sections,
        ]
    )


def write(file: Path, name: str, text: str) -> None:
    begin, end = marks(name)
    replace_part(file, begin, end, text)


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()

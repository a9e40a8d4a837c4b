"""Writes the part of a benchmark on docs/performance.md, below the words that people write there."""

from __future__ import annotations

import os
import platform
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import page
from benchmarks.peers.environment import Environment
from benchmarks.peers.options import Options, Report
from tests.nightly.running import commit
from tests.tables import replace_part

WIDTH = 100
"""Of the page, but for its tables."""


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by `make bench` -->", f"<!-- end of {name} -->"


@dataclass(frozen=True)
class Circumstances:
    """Of the measurement, as they are before it begins."""

    commit: str
    load: float

    @staticmethod
    def now() -> Circumstances:
        return Circumstances(commit(), os.getloadavg()[0])


def text(report: Report, options: Options, environment: Environment, begin: Circumstances) -> str:
    """In Markdown."""
    when = time.strftime("%Y-%m-%d", time.gmtime())
    system = f"{_system()}, {os.cpu_count()} cores, a load of {begin.load:.1f} before"
    rounds = f"medians of {options.rounds} rounds" if options.rounds > 1 else "one round"
    versions = ", ".join([f"Python {platform.python_version()}", *environment.versions()])
    head = (
        f"Measured on {when} at commit {begin.commit}: {report.hosts} hosts, {options.width} at once, {rounds}; "
        f"{system}; {versions}. {page.left_out(report.standings)}"
    )
    return "\n\n".join([head, *report.sections])


def write(file: Path, name: str, text: str) -> None:
    begin, end = marks(name)
    replace_part(file, begin, end, "\n".join(map(_folded, text.splitlines())))


def _folded(line: str) -> str:
    if line.startswith(("|", "#")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()

"""A plugin of pytest: with CI=true a skip that tests/skips.txt does not expect is a failure.

A test that a bounded run has not begun is counted by that run, and is no failure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.nightly import until

LIST = Path("tests/skips.txt")
Report = TypeVar("Report", pytest.CollectReport, pytest.TestReport)


def expected(root: Path) -> set[tuple[str, str]]:
    """(test without its parameters, reason) of each line of the list."""
    lines = (root / LIST).read_text().splitlines() if (root / LIST).exists() else []
    found = (line.partition("  ") for line in lines if line and not line.startswith("#"))
    return {(test, reason.strip()) for test, _, reason in found}


def _judged(report: Report, root: Path) -> Report:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI", "") not in ("", "0", "false"):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = text.removeprefix("Skipped: ").strip()
        if reason != until.NO_TIME and (re.split(r"[\[@]", report.nodeid)[0], reason) not in expected(
            root
        ):  # after an @ a group of pytest-xdist
            report.outcome, report.longrepr = "failed", f"skipped, which {LIST} does not expect: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _judged((yield), item.config.rootpath)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _judged((yield), collector.config.rootpath)

"""A pytest plugin that writes down which tests were collected and what became of each, for who judges the run.

`pytest -p tests.ci.ledger --ledger FILE`. pytest-xdist's summary counts what has run; this one also knows what has not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.ci import cpu

PASSED, FAILED, SKIPPED, UNFINISHED = "passed", "failed", "skipped", "unfinished"

_CPU_BEFORE = pytest.StashKey[float]()
_SKIPPED_MODULES = "skipped_modules"


@dataclass
class Test:
    __test__ = False  # it is one that has run, none to be run

    outcome: str = UNFINISHED
    reason: str = ""
    """Why it was skipped."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Of all processes that the test has started (tests/ci/cpu.py)."""


@dataclass
class Ledger:
    collected: list[str] = field(default_factory=list)
    tests: dict[str, Test] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Modules that could not be imported."""
    skipped_modules: dict[str, str] = field(default_factory=dict)
    """Modules that were skipped as a whole, and why: none of their tests is collected."""
    exit_code: int = 0
    """pytest's own."""
    seconds: float = 0.0

    def named(self, *outcomes: str) -> list[str]:
        return [name for name, test in self.tests.items() if test.outcome in outcomes]

    @classmethod
    def read(cls, file: Path) -> Ledger:
        found = json.loads(file.read_text())
        return cls(**found | {"tests": {name: Test(**test) for name, test in found["tests"].items()}})


def plain(name: str) -> str:
    """A test's name without the group that pytest-xdist has added after an `@`."""
    test, at, group = name.rpartition("@")
    return test if at and not {"]", ":"} & set(group) else name


class Writer:
    """On the controller of a run, or in its only process."""

    def __init__(self, file: Path) -> None:
        self._file, self._ledger, self._began = file, Ledger(), time.monotonic()
        self._ended: set[str] = set()

    def _collect(self, names: list[str]) -> None:
        known = set(self._ledger.collected)
        self._ledger.collected += [name for name in map(plain, names) if name not in known]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collect(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._ledger.skipped_modules |= getattr(node, "workeroutput", {}).get(_SKIPPED_MODULES, {})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and report.nodeid not in self._ledger.broken:
            self._ledger.broken.append(report.nodeid)
        self._ledger.skipped_modules |= _skipped_module(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._ledger.tests.setdefault(plain(report.nodeid), Test())
        test.seconds += report.duration
        test.cpu_s += getattr(report, "cpu_s", 0.0)
        if report.failed:
            test.outcome = FAILED
        elif report.when == "teardown" and test.outcome == UNFINISHED:
            test.outcome = SKIPPED if test.reason else PASSED
        elif report.skipped and not hasattr(report, "wasxfail"):
            test.reason = _reason(report) or "no reason given"

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._ledger.exit_code, self._ledger.seconds = int(exitstatus), time.monotonic() - self._began

    def pytest_unconfigure(self) -> None:
        self._file.write_text(json.dumps(asdict(self._ledger)))


class Measurer:
    """In each process that runs tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cpu_s, self._leave = cpu.meter()

    def pytest_unconfigure(self) -> None:
        self._leave()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        output = getattr(self._config, "workeroutput", None)
        if output is not None:  # the controller of pytest-xdist is told of broken modules only
            output[_SKIPPED_MODULES] = output.get(_SKIPPED_MODULES, {}) | _skipped_module(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        item.stash[_CPU_BEFORE] = self._cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report: Any = yield
        if report.when == "teardown":
            report.cpu_s = self._cpu_s() - item.stash[_CPU_BEFORE]
        return report


def _skipped_module(report: pytest.CollectReport) -> dict[str, str]:
    return {report.nodeid: _reason(report)} if report.skipped else {}


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ").strip()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ledger", type=Path, help="write down what was collected and what became of it")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("ledger")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(file), "ledger-writer")
    config.pluginmanager.register(Measurer(config), "ledger-measurer")

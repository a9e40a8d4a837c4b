"""Where the time of a run went: installs, folders of tests, and the tests that took longest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.ci.ledger import SKIPPED, Ledger, Test

LONGEST = 10
MODULES = 25
"""A cut that pays is a module's: its tests share what they need."""


@dataclass(frozen=True)
class Machine:
    """What the whole machine has computed, everybody's processes together."""

    busy_s: float
    """Of all cores."""

    @classmethod
    def now(cls) -> Machine | None:
        """None where there is no /proc/stat."""
        try:
            words = Path("/proc/stat").read_text().splitlines()[0].split()
        except OSError:
            return None
        user, nice, system, _, _, irq, softirq = map(int, words[1:8])
        return cls((user + nice + system + irq + softirq) / 100)


@dataclass(frozen=True)
class Install:
    """A line `SECONDS NAME` of the file that tests/ci/timed writes."""

    seconds: float
    name: str

    @classmethod
    def read(cls, file: Path) -> list[Install]:
        lines = file.read_text().splitlines() if file.exists() else []
        words = (line.partition(" ") for line in lines)
        return [cls(float(seconds), name) for seconds, _, name in words]


def tables(ledger: Ledger, installs: list[Install], busy_s: float | None) -> Iterator[str]:
    yield "where the time went"
    yield from _installs(installs)
    yield ""
    yield f"  {'tests':<24} {'run':>5} {'share':>6} {'seconds':>8} {'CPU':>8}"
    folders = by_folder(ledger)
    every = sum(one.seconds for one in folders.values()) or 1.0
    for name, one in sorted(folders.items(), key=lambda entry: -entry[1].seconds):
        yield f"  {name:<24} {one.count:>5} {one.seconds / every:>6.0%} {one.seconds:>7.0f}s {one.cpu_s:>7.0f}s"
    whole_cpu = sum(one.cpu_s for one in folders.values())
    count = sum(one.count for one in folders.values())
    yield f"  {'all, beside each other':<24} {count:>5} {'':>6} {ledger.seconds:>7.0f}s {whole_cpu:>7.0f}s"
    if busy_s is not None:
        yield f"  {'the machine, all cores':<24} {'':>5} {'':>6} {'':>8} {busy_s:>7.0f}s"
    yield ""
    yield f"  the {LONGEST} longest"
    yield from _tests(ledger, lambda test: test.seconds)
    yield ""
    yield f"  the {LONGEST} that compute most"
    yield from _tests(ledger, lambda test: test.cpu_s)
    yield ""
    yield f"  the {MODULES} modules that compute most"
    modules = sorted(by_module(ledger).items(), key=lambda entry: -entry[1].cpu_s)[:MODULES]
    for name, one in modules:
        yield f"  {one.seconds:>7.1f}s  {one.cpu_s:>6.1f}s CPU  {one.count:>4}  {name}"


def every_test(ledger: Ledger) -> str:
    """The one that computes most first."""
    return "\n".join(_tests(ledger, lambda test: test.cpu_s, len(ledger.tests)))


def _tests(ledger: Ledger, by: Callable[[Test], float], most: int = LONGEST) -> Iterator[str]:
    first = sorted(ledger.tests.items(), key=lambda entry: -by(entry[1]))[:most]
    return (f"  {test.seconds:>7.1f}s  {test.cpu_s:>6.1f}s CPU  {name}" for name, test in first)


def _installs(installs: list[Install]) -> Iterator[str]:
    for install in installs:
        yield f"  {install.seconds:>7.0f}s  {install.name}"
    if not installs:
        yield "  nothing was installed"


@dataclass
class Folder:
    """Or module."""

    count: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0

    def add(self, test: Test) -> None:
        self.count += test.outcome != SKIPPED
        self.seconds += test.seconds
        self.cpu_s += test.cpu_s


def by_folder(ledger: Ledger) -> dict[str, Folder]:
    return _by(ledger, lambda module: str(PurePosixPath(module).parent))


def by_module(ledger: Ledger) -> dict[str, Folder]:
    return _by(ledger, str)


def _by(ledger: Ledger, part: Callable[[str], str]) -> dict[str, Folder]:
    found: defaultdict[str, Folder] = defaultdict(Folder)
    for name, test in ledger.tests.items():
        found[part(name.partition("::")[0])].add(test)
    return dict(found)

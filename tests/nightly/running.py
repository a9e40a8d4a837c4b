"""What the parts of the nightly run, what became of it, and the page that says so."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from xml.etree import ElementTree

from tests.nightly import until
from tests.tables import read_table, replace_table

ROOT = Path(__file__).resolve().parents[2]
JOBS = os.environ.get("JOBS", "6")
NO_TESTS_COLLECTED = 5
"""An exit code of pytest."""

PAGE = ROOT / "docs" / "nightly.md"
BEGIN, END = "<!-- the table is written by `make nightly` -->", "<!-- end of the table -->"
HEAD = ("part", "result", "when", "commit", "took", "what was seen")
WRITTEN_BY_ITSELF = ("docs/nightly.md", "docs/faults.md", "docs/performance.md", "docs/costs.md")


@dataclass(frozen=True)
class Limits:
    """How much is tried. The fields but the first are numbers of cases that tests make up themselves."""

    minutes: float = 0
    """After so many from its first test no run of pytest begins another; 0: all have their turn."""
    fuzz: int = 20_000
    """How many cases each test with hypothesis has."""
    sequences: int = 10_000
    sequences_from: int = 0
    elections: int = 100_000
    faults: int = 1000

    @classmethod
    def of_environment(cls) -> Limits:
        """As MINUTES, FUZZ and so on have it."""
        numbers = {field.name: os.environ.get(field.name.upper(), "") for field in fields(cls)}
        return cls(float(numbers.pop("minutes") or 0), **{name: int(text) for name, text in numbers.items() if text})


@dataclass(frozen=True)
class PartResult:
    """What became of a part, or of a piece of it."""

    passed: bool
    text: str
    whole: bool = True
    """All that it consists of had its turn."""

    @property
    def result(self) -> str:
        if not self.passed:
            return "**failed**"
        return "passed" if self.whole else "passed in part"

    @classmethod
    def of_all(cls, pieces: Mapping[str, PartResult]) -> PartResult:
        """Nothing at all is no success."""
        texts = [f"{name}: {seen.text}" for name, seen in pieces.items()]
        passed = bool(pieces) and all(seen.passed for seen in pieces.values())
        return cls(passed, "; ".join(texts), all(seen.whole for seen in pieces.values()))


def pytest(limits: Limits, python: str, *args: str, optional: bool = False, **environment: str) -> PartResult:
    """`optional`: whether none of these tests need be chosen by the marks and plugins."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        command = [python, "-m", "pytest", "-q", f"--junitxml={report}", *args]
        if limits.minutes:
            command += ["-p", "tests.nightly.until"]
            environment = {**until.settings(limits.minutes), **environment}
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False)
        if optional and done.returncode == NO_TESTS_COLLECTED:
            return PartResult(True, "no tests")
        return judged(report, done.returncode, limits.minutes)


def judged(report: Path, code: int, minutes: float = 0) -> PartResult:
    """By pytest's exit code and its report in JUnit's format."""
    every = ElementTree.parse(report).iter("testcase") if report.exists() else ()
    # One that was tried again is there once for each try: the last one counts.
    cases = [*{(case.get("classname"), case.get("name")): case for case in every}.values()]
    reasons = [each.get("message") for case in cases for each in case.iter("skipped")]
    broken = [case for case in cases if any(one.tag in ("failure", "error") for one in case)]
    failed = [f"{case.get('classname')}.{case.get('name')}" for case in broken]
    late = reasons.count(until.NO_TIME)
    numbers = {"passed": len(cases) - len(failed) - len(reasons), "failed": len(failed)}
    numbers |= {"skipped": len(reasons) - late, f"not begun in {minutes:.3g} min": late}
    wrong = [f"failed: {name}" for name in failed[:10]]
    if code and not (code == 1 and failed):
        wrong.append(f"pytest ended with {code}")
    if not numbers["passed"] and not failed:
        wrong.append("no test has run")
    counts = [f"{count} {what}" for what, count in numbers.items() if count]
    return PartResult(not wrong, "; ".join([", ".join(counts) or "nothing has run", *wrong]), whole=not late)


@contextmanager
def environment(python: str, packages: Sequence[str], *options: str) -> Iterator[str]:
    """A virtual environment with some packages, for a while: its python."""
    with tempfile.TemporaryDirectory(prefix="dtctl-nightly-") as directory:
        run([python, "-m", "venv", directory])
        own = str(Path(directory, "bin", "python"))
        run([own, "-m", "pip", "install", "--quiet", "--upgrade", "pip"])
        run([own, "-m", "pip", "install", "--quiet", *options, *packages])
        yield own


def run(command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What it prints; raises, with that, if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd, env=env)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


@dataclass(frozen=True)
class Row:
    part: str
    result: str = "not run"
    when: str = ""
    commit: str = ""
    took: str = ""
    seen: str = ""

    def cells(self) -> tuple[str, ...]:
        seen = self.seen if len(self.seen) <= 300 else self.seen[:300] + " ..."
        cells = (self.part, self.result, self.when, self.commit, self.took, seen)
        return tuple(cell.replace("|", "/").replace("\n", " ") for cell in cells)


def rows(page: Path | None = None) -> dict[str, Row]:
    return {cells[0]: Row(*cells) for cells in read_table(page or PAGE, BEGIN, END)}


def write(parts: Iterable[str], new: Mapping[str, Row], page: Path | None = None) -> None:
    """Every part has a row: a new one, the one that it had, or one that says that it has not run."""
    old = rows(page)
    table = [(new.get(part) or old.get(part) or Row(part)).cells() for part in parts]
    replace_table(page or PAGE, BEGIN, END, HEAD, table)


def commit(root: Path = ROOT) -> str:
    """The short name of what is checked out, and whether files differ from it."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True).stdout

    name = git("rev-parse", "--short=10", "HEAD").strip()
    changed = [line[3:] for line in git("status", "--porcelain").splitlines()]
    return name + (" and changes" if any(file not in WRITTEN_BY_ITSELF for file in changed) else "")

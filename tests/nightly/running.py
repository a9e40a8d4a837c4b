"""What the parts of the nightly run: pytest under some interpreter, and environments that they make for it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ci import verdict
from tests.ci.ledger import FAILED, PASSED, SKIPPED, Ledger
from tests.nightly import until

ROOT = Path(__file__).resolve().parents[2]
JOBS = os.environ.get("JOBS", "6")
MINUTES = float(os.environ.get("MINUTES") or 0)
"""After so many from its first test no run of pytest begins another; 0: all have their turn."""


@dataclass(frozen=True)
class Seen:
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
    def of_all(cls, pieces: Mapping[str, Seen]) -> Seen:
        """Nothing at all is no success."""
        texts = [f"{name}: {seen.text}" for name, seen in pieces.items()]
        passed = bool(pieces) and all(seen.passed for seen in pieces.values())
        return cls(passed, "; ".join(texts), all(seen.whole for seen in pieces.values()))


def pytest(python: str, *words: str, **environment: str) -> Seen:
    """The tests, judged as `make test` is but for second tries."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "ledger.json")
        command = [python, "-m", "pytest", "-q", "-p", "tests.ci.ledger", f"--ledger={file}", *words]
        if MINUTES:
            command += ["-p", "tests.nightly.until"]
            environment |= until.settings(MINUTES)
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False)
        if not file.exists():
            return Seen(False, f"pytest ended with {done.returncode} and has not told what it did")
        return judged(Ledger.read(file))


def judged(ledger: Ledger) -> Seen:
    late = [name for name in ledger.named(SKIPPED) if ledger.tests[name].reason == until.NO_TIME]
    numbers = {each: len(ledger.named(each)) for each in (PASSED, FAILED, SKIPPED)}
    numbers |= {SKIPPED: numbers[SKIPPED] - len(late), f"not begun in {MINUTES:g} min": len(late)}
    counts = ", ".join(f"{count} {what}" for what, count in numbers.items() if count)
    wrong = [*verdict.complaints(ledger), *(f"failed: {name}" for name in ledger.named(FAILED)[:10])]
    return Seen(not wrong, "; ".join([counts or "nothing has run", *wrong]), whole=not late)


@contextmanager
def environment(python: str, packages: Sequence[str], *options: str) -> Iterator[str]:
    """A virtual environment with some packages, for a while: its python."""
    with tempfile.TemporaryDirectory(prefix="dtctl-nightly-") as directory:
        run([python, "-m", "venv", directory])
        own = str(Path(directory, "bin", "python"))
        run([own, "-m", "pip", "install", "--quiet", "--upgrade", "pip"])
        run([own, "-m", "pip", "install", "--quiet", *options, *packages])
        yield own


def run(command: Iterable[str], **keywords: object) -> str:
    """What it prints; raises, with that, if it fails."""
    words = list(command)
    done = subprocess.run(  # type: ignore[call-overload]
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **keywords
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-2000:]}")
    return str(done.stdout)

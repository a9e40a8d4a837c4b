"""What a run of the tests is worth, from its ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.ci.ledger import FAILED, PASSED, SKIPPED, UNFINISHED, Ledger

SECOND_TRIES = 3
"""More tests than that do not fail by chance."""

_TELLS_OF_TESTS = (0, 1)
"""Exit codes of pytest that speak of the tests; others say that the run itself went wrong."""


@dataclass(frozen=True)
class Skip:
    """A test that may be skipped, with all of its parameters, and the reason that it has to give."""

    test: str
    reason: str

    @classmethod
    def parse(cls, line: str) -> Skip:
        test, _, reason = line.partition("  ")
        if not reason.strip():
            raise ValueError(f"{line!r}: write TEST, two spaces and the reason")
        return cls(test, reason.strip())


def read_lines(file: Path) -> list[str]:
    """Without comments."""
    return [line.strip() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]


def complaints(ledger: Ledger) -> Iterator[str]:
    """What no second try can mend: the run was not whole."""
    if ledger.exit_code not in _TELLS_OF_TESTS:
        yield f"pytest ended with {ledger.exit_code}"
    for module in ledger.broken:
        yield f"could not be collected: {module}"
    missing = [name for name in ledger.collected if name not in ledger.tests] + ledger.named(UNFINISHED)
    if missing:
        yield f"{len(missing)} of {len(ledger.collected)} collected tests have not run: {_some(missing)}"
    if strangers := ledger.tests.keys() - set(ledger.collected):
        yield f"have run without being collected: {_some(sorted(strangers))}"
    if not ledger.named(PASSED, FAILED):
        yield "no test has run"
    if ledger.exit_code and not ledger.named(FAILED) and not missing:
        yield f"pytest ended with {ledger.exit_code} though no test has failed"


def unexpected_skips(ledger: Ledger, expected: Sequence[Skip]) -> Iterator[str]:
    allowed = {(skip.test, skip.reason) for skip in expected}
    for name in ledger.named(SKIPPED):
        if (name.partition("[")[0], ledger.tests[name].reason) not in allowed:
            yield f"skipped: {name}: {ledger.tests[name].reason}"
    for module, reason in ledger.skipped_modules.items():
        yield f"skipped as a whole: {module}: {reason}"


def forgotten_skips(ledger: Ledger, expected: Sequence[Skip]) -> list[str]:
    """Lines of the file whose test is no more."""
    there = {name.partition("[")[0] for name in ledger.collected}
    return [f"no such test: {skip.test}" for skip in expected if skip.test not in there]


def skips_by_reason(ledger: Ledger) -> list[str]:
    """The most frequent reason first."""
    reasons = Counter(ledger.tests[name].reason for name in ledger.named(SKIPPED))
    reasons.update(f"{reason} (all of {module})" for module, reason in ledger.skipped_modules.items())
    return [f"{count} x {reason}" for reason, count in reasons.most_common()]


def _some(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f", and {len(names) - most} more" if len(names) > most else "")

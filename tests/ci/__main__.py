"""Runs the tests and says honestly what the run was worth: `python -m tests.ci [PYTEST ARGUMENT...]`.

Every collected test has to run. Up to three that fail are tried once more, by themselves; those that pass then are
listed as flaky. With CI=true a skip that tests/skips.txt does not expect fails the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.ci import spent, verdict
from tests.ci.ledger import FAILED, PASSED, SKIPPED, Ledger

SKIPS = Path("tests/skips.txt")
FLAKY = Path("tests/flaky.txt")
INSTALLS = Path(sys.prefix) / ".spent"
SPENT_BY_TESTS = Path(sys.prefix) / ".spent-by-tests"
"""Written for whoever looks for what to cut."""


class Died(Exception):
    """pytest ended without a word on what it did."""


def main(arguments: Sequence[str]) -> int:
    before = spent.Machine.now()
    if strict() and "-n" in arguments:
        compile_tests()
    try:
        first = run_pytest(arguments)
    except Died as died:
        return red([str(died)])
    tell_what_ran(first)
    after = spent.Machine.now()
    busy_s = after.busy_s - before.busy_s if before and after else None
    show(spent.tables(first, spent.Install.read(INSTALLS), busy_s))
    SPENT_BY_TESTS.write_text(spent.every_test(first) + "\n")
    INSTALLS.unlink(missing_ok=True)
    if wrong := [*verdict.complaints(first), *(skips_that_fail(first) if strict() else ())]:
        return red(wrong)
    failed = first.named(FAILED)
    if len(failed) > verdict.SECOND_TRIES:
        return red([f"{len(failed)} tests have failed, too many for a second try"])
    return second_try(failed) if failed else green()


def strict() -> bool:
    return os.environ.get("CI", "") not in ("", "0", "false")


def compile_tests() -> None:
    """Once, in a fresh clone: each worker of pytest-xdist would rewrite the same assertions for itself."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--quiet", "-p", "no:cacheprovider"]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=False)  # what is wrong the workers tell


def run_pytest(arguments: Sequence[str]) -> Ledger:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "ledger.json")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.ci.ledger", f"--ledger={file}", *arguments], check=False
        )
        if not file.exists():
            raise Died(f"pytest ended with {done.returncode} and has not told what it did")
        found = Ledger.read(file)
        found.exit_code = found.exit_code or done.returncode  # it may also die after its last test
        return found


def skips_that_fail(ledger: Ledger) -> list[str]:
    expected = [verdict.Skip.parse(line) for line in verdict.read_lines(SKIPS)] if SKIPS.exists() else []
    return [*verdict.unexpected_skips(ledger, expected), *verdict.forgotten_skips(ledger, expected)]


def tell_what_ran(ledger: Ledger) -> None:
    counts = ", ".join(f"{len(ledger.named(outcome))} {outcome}" for outcome in (PASSED, FAILED, SKIPPED))
    show(["", f"{len(ledger.collected)} collected: {counts}"])
    show(f"  skipped: {line}" for line in verdict.skips_by_reason(ledger))


def second_try(failed: Sequence[str]) -> int:
    show(["", f"a second try, one after the other: {' '.join(failed)}"])
    try:
        again = run_pytest(["-n1", *failed])  # a worker, as a test may end the process that it runs in
    except Died as died:
        return red([str(died)])
    passed = set(again.named(PASSED))
    if wrong := [*verdict.complaints(again), *(f"failed twice: {name}" for name in failed if name not in passed)]:
        return red(wrong)
    tell_flaky(failed)
    return green()


def tell_flaky(names: Iterable[str]) -> None:
    known = verdict.read_lines(FLAKY) if FLAKY.exists() else []
    for name in names:
        about = "known" if name in known else f"NEW: mend it at its cause, as {FLAKY} may not grow"
        show([f"flaky: {name} ({about})"])


def green() -> int:
    show(["green"])
    return 0


def red(reasons: Iterable[str]) -> int:
    show(["", *(f"RED: {reason}" for reason in reasons)])
    return 1


def show(lines: Iterable[str]) -> None:
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.nightly.rotation [--slice K/N]`: a part of the nightly for each landing, in a bounded time.

First the nightly tests of files that have changed since the last landing, then every N-th of all tests that are marked
`nightly`, then the pieces of parts whose turn it is. K is the number of landings so far, so that N landings in a row
run the whole. What would begin too late is not begun, and the last lines say how much that was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tests.nightly import history, slices, until
from tests.nightly.parts import BESIDE, MARKED, PIECES, Piece
from tests.nightly.running import ROOT, Limits, PartResult, pytest

SLICES = 12
BEGINS_MIN = 15.0
"""Nothing begins later than that; what has begun then gets the time that it needs."""

SLICE_MIN, PIECES_MIN = 7.0, 4.0
"""The minutes that are kept for the slice and for the pieces; each also gets what is left before it."""

LEAST_MIN = 0.5
"""With less time left a run of pytest is not worth its collection."""

FEWER = Limits(fuzz=2000, sequences=2000, elections=20_000, faults=40)
"""The nightly tries more."""

BY_SLICES = (*MARKED, "sequences:hosts", "elections:searches")
"""Pieces that consist of tests that are marked `nightly`."""

WHOLE_BY_NIGHT = tuple(name for name in PIECES if name.startswith("rooms:"))
"""Pieces that have no turn by day: each takes minutes, and says the same until somebody joins a room to the core."""

ONLY_BY_NIGHT = {
    "tests/documents/test_typed.py::test_the_readme_is_true_in_a_fresh_environment": "takes a quarter of an hour",
    "tests/unit/agent/coordinate/test_election.py": "searches two million states",
}
"""Marked tests that are in no slice, with the reason."""


@dataclass(frozen=True)
class Turn:
    """The `number`-th of `of` parts into which the nightly is divided."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Turn:
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and int(number) < int(of)):
            raise argparse.ArgumentTypeError(f"{text!r} is no slice; expected K/N with 0 <= K < N, as in 3/12")
        return cls(int(number), int(of))

    def pieces(self) -> list[str]:
        """Those that do not consist of marked tests."""
        return [name for name in PIECES if name not in (*BY_SLICES, *WHOLE_BY_NIGHT)][self.number :: self.of]


ALL = Turn(0, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.rotation", description=__doc__)
    parser.add_argument("--slice", type=Turn.parse, metavar="K/N", help="this part, not the one whose turn it is")
    chosen = parser.parse_args().slice
    commits = history.history(ROOT)
    landed = [*history.landings(commits)]
    turn = chosen or Turn(len(landed) % SLICES, SLICES)
    since = landed[0].name if landed else commits[-1].name
    print(f"== slice {turn.number} of {turn.of}, after {len(landed)} landings; the last is {since[:10]}", flush=True)
    return run(turn, history.changed_tests(ROOT, since), commits[0].name)


def run(turn: Turn, changed: Sequence[str], commit: str) -> int:
    folders = [folder for each in MARKED.values() for folder in each]
    pieces = turn.pieces()
    steps: list[tuple[str, float, Piece]] = [("slice", PIECES_MIN, partial(marked, folders, turn, commit))]
    if changed:
        steps.insert(0, ("changed", SLICE_MIN + PIECES_MIN, partial(marked, changed, ALL, commit)))
    steps += [(name, PIECES_MIN * (1 - at / len(pieces)), PIECES[name]) for at, name in enumerate(pieces, 1)]
    ends = time.monotonic() + 60 * BEGINS_MIN
    results = {name: _in_time(name, (ends - time.monotonic()) / 60 - kept_min, do) for name, kept_min, do in steps}
    for name, seen in results.items():
        print(f"== {name}: {seen.result}: {seen.text}", flush=True)
    return int(not all(seen.passed for seen in results.values()))


def _in_time(name: str, minutes: float, do: Piece) -> PartResult:
    print(f"== {name}", flush=True)
    if minutes < LEAST_MIN:
        return PartResult(True, "not begun: no time was left", whole=False)
    return do(replace(FEWER, minutes=minutes))


def marked(tests: Sequence[str], turn: Turn, commit: str, limits: Limits) -> PartResult:
    """Those of these tests that run by night only. One that fails is tried once more, as by day."""
    select = ["-m", "nightly and not daily", *(f"--deselect={test}" for test in ONLY_BY_NIGHT)]
    environment = {"FAULTS": str(limits.faults), "FAULTS_SEED": str(int(commit[:7], 16)), until.SEED: ""}
    environment |= {**slices.settings(turn.number, turn.of, commit), "DTCTL_NIGHTLY": "1"}
    options = ("-p", "tests.nightly.slices", "--reruns=1", "-raR", "--durations=15", *BESIDE)
    return pytest(limits, sys.executable, *options, *select, *tests, optional=turn == ALL, **environment)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.nightly [PART...]`: the parts of the nightly of that name, or all, one after the other.

`PART:PIECE` runs one piece of a part, as in `lowest:3.10`. The failure of one stops no other. Each part writes its row
of docs/nightly.md when it ends, so a night may be cut short; a piece writes none.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.nightly import running
from tests.nightly.parts import PARTS, PIECES
from tests.nightly.running import Limits, PartResult, Row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PART", help=", ".join(PARTS))
    names = parser.parse_args().names or list(PARTS)
    if unknown := [name for name in names if name not in {**PARTS, **PIECES}]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join({**PARTS, **PIECES})}")
    failed = [name for name in names if not ran(name)]
    print(f"failed: {', '.join(failed)}" if failed else "all of it passed", flush=True)
    return bool(failed)


def ran(name: str) -> bool:
    """Whether the part or the piece has passed."""
    print(f"== {name}", flush=True)
    commit, when, began = running.commit(), time.strftime("%Y-%m-%d %H:%M"), time.monotonic()
    try:
        seen = outcome(name)
    except Exception as error:  # a part that breaks says so in its row, and the others have their turn
        traceback.print_exc()
        seen = PartResult(False, f"broke: {type(error).__name__}: {error}"[:300])
    took = f"{(time.monotonic() - began) / 60:.1f} min"
    if name in PARTS:
        running.write(PARTS, {name: Row(name, seen.result, when, commit, took, seen.text)})
    print(f"== {name}: {seen.result}: {seen.text}", flush=True)
    return seen.passed


def outcome(name: str) -> PartResult:
    limits = Limits.of_environment()
    if name not in PARTS:
        return PIECES[name](limits)
    results = {piece: run(limits) for piece, run in PARTS[name].items()}
    return results[""] if list(results) == [""] else PartResult.of_all(results)


if __name__ == "__main__":
    sys.exit(main())

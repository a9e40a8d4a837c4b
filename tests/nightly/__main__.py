"""`python -m tests.nightly [PART...]`: the parts of the nightly of that name, or all, one after the other.

The failure of one stops no other. Each writes its row of docs/nightly.md when it ends, so a night may be cut short.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.nightly import running
from tests.nightly.parts import PARTS
from tests.nightly.running import PartResult, Row


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PART", help=", ".join(PARTS))
    names = parser.parse_args().names or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    failed = [name for name in names if not ran(name)]
    print(f"failed: {', '.join(failed)}" if failed else "all of it passed", flush=True)
    return bool(failed)


def ran(name: str) -> bool:
    """Whether the part has passed."""
    print(f"== {name}", flush=True)
    commit, when, began = running.commit(), time.strftime("%Y-%m-%d %H:%M"), time.monotonic()
    try:
        seen = PARTS[name]()
    except Exception as error:  # a part that breaks says so in its row, and the others have their turn
        traceback.print_exc()
        seen = PartResult(False, f"broke: {type(error).__name__}: {error}"[:300])
    took = f"{(time.monotonic() - began) / 60:.1f} min"
    row = Row(name, seen.result, when, commit, took, seen.text)
    running.write(PARTS, {name: row})
    print(f"== {name}: {row.result}: {seen.text}", flush=True)
    return seen.passed


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks [NAME...]`: the benchmarks of that name, or all."""

from __future__ import annotations

import argparse
import sys

from benchmarks import (
    coordinator,
    event_files,
    first_step,
    hosts,
    idle,
    lines,
    looking,
    overhead,
    push,
    starting,
    startup,
    ways,
)
from benchmarks.measuring import CannotRun

BENCHMARKS = {
    "startup": startup.run,
    "hosts": hosts.run,
    "starting": starting.run,
    "push": push.run,
    "first_step": first_step.run,
    "overhead": overhead.run,
    "idle": idle.run,
    "coordinator": coordinator.run,
    "ways": ways.run,
    "lines": lines.run,
    "looking": looking.run,
    "events": event_files.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, help="how often each thing is measured; the median counts")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    for name in options.names or BENCHMARKS:
        try:
            BENCHMARKS[name](options.rounds)
        except CannotRun as reason:
            print(f"{name}: skipped: {reason}")
        sys.stdout.flush()


main()

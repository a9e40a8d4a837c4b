"""`python -m benchmarks [NAME...]`: the benchmarks of these names, or all that compare dtctl with peers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import coordinator, delay, first_step, lines, overhead
from benchmarks.measuring import CannotRun
from benchmarks.peers import command, push, report, start, status
from benchmarks.peers.contest import Options
from benchmarks.peers.doing import Environment, peers
from tests.hosts import private_network

BESIDE_PEERS = {
    "command": command.run,
    "start": start.run,
    "start_100": start.run_100,
    "status": status.run,
    "push": push.run,
}
ALONE = {
    "first_step": first_step.run,
    "overhead": overhead.run,
    "coordinator": coordinator.run,
    "lines": lines.run,
    "delay": delay.run,
}
ALL = [*BESIDE_PEERS, *ALONE]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(ALL)}, or all")
    parser.add_argument("--rounds", type=int, help="how often each thing is measured; the median counts")
    parser.add_argument("--hosts", type=int, help=f"how many there are for {', '.join(BESIDE_PEERS)}")
    parser.add_argument("--width", type=int, default=Options.width, help="how many of them the peers reach at once")
    parser.add_argument("--page", type=Path, help="where the tables beside the peers are written, as well as here")
    chosen = parser.parse_args()
    names = ALL if chosen.names == ["all"] else chosen.names or list(BESIDE_PEERS)
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(ALL)}")
    for name in names:
        try:
            if name in ALONE:
                ALONE[name](chosen.rounds)
            else:
                private_network.enter()  # in a namespace where every port is free, if possible
                _beside_peers(name, Options(chosen.rounds or Options.rounds, chosen.hosts, chosen.width), chosen.page)
        except CannotRun as reason:
            print(f"{name}: skipped: {reason}")
        sys.stdout.flush()


def _beside_peers(name: str, options: Options, page: Path | None) -> None:
    environment: Environment = peers()
    begin = report.Circumstances.now()
    print(f"{name}, beside its peers", file=sys.stderr)
    text = report.text(BESIDE_PEERS[name](options, environment), options, environment, begin)
    print(f"\n{text}")
    if page:
        report.write(page, name, text)


main()

"""`python -m benchmarks [NAME...]`: the benchmarks of these names, or all that compare dtctl with peers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import coordinator, dashboard, delay, first_step, lines, observing, overhead
from benchmarks.measuring import CannotRun
from benchmarks.peers import command, push, questions, report, start, status
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
    "observing": observing.run,
    "dashboard": dashboard.run,
}
QUESTIONS = "questions"
ALL = [QUESTIONS, *BESIDE_PEERS, *ALONE]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(ALL)}, or all")
    parser.add_argument("--rounds", type=int, help="how often each thing is measured; the median counts")
    parser.add_argument("--hosts", type=int, help=f"how many there are for {', '.join(BESIDE_PEERS)}")
    parser.add_argument("--width", type=int, default=Options.width, help="how many of them the peers reach at once")
    parser.add_argument("--pages", type=Path, help="the directory of performance.md and costs.md, for the tables")
    chosen = parser.parse_args()
    names = ALL if chosen.names == ["all"] else chosen.names or [QUESTIONS, *BESIDE_PEERS]
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(ALL)}")
    for name in names:
        try:
            if name in ALONE:
                ALONE[name](chosen.rounds)
            else:
                private_network.enter()  # in a namespace where every port is free, if possible
                options = Options(chosen.rounds or Options.rounds, chosen.hosts, chosen.width)
                _write(chosen.pages, name, _answers(options) if name == QUESTIONS else _beside_peers(name, options))
        except CannotRun as reason:
            print(f"{name}: skipped: {reason}")
        sys.stdout.flush()


def _beside_peers(name: str, options: Options) -> str:
    environment: Environment = peers()
    begin = report.Circumstances.now()
    print(f"{name}, beside its peers", file=sys.stderr)
    return report.text(BESIDE_PEERS[name](options, environment), options, environment, begin)


def _answers(options: Options) -> str:
    begin = report.Circumstances.now()
    answers, standings = questions.run(options)
    system = report.machine(begin, questions.NO_PEERS)
    how = f"the shortest of {options.rounds} rounds, on {questions.MANY} hosts of one"
    head = f"{report.measured(begin)}, {how}: {system}. {report.left_out(standings)}"
    return f"{questions.table(answers)}\n\n{head}"


def _write(pages: Path | None, name: str, text: str) -> None:
    print(f"\n{text}")
    if pages:
        report.write(pages / page_of(name), name, text)


def page_of(name: str) -> str:
    return "performance.md" if name == QUESTIONS else "costs.md"


if __name__ == "__main__":
    main()

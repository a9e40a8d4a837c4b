"""A command on every host: `dtctl exec`, and the peers with new connections and with open ones."""

from __future__ import annotations

import functools
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import report
from benchmarks.peers.contest import Course, Options, Report, Standings, compete
from benchmarks.peers.doing import Contender, Environment, Field, all_kept, all_new, dtctl, field
from benchmarks.peers.report import Goal

HOSTS = 30
STEP = "command"
COMMAND = "sh where.sh"
OURS = ("exec", "--home", "--", *COMMAND.split())
TRAINER = 'command: ["true"]'
GOALS = (
    [Goal("dtctl exec", "paramiko", time=1.3, client=1.4, machine=1.2), Goal("dtctl exec", "mitogen", time=1.0)],
    [Goal("dtctl exec, connected", "ssh, connected", time=1.5, client=2.0, machine=2.0)],
)


def run(options: Options, environment: Environment) -> Report:
    hosts = options.hosts or HOSTS
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        with field(hosts, options.width, directory, homes=False) as ground:
            ground.put_script("where.sh", "python3 -c pass")
            ground.servers.write_cluster(TRAINER)
            ours = functools.partial(dtctl, ground, "dtctl exec", {STEP: OURS}, "as it comes")
            new = [ours(), *all_new(ground, environment, {STEP: COMMAND})]
            kept = [ours(), ours(kept=True), *all_kept(ground, environment, {STEP: COMMAND})]
            found = [compete(ground, new, options.rounds, Everywhere(ground))]
            try:
                found.append(compete(ground, kept, options.rounds, Everywhere(ground)))
            finally:
                ground.clients(kept=True).end()
    return _report(hosts, [new, kept], found)


def _report(hosts: int, contenders: Sequence[Sequence[Contender]], found: Sequence[Standings]) -> Report:
    titles = (
        f"`python3 -c pass` on {hosts} hosts, a connection for each",
        f"`python3 -c pass` on {hosts} hosts, over connections that are open",
    )
    sections = [
        report.section(title, some, standings, STEP, goals)
        for title, some, standings, goals in zip(titles, contenders, found, GOALS, strict=True)
    ]
    return Report(hosts, sections, found)


@dataclass(frozen=True)
class Everywhere(Course):
    """Each host must print its own address, once."""

    ground: Field

    def verify(self, contender: Contender, step: str, printed: str) -> str:
        return not_reached(self.ground.hosts, printed)


def not_reached(hosts: Sequence[str], printed: str) -> str:
    """The problem with the printed addresses; empty if each host is there once."""
    told = Counter(re.findall(r"\breached (\d+\.\d+\.\d+\.\d+)\b", printed))
    missing = [host for host in hosts if host not in told]
    wrong = [host for host, times in told.items() if times > 1 or host not in hosts]
    parts = (f"{len(missing)} hosts were not reached", f"{len(wrong)} answered that should not, or twice")
    return ", ".join(part for part, some in zip(parts, (missing, wrong), strict=True) if some)

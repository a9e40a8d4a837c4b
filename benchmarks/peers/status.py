"""The state of a run on 50 hosts, of which `status` queries one, compared with a Python that OpenSSH starts there."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import measure
from benchmarks.peers import report
from benchmarks.peers.contest import Course, Options, Report, compete
from benchmarks.peers.doing import Contender, Environment, Field, dtctl, field
from benchmarks.peers.report import Goal
from benchmarks.peers.start import END, LOOK, OURS, START, TRAINER

HOSTS = 50
ROUNDS = 10
FLOOR = "ssh HOST python3 -c pass"
GOALS = (Goal("dtctl", FLOOR, time=2.0), Goal("dtctl, connected", FLOOR, time=1.0))


def run(options: Options, environment: Environment) -> Report:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        with field(HOSTS, options.width, directory, homes=False) as ground:
            ground.servers.write_cluster(TRAINER)
            floor: list[str | Path] = ["ssh", "-F", ground.ssh_config(kept=False), ground.hosts[0], "python3 -c pass"]
            contenders = [Contender(FLOOR, "a connection for each", {LOOK: floor}, ground.env())]
            found = []
            for kept in (False, True):
                ours = dtctl(ground, "dtctl", OURS, "as it comes", kept=kept)
                only_status = Contender(ours.name, ours.how, {LOOK: ours.steps[LOOK]}, ours.env, ours=True, kept=kept)
                contenders.append(only_status)
                measure(ours.steps[START], cwd=directory, env=ours.env)
                both = [only_status, *contenders[: 1 - kept]]
                found.append(compete(ground, both, max(options.rounds, ROUNDS), _Shown(ground)))
                measure(ours.steps[END], cwd=directory, env=ours.env)
            ground.clients(kept=True).end()
    found[0].taken.update(found[1].taken)
    title = f"`status` of a run on {HOSTS} hosts"
    return Report(HOSTS, [report.section(title, contenders, found[0], LOOK, GOALS)], found)


@dataclass(frozen=True)
class _Shown(Course):
    ground: Field

    def verify(self, contender: Contender, step: str, printed: str) -> str:
        shown = printed.count(" running ")
        return f"{shown} tasks are shown as running" if contender.ours and shown != len(self.ground.hosts) else ""

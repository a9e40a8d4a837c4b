"""A process on every host: started so that it outlives the connection, queried, and ended with all that it left."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.measuring import DTCTL, measure
from benchmarks.peers import report
from benchmarks.peers.command import not_reached
from benchmarks.peers.contest import Course, Options, Report, compete
from benchmarks.peers.doing import Contender, Environment, Field, dtctl, field, library, openssh
from benchmarks.peers.report import Goal

HOSTS = 30
TRAINER = 'command: [sleep, "3600"], dialect: none'
PROCESS = "sleep 3600"

START, LOOK, END = "start", "look", "end"
SCRIPTS = {
    START: f"nohup {PROCESS} >log.$3 2>&1 </dev/null & echo $! >pid.$3",
    LOOK: "kill -0 $(cat pid.$3) || exit 1",
    END: "kill $(cat pid.$3); while kill -0 $(cat pid.$3) 2>/dev/null; do sleep 0.05; done; rm log.$3 pid.$3",
}
COMMANDS = {step: f"sh {step}.sh" for step in SCRIPTS}
FLOOR = "(python3 -c pass)"
OURS = {START: ("up", "-q"), LOOK: ("status",), END: ("down", "-y")}
GOALS = {
    START: [Goal("dtctl", FLOOR, time=1.5, client=1.5, machine=2.0)],
    LOOK: [Goal("dtctl", None, time=1.0)],
    END: [Goal("dtctl", None, time=1.2, machine=1.8)],
}
CLIENT_MS = 12
"""The client's CPU time for each host of an `up`."""


def run(options: Options, environment: Environment) -> Report:
    hosts = options.hosts or HOSTS
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        with field(hosts, options.width, directory, homes=False) as ground:
            for step, does in {**SCRIPTS, "nothing": "python3 -c pass"}.items():
                ground.put_script(f"{step}.sh", does)
            ground.servers.write_cluster(TRAINER)
            for words in (OURS[START], OURS[END]):  # from here on the hosts have the code and the agent
                measure([*DTCTL, *words], cwd=directory, env=ground.servers.env)
            contenders = _contenders(ground, environment)
            standings = compete(ground, contenders, options.rounds, Cycle(ground))
    titles = {
        START: f"Start a process on {hosts} hosts",
        LOOK: f"Query the processes on {hosts} hosts",
        END: f"Stop the processes on {hosts} hosts, and clean up",
    }
    sections = [report.section(title, contenders, standings, step, GOALS[step]) for step, title in titles.items()]
    client_ms = 1000 * standings.medians(START)["dtctl"].client_s / hosts
    sections.append(f"`up` takes {client_ms:.0f} ms of the client's CPU a host (goal {CLIENT_MS}).")
    return Report(hosts, sections, [standings])


def run_100(options: Options, environment: Environment) -> Report:
    """The same on 100 hosts: the cost of each further host, as a command's own cost is then small."""
    return run(replace(options, hosts=100, rounds=1), environment)


def _contenders(ground: Field, environment: Environment) -> list[Contender]:
    ours = functools.partial(dtctl, ground, "dtctl", OURS, "`up`, `status`, `down`, as they come")
    return [
        ours(),
        ours(kept=True),
        library(ground, environment, "paramiko", COMMANDS, f"{ground.width} threads"),
        _floor(ground, environment),
        library(ground, environment, "asyncssh", COMMANDS, f"{ground.width} at once"),
        *(peer for peer in openssh(ground, environment, COMMANDS, kept=False) if peer.name == "clush"),
        *(peer for peer in openssh(ground, environment, COMMANDS, kept=True) if peer.name.startswith("ssh")),
    ]


def _floor(ground: Field, environment: Environment) -> Contender:
    """A Python on every host that does nothing: the least that a tool with a program of its own there needs."""
    commands = dict.fromkeys(COMMANDS, "sh nothing.sh")
    floor = library(ground, environment, "paramiko", commands, "`python3 -c pass` in place of each step")
    return replace(floor, name=FLOOR)


@dataclass(frozen=True)
class Cycle(Course):
    """Starts, queries and ends the processes of every host."""

    ground: Field

    def verify(self, contender: Contender, step: str, printed: str) -> str:
        found = self.ground.servers.sshd.processes().count(PROCESS)
        wanted = 0 if step == END or contender.name == FLOOR else len(self.ground.hosts)
        if found != wanted:
            return f"{found} processes run where {wanted} should"
        if not contender.ours:
            return not_reached(self.ground.hosts, printed)
        told = printed.count("running")
        return f"{told} of {wanted} are shown as running" if step == LOOK and told < wanted else ""

    def finish(self, contender: Contender) -> None:
        """Closes connections that were kept open for the next step."""
        self.ground.clients(kept=True).end()

"""What a user asks before choosing dtctl, with sshd and ssh as they come, beside the same by hand."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.measuring import DTCTL, CannotRun, measure
from benchmarks.peers import push, start
from benchmarks.peers.contest import Course, Options, Standings, compete
from benchmarks.peers.doing import Contender, Environment, Field, dtctl, field, openssh
from benchmarks.processes import cpu_s, memory_mb

FEW, MANY = 10, 100
WATCHED_S = 20.0
"""How long the agents of a run are watched."""
NO_PEERS = Environment(None, "not asked here")
AS_IT_COMES: Mapping[str, str] = {}
"""No option of sshd: its own choice of the key exchange."""


@dataclass(frozen=True)
class Answer:
    """One question, and what was seen for dtctl and by hand; None if it was not measured."""

    question: str
    by_hand: str
    ours: Sequence[str | None]
    """On FEW hosts, on MANY."""
    others: Sequence[str | None]

    def row(self) -> str:
        cells = [cell or "-" for pair in zip(self.ours, self.others, strict=True) for cell in pair]
        return f"| {self.question} | {' | '.join(cells)} | {self.by_hand} |"


def table(answers: Sequence[Answer]) -> str:
    """``| question | 10 hosts | by hand | 100 hosts | by hand | by hand means |``"""
    head = f"| | {FEW} hosts | by hand | {MANY} hosts | by hand | by hand means |"
    return "\n".join([head, "|---|---|---|---|---|---|", *(answer.row() for answer in answers)])


def run(options: Options) -> tuple[Sequence[Answer], Sequence[Standings]]:
    few, few_cost = _processes(FEW, options)
    many, many_cost = _processes(MANY, replace(options, rounds=1))
    code = _code(replace(options, hosts=FEW))
    return list(_answers(few, many, code, few_cost, many_cost)), [few, many, code]


@dataclass(frozen=True)
class Cost:
    """What the agents of a run take on each host while its tasks run."""

    share: float
    """Of one core."""
    memory_mb: float


def _answers(few: Standings, many: Standings, code: Standings, few_cost: Cost, many_cost: Cost) -> Iterator[Answer]:
    for question, by_hand, step in (
        ("How long does `up` take? (a program without a port, whose start `up` watches for a second)",
         "`ssh HOST nohup ... &`, 24 at once", start.START),
        ("`status`?", "`ssh HOST kill -0 PID`", start.LOOK),
        ("`down`?", "`ssh HOST kill PID`, and wait for its end", start.END),
    ):  # fmt: skip
        runs = [standings.shortest_s(step) for standings in (few, many)]
        yield Answer(question, by_hand, *([f"{one[name]:.1f} s" for one in runs] for name in ("dtctl", "ssh")))
    for question, step in (
        (f"How fast does code arrive? ({push.BYTES / 1e6:.0f} MB in {push.FILES} files, nothing there yet)", push.COLD),
        ("One file of them changed?", push.AGAIN),
    ):
        taken = code.shortest_s(step)
        pairs = ([f"{taken[name]:.1f} s", None] for name in ("dtctl push", "rsync"))
        yield Answer(question, "`rsync -az`, 24 at once", *pairs)
    costs = [f"{100 * cost.share:.2f} % of a core, {cost.memory_mb:.0f} MB" for cost in (few_cost, many_cost)]
    yield Answer("What does it cost on a host while it trains?", "nothing but the program", costs, ["0", "0"])


def _processes(hosts: int, options: Options) -> tuple[Standings, Cost]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        with field(hosts, options.width, directory, homes=False, options=AS_IT_COMES) as ground:
            for step, does in start.SCRIPTS.items():
                ground.put_script(f"{step}.sh", does)
            ground.servers.write_cluster(start.TRAINER)
            up, down = ([*DTCTL, *start.OURS[step]] for step in (start.START, start.END))
            measure(up, cwd=directory, env=ground.servers.env)
            cost = _cost(ground)
            measure(down, cwd=directory, env=ground.servers.env)
            contenders = [dtctl(ground, "dtctl", start.OURS, "as it comes"), _ssh(ground)]
            return compete(ground, contenders, options.rounds, start.Cycle(ground)), cost


def _ssh(ground: Field) -> Contender:
    return next(one for one in openssh(ground, NO_PEERS, start.COMMANDS, kept=False) if one.name == "ssh")


def _cost(ground: Field) -> Cost:
    """Of what dtctl left on the hosts, once all has settled, for each host."""
    time.sleep(3)
    pids = list(_left_by_dtctl(ground.servers.sshd.init))
    if len(pids) < len(ground.hosts):
        raise CannotRun(f"{len(pids)} processes of dtctl were found on {len(ground.hosts)} hosts")
    before, begin = sum(map(cpu_s, pids)), time.monotonic()
    time.sleep(WATCHED_S)
    share = (sum(map(cpu_s, pids)) - before) / (time.monotonic() - begin)
    memory = sum(memory_mb(pid)[1] for pid in pids)
    return Cost(share / len(ground.hosts), memory / len(ground.hosts))


def _left_by_dtctl(init: int) -> Iterator[int]:
    """Processes in the namespace of the hosts that are neither the trainers nor sshd."""
    namespace = os.readlink(f"/proc/{init}/ns/pid")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            of_hosts = os.readlink(process / "ns/pid") == namespace and int(process.name) != init
            if of_hosts and words and not words.startswith(("sshd", "/usr/sbin/sshd", start.PROCESS)):
                yield int(process.name)
        except OSError:
            continue


def _code(options: Options) -> Standings:
    hosts = options.hosts or FEW
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        with field(hosts, options.width, directory, homes=True, options=AS_IT_COMES) as ground:
            push.write_tree(directory / "code", push.BYTES)
            ground.servers.write_cluster('command: ["true"]')
            contenders = [one for one in push.contenders(ground, NO_PEERS) if one.name in ("dtctl push", "rsync")]
            course: Course = push.Tree(ground)
            return compete(ground, contenders, options.rounds, course)

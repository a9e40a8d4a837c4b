"""Where commands are tried on hosts that lie: homes with things to steal, liars, and who runs the commands."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dtctl.config import load_cluster
from dtctl.errors import ExitCode
from dtctl.operations.history.record import RunRecord, record_of
from dtctl.operations.history.store import write_record
from dtctl.plan.roster import plan_roster
from tests.hostile.commander import WAY
from tests.hostile.commands import Spoken
from tests.hostile.host_answers import CREATED, RUN
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
MOST_MEMORY_MB = 400
MOST_AT_ONCE = 30
CLUSTER = """\
name: demo
ssh: {{{ssh}}}
hosts: {{{hosts}}}
spares: [c]
jobs: {{worker: {{hosts: [a, b]}}}}
trainer: {{command: [python, train.py], dialect: none}}
grace: 500ms
"""
ADDRESSES = {"a": "192.0.2.1", "b": "192.0.2.2", "c": "192.0.2.3"}
PORT = 2222
"""Of their tasks: `check` looks whether that is open to this machine, and tries nothing else."""
OWN = re.compile(
    r"\.(cache/dtctl/.+|local/state/dtctl/(runs/demo-[A-Za-z0-9.-]+\.json|current|places/.+\.json))|"
    r"project/pulled/(\.[^/]+\.part/)?(arrived|checkpoint|[^/]+\.(index|data-[0-9]{5}-of-[0-9]{5}))|"
    r"project/(demo-1|report)\.html|project/saved/worker-[01]\.attempt-[0-9]+\.log"
)
"""Files of a home that dtctl may write: its own, of runs of this cluster, and what it is to bring or to report."""

GIVEN_UP = (" has been silent for ", " did not finish its answer within ")

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass(frozen=True)
class Done:
    """How a command has ended, and what it has done besides."""

    spoken: Spoken
    code: int
    seconds: float
    interrupted: bool
    killed: bool
    memory_mb: float
    output: str
    errors: str
    dialled: str
    touched: tuple[str, ...]

    def wrongs(self) -> list[str]:
        """What no lie may bring about."""
        shown = COLOURS.sub("", self.output + self.errors)
        found = {
            "a traceback": "Traceback" in shown,
            f"exit code {self.code}": self.code not in self.spoken.codes(self.interrupted),
            "no end": self.killed or (self.interrupted and not self.spoken.endless),
            f"control characters {CONTROLS.findall(shown)[:5]}": not self.spoken.passes_bytes_on
            and CONTROLS.search(shown) is not None,
            f"a connection or a program: {self.dialled[:300]}": bool(self.dialled),
            f"files touched: {self.touched}": bool(self.touched),
            f"{self.memory_mb:.0f} MB of memory": self.memory_mb > MOST_MEMORY_MB,
        }
        return [what for what, is_so in found.items() if is_so]

    def has_to_show(self) -> bool:
        """What the other host says: `None tells something else` is about that one where the liar was believed."""
        believed = "than what is believed" in self.errors or "has another run than" in self.errors
        shows = self.spoken.shows and not self.interrupted
        return shows or (self.spoken.partly and self.code == ExitCode.PARTIAL and not believed)

    def ran_out_of_time(self, other: str) -> bool:
        """As on a machine that is busy: it was given up, or `other`, the host that tells the truth."""
        late = self.interrupted and not self.spoken.endless
        return late or self.killed or "did not answer within" in self.errors or self._waited_in_vain(other)

    def _waited_in_vain(self, host: str) -> bool:
        ends = [line.partition(end) for line in self.errors.splitlines() for end in GIVEN_UP]
        return any(end and re.search(rf"\b{host}\b", whose) for whose, end, _ in ends)

    def __str__(self) -> str:
        begin = self.errors.find("Traceback")
        said = self.errors[-1500:] if begin < 0 else self.errors[begin:][:6000]
        return f"dtctl {' '.join(self.spoken.words)}: exit {self.code} after {self.seconds:.1f} s\n{said}"


class Home:
    """A user's home with a project, two earlier runs, and files that a liar would like to have written to."""

    def __init__(self, path: Path, ssh: str, hosts: str) -> None:
        self.path = path
        self.project = path / "project"
        self.project.mkdir(parents=True)
        (path / ".ssh").mkdir(mode=0o700)
        for name in (".bashrc", ".profile", ".ssh/authorized_keys", ".ssh/known_hosts", "victim", "victim.json"):
            (path / name).touch()
        (self.project / "train.py").write_text("print('never run')\n")
        (self.project / "cluster.yaml").write_text(CLUSTER.format(ssh=ssh, hosts=hosts))
        self._remember()

    def _remember(self) -> None:
        record = record_of(plan_roster(load_cluster(self.project / "cluster.yaml")))
        self.ways = {**record.hosts, **record.others}
        state = self.path / ".local" / "state" / "dtctl"
        (state / "runs").mkdir(parents=True)
        for directory in (state.parent.parent, state.parent, state, state / "runs"):
            directory.chmod(0o700)
        for run, created in ((RUN, CREATED), ("demo-0", 500.0), ("other-1", 400.0)):
            own: RunRecord = dataclasses.replace(record, run=run, created=created, cluster=run[:-2])
            write_record(state / "runs" / f"{run}.json", own)
        (state / "current").write_text(f"{RUN}\n")
        (state / "victim.json").write_text("{}")

    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": "160", "USER": "desk"}


def files_of(home: Path, other_texts: Mapping[str, str]) -> dict[str, bytes]:
    """What they hold, as if every home had the same path and texts."""
    found = {}
    for path in home.rglob("*"):
        if path.is_file():
            data = path.read_bytes().replace(str(home).encode(), b"~")
            for old, new in other_texts.items():
                data = data.replace(new.encode(), old.encode())
            found[str(path.relative_to(home))] = data
    return found


class Bench:
    """Commands on hosts as `ssh` and `hosts` of the cluster file say, or behind `sockets`.

    `address` gives that of a host with a lie of this number, where it is not what `hosts` has: the one without any lie.
    """

    def __init__(
        self,
        directory: Path,
        ssh: str,
        hosts: str,
        *,
        sockets: Path | None = None,
        address: Callable[[str, int], str] | None = None,
        factor: float = 1 / 15,
        width: int = 12,
    ) -> None:
        self._directory = directory
        self._sockets = sockets
        self._address = address
        self._template = Home(directory / "home", ssh, hosts)
        self._before = files_of(self._template.path, {})
        self._numbers = itertools.count()
        self._jobs: dict[int, tuple[Spoken, Mapping[str, int], dict[str, Any]]] = {}
        self._waiting: deque[int] = deque()
        self._ended: list[tuple[Mapping[str, int], Done]] = []
        self._commander = _program("tests.hostile.commander", str(factor), str(width))

    def close(self) -> None:
        _end(self._commander)

    def begin(self, pairs: Iterable[tuple[Spoken, Mapping[str, int]]]) -> None:
        """Tries commands side by side, each in a home of its own. `pairs`: host -> number of its lie, 0 for none."""
        for spoken, lies in pairs:
            number = next(self._numbers)
            self._jobs[number] = spoken, lies, self._job(number, spoken, lies)
            self._waiting.append(number)
        self._feed()

    def _feed(self) -> None:
        """Hands on as many as are told of in less than a pipe holds: else both sides would wait to be read."""
        assert self._commander.stdin is not None
        while self._waiting and len(self._jobs) - len(self._waiting) < MOST_AT_ONCE:
            job = self._jobs[self._waiting.popleft()][2]
            self._commander.stdin.write(json.dumps(job).encode() + b"\n")
        self._commander.stdin.flush()

    def ended(self, lies: Mapping[str, int]) -> list[Done]:
        """All that were begun with these lies; those that still wait have their turn now."""
        assert self._commander.stdout is not None
        self._waiting = deque(sorted(self._waiting, key=lambda number: self._jobs[number][1] != lies))
        while any(others == lies for _, others, _ in self._jobs.values()):
            told = json.loads(self._commander.stdout.readline())
            spoken, others, job = self._jobs.pop(told.pop("id"))
            self._feed()
            self._ended.append((others, self._done(spoken, job, told)))
        return [done for others, done in self._ended if others == lies]

    def ended_again(self, done: Done, lies: Mapping[str, int]) -> Done:
        """The command is tried once more."""
        self._ended = [(others, one) for others, one in self._ended if one is not done]
        before = [one for others, one in self._ended if others == lies]
        self.begin([(done.spoken, lies)])
        return next(one for one in self.ended(lies) if all(one is not other for other in before))

    def _job(self, number: int, spoken: Spoken, lies: Mapping[str, int]) -> dict[str, Any]:
        place = self._directory / str(number)
        home = place / "home"
        place.mkdir()
        texts = (
            {self._address(host, 0): self._address(host, lie) for host, lie in lies.items()} if self._address else {}
        )
        ways = {
            name: {field: getattr(host.reach, field) for field in WAY}
            for name, host in self._template.ways.items()
            if not host.is_local
        }
        return {
            "id": number, "template": str(self._template.path), "words": spoken.words,
            "patience_s": spoken.patience_s(), "cwd": str(home / "project"),
            "env": {**self._template.environment(), "HOME": str(home)}, "lies": lies, "ways": ways,
            "stdout": str(place / "stdout"), "stderr": str(place / "stderr"), "dialled": str(place / "dialled"),
            "sockets": str(self._sockets) if self._sockets else None, "other_texts": texts,
            "addresses": list(texts.values()),
            "doors": [[address, PORT] for address in ADDRESSES.values()] if "check" in spoken.words[:1] else [],
        }  # fmt: skip

    def _done(self, spoken: Spoken, job: dict[str, Any], told: dict[str, Any]) -> Done:
        place = Path(job["stdout"]).parent
        home = Path(job["env"]["HOME"])
        before, after = self._before, files_of(home, job["other_texts"])
        differ = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        told.pop("cpu_s")
        done = Done(
            spoken=spoken,
            output=(place / "stdout").read_text("utf-8", "replace"),
            errors=(place / "stderr").read_text("utf-8", "replace"),
            dialled=(place / "dialled").read_text() if (place / "dialled").exists() else "",
            touched=tuple(sorted(name for name in differ if not OWN.fullmatch(name))),
            **told,
        )
        shutil.rmtree(place)
        return done


class Liars:
    """All lies behind sockets; `directory` has room for short paths."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._server = _program("tests.hostile.lying_host", "--serve", str(directory))

    def close(self) -> None:
        _end(self._server)


def _program(module: str, *words: str) -> subprocess.Popen[bytes]:
    """Started, and ready."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    made = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert made.stdout is not None
    assert b"ready" in made.stdout.readline()
    return made


def _end(program: subprocess.Popen[bytes]) -> None:
    for stream in (program.stdin, program.stdout):
        with suppress(OSError):
            assert stream is not None
            stream.close()
    program.wait(PATIENCE_S)

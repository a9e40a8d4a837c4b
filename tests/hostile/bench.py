"""Where commands are tried on lying hosts: homes with files to steal, liars, and the processes of the commands."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path

from dtctl.config.load import load_cluster
from dtctl.errors import ExitCode
from dtctl.operations.record_files import write_record
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.plan import plan_roster
from tests import of_rooms
from tests.hostile.commander import WAY
from tests.hostile.commands import Spoken
from tests.hostile.host_answers import CREATED, RUN
from tests.waiting import PATIENCE_S
from tests.warm import Warm

Lies = Mapping[str, int]
"""Host -> number of its lie, 0 for none."""

ROOT = Path(__file__).parents[2]
MOST_MEMORY_MB = 400
LONGEST_S = 30.0
"""The time until Ctrl-C for a command that should end by itself."""

SECOND_FACTOR = 1 / 3
"""The fraction of all time limits for a second try."""

GRACE_S = 20.0
"""The time for a command to end after Ctrl-C, on a busy machine."""
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
"""The port of their tasks: `check` tests whether it is open to this machine, and nothing else."""
OWN = re.compile(
    "|".join(
        [
            r"\.(cache/dtctl/.+|local/state/dtctl/(runs/demo-[A-Za-z0-9.-]+\.(json|code|key)|current|(places|failed_starts)/.+\.json))|"
            r"project/saved/worker-[01]\.attempt-[0-9]+\.log",
            *of_rooms.rows("OWN"),
        ]
    )
)
"""Files of a home that dtctl may write: its own, those of runs of this cluster, and the requested ones."""

GIVEN_UP = (" has been silent for ", " did not finish its answer within ")

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass(frozen=True)
class Done:
    """How a command has ended, and its side effects."""

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
        """Effects that no lie may have."""
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
        """Whether the other host's answer must be shown.

        After `None tells something else`, only if the liar is not accepted.
        """
        accepted = "disagrees with the other hosts about run" in self.errors or "has another run than" in self.errors
        shows = self.spoken.shows and not self.interrupted
        return shows or (self.spoken.partly and self.code == ExitCode.PARTIAL and not accepted)

    def ran_out_of_time(self, other: str) -> bool:
        """Whether a time limit has expired, as on a busy machine: the command's, or that of the truthful `other`."""
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
    """A user's home with a project, two earlier runs, and files that a liar would like to overwrite."""

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
    """The contents of its files, as if every home had the same path and texts."""
    found = {}
    for path in home.rglob("*"):
        if path.is_file():
            data = path.read_bytes().replace(str(home).encode(), b"~")
            for old, new in other_texts.items():
                data = data.replace(new.encode(), old.encode())
            found[str(path.relative_to(home))] = data
    return found


class Bench:
    """Runs commands on hosts as in `ssh` and `hosts` of the cluster file, or behind `sockets`.

    `address` returns the address of a host with a lie of this number, if it is not the one in `hosts`, which tells no
    lie. `factor` scales all time limits, and `width` commands run at the same time. Those that do not end by themselves
    are interrupted after `endless_s`.
    """

    def __init__(
        self,
        directory: Path,
        ssh: str,
        hosts: str,
        *,
        sockets: Path | None = None,
        address: Callable[[str, int], str] = lambda host, lie: host,
        factor: float = 1 / 15,
        width: int = 12,
        endless_s: float = 2.0,
    ) -> None:
        self._directory = directory
        self._sockets = sockets
        self._address = address
        self._template = Home(directory / "home", ssh, hosts)
        self._before = files_of(self._template.path, {})
        self._endless_s = endless_s
        self._numbers = itertools.count()
        self._jobs: list[tuple[Lies, Future[Done]]] = []
        self._pool = ThreadPoolExecutor(width)
        self._factor = factor
        self._closing = ExitStack()
        self._warm = self._with(factor)

    def _with(self, factor: float) -> Warm:
        made = Warm({**os.environ, "PYTHONPATH": str(ROOT)}, "tests.hostile.commander", str(factor))
        return self._closing.enter_context(closing(made))

    @cached_property
    def _patient(self) -> Warm:
        return self._with(max(self._factor, SECOND_FACTOR))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._closing.close()

    def begin(self, pairs: Iterable[tuple[Spoken, Lies]]) -> None:
        """Starts commands in parallel, each in a home of its own."""
        self._jobs += [(lies, self._pool.submit(self._try, spoken, lies)) for spoken, lies in pairs]

    def ended(self, lies: Lies) -> list[Done]:
        """The results of all commands that were started with these lies."""
        return [job.result() for others, job in self._jobs if others == lies]

    def ended_again(self, done: Done, lies: Lies) -> Done:
        """The command is tried once more, with more time."""
        return self._try(done.spoken, lies, patient=True)

    def _try(self, spoken: Spoken, lies: Lies, *, patient: bool = False) -> Done:
        place = self._directory / str(next(self._numbers))
        home, dialled, temporary = place / "home", place / "dialled", place / "temporary"
        texts = {self._address(host, 0): self._address(host, lie) for host, lie in lies.items()}
        self._settle(home, texts)
        temporary.mkdir()
        own = {"HOME": str(home), "TMPDIR": str(temporary)}
        ways = {
            name: {field: getattr(host.reach, field) for field in WAY}
            for name, host in self._template.ways.items()
            if not host.is_local
        }
        out, err = ((place / name).open("wb") for name in ("stdout", "stderr"))
        with out, err:
            began = time.monotonic()
            started = (self._patient if patient else self._warm).start(
                spoken.words, home / "project", {**self._template.environment(), **own},
                os.dup(out.fileno()), os.dup(err.fileno()), lies=lies, ways=ways, dialled=str(dialled),
                sockets=str(self._sockets or ""), addresses=list(texts.values()),
                doors=[[address, PORT] for address in ADDRESSES.values()] if "check" in spoken.words[:1] else [],
            )  # fmt: skip
        interrupted = not started.has_ended(self._endless_s if spoken.endless else LONGEST_S * (1 + patient))
        killed = interrupted and not started.has_ended_after(signal.SIGINT, GRACE_S)
        if killed:
            started.has_ended_after(signal.SIGKILL, GRACE_S)
        code, memory_mb = started.end()
        after = files_of(home, texts)
        differ = {name for name in self._before.keys() | after.keys() if self._before.get(name) != after.get(name)}
        left = [] if killed else [f"$TMPDIR/{path.name}" for path in temporary.iterdir()]
        done = Done(
            spoken=spoken,
            code=code,
            seconds=time.monotonic() - began,
            interrupted=interrupted,
            killed=killed,
            memory_mb=memory_mb,
            output=(place / "stdout").read_text("utf-8", "replace"),
            errors=(place / "stderr").read_text("utf-8", "replace"),
            dialled=dialled.read_text() if dialled.exists() else "",
            touched=tuple(sorted([*(name for name in differ if not OWN.fullmatch(name)), *left])),
        )
        shutil.rmtree(place)
        return done

    def _settle(self, home: Path, texts: Mapping[str, str]) -> None:
        """Makes a home as the template, except its path, and these texts in the cluster file and the run records."""
        shutil.copytree(self._template.path, home)
        for file in (home / "project" / "cluster.yaml", *(home / ".local" / "state" / "dtctl" / "runs").iterdir()):
            text = file.read_text()
            for old, new in {str(self._template.path): str(home), **texts}.items():
                text = text.replace(old, new)
            file.write_text(text)


@contextmanager
def liars() -> Iterator[Path]:
    """The directory of the sockets behind which all lies are."""
    with tempfile.TemporaryDirectory(prefix="liars") as directory:  # sockets need short paths
        words = [sys.executable, "-m", "tests.hostile.lying_host", "--serve", directory]
        with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert b"ready" in server.stdout.readline()
            yield Path(directory)
            server.communicate(timeout=PATIENCE_S)

"""A host where a run trains, and another user of it."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dtctl.agent.host.ports import taken
from dtctl.agent.link.dialer import Dialer
from dtctl.agent.link.tls import Identity
from tests.agent.link.intruder import Intruder
from tests.desk import CLUSTER, Desk
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("neighbour.py")
CHECKPOINT = Path(__file__).parents[1] / "agent/data/checkpoints/tf1_plain"
SECRET, SETUP = "the-token-of-the-user", "the-setup-of-the-user"
LEAD, OTHER = "node-1", "node-2"
QUESTIONS = ("status", "logs -n 5", "checkpoints -o json", "events -n 20")


class Deed:
    """The other user's deed."""

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), name],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin
        self._process.stdin.write(json.dumps(facts) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """The next message of the deed."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the neighbour could not do it"
        return json.loads(line)

    def end(self) -> Any:
        """Ends the deed and returns its result."""
        assert self._process.stdin
        self._process.stdin.close()
        said = self.hear()
        assert self._process.wait(PATIENCE_S) == 0
        return said

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()


@contextmanager
def doing(name: str, **facts: Any) -> Iterator[Deed]:
    deed = Deed(name, facts)
    try:
        yield deed
    finally:
        deed.close()


@contextmanager
def open_home() -> Iterator[Path]:
    """A home that every user can list, as in /home: the directories of pytest are closed to others."""
    made = Path(tempfile.mkdtemp(prefix="neighbourhood-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def ports() -> tuple[int, int, int]:
    """Free ports of the coordinator, the ps and the first worker, with a free one for the second.

    The kernel does not assign them.
    """
    while True:
        first = random.randrange(21_000, 32_000)
        if not any(taken(port) for port in range(first, first + 4)):
            return first, first + 1, first + 2


class SharedHost:
    """A desk whose run writes its checkpoints into a directory that all users share, as in teams."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.desk = Desk(place / "home")
        self.output, self.temporary = place / "output", place / "tmp"
        for shared in (self.output, self.temporary):
            shared.mkdir()
            shared.chmod(0o1777)
        for path in CHECKPOINT.glob("model.ckpt-100.*"):
            shutil.copy(path, self.output)
            os.utime(self.output / path.name, (1e9, 1e9))
        self.genuine = names(self.output)
        self.victim = self.desk.home / "victim"
        self.victim.write_text("the user's own\n")
        self.port, self.ps_port, self.worker_port = ports()
        settings = {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary), "TOKEN": SECRET}
        self.desk.env.update(settings)
        self._write()
        self.credentials = place / "credentials"
        self.seen: list[str] = []
        """The command lines of all processes while it was started."""

    def _write(self) -> None:
        file = self.desk.write_cluster(CLUSTER)
        text = file.read_text().replace("max_restarts: 2", "max_restarts: 1000")
        text = text.replace('"node-[1-2]"}', f'"node-[1-2]", port: {self.worker_port}}}')
        text = text.replace("[node-1]}", f"[node-1], port: {self.ps_port}}}")
        text = text.replace("dialect: flags", f"dialect: flags, setup: sleep 0.5; true {SETUP}, secrets: [TOKEN]")
        file.write_text(f"{text}coordinator: {{port: {self.port}}}\ncheckpoint: {{dir: {self.output}}}\n")

    def up(self) -> None:
        self.desk.dtctl("up", "--local")
        eventually(lambda: set(self.desk.states().values()) == {"running"}, PATIENCE_S, "the run to train")
        self.credentials = self.directory(OTHER)
        self.port = json.loads((self.credentials / "spec.json").read_text())["coordinator"]["port"]

    def directory(self, host: str) -> Path:
        [found] = self.desk.home.glob(f".dtctl/runs/*/{host}")
        return found

    # Progress

    def steps(self) -> dict[str, int]:
        """The number of lines that each task has printed."""
        logs = self.desk.home.glob(".dtctl/runs/*/*/tasks/*/attempt-*/log")
        counted: dict[str, int] = {}
        for log in logs:
            task = log.parts[-3]
            counted[task] = counted.get(task, 0) + log.read_bytes().count(b"\n")
        return counted

    def trains_on(self) -> None:
        """Whether every task takes further steps."""
        before = self.steps()
        eventually(lambda: all(now > before[task] for task, now in self.steps().items()), what="every task to go on")

    def answers(self) -> dict[str, str]:
        """dtctl's answers to all queries, made at once."""
        with ThreadPoolExecutor(len(QUESTIONS)) as asking:
            done = asking.map(lambda words: self.desk.run(*words.split(), timeout_s=PATIENCE_S), QUESTIONS)
        found = {}
        for words, each in zip(QUESTIONS, done, strict=True):
            assert each.returncode == 0, f"{words}: {each.stderr}"
            assert "Traceback" not in each.stderr
            found[words.split()[0]] = each.stdout
        return found

    def story(self) -> list[str]:
        reported = json.loads(self.desk.dtctl("events", "-o", "json"))["events"]
        return [str(one.get("reason")) for one in reported]

    def supervisor(self, host: str) -> int:
        return int(json.loads((self.directory(host) / "state.json").read_text())["agent"]["pid"])

    def untouched(self) -> dict[str, tuple[int, int]]:
        """Size and time of all files outside of dtctl's own directories, which it may only read."""
        own = {self.desk.home / name for name in (".dtctl", ".local", ".cache")}
        found = {}
        for top, directories, files in os.walk(self.desk.home):
            directories[:] = [name for name in directories if Path(top, name) not in own]
            for path in (Path(top, name) for name in [*files, *directories]):
                found[str(path)] = (path.lstat().st_size, path.lstat().st_mtime_ns)
        passwords = Path("/etc/shadow").stat()
        return {**found, "/etc/shadow": (passwords.st_size, passwords.st_mtime_ns)}

    def sweep(self) -> None:
        """Removes the files that the neighbour has left next to the checkpoints."""
        for entry in list(os.scandir(self.output)):
            if entry.name not in self.genuine:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    Path(entry.path).unlink()

    # Agents

    def token_proof(self) -> bytes:
        """A message that was valid once, as a listener on the network may have recorded it."""
        agent = Intruder(self.port)
        try:
            return agent.prove_token(self.credentials)
        finally:
            agent.close()

    def dial_s(self) -> float:
        """The seconds from an agent's first attempt until both ends are authenticated."""
        began = time.monotonic()
        identity = Identity(str(self.credentials), self.credentials.parent.name)
        dialer = Dialer(f"127.0.0.1:{self.port}", LEAD, identity, began, random.random)
        try:
            while not dialer.connected:
                assert time.monotonic() < began + PATIENCE_S, "it cannot connect"
                due = dialer.due()
                timeout_s = None if due is None else max(due - time.monotonic(), 0)
                select.select(dialer.readers(), dialer.writers(), [], timeout_s)
                dialer.step(time.monotonic())
            return time.monotonic() - began
        finally:
            dialer.close()

    def connected(self) -> bool:
        return all(host["connected"] for host in self.desk.status()["hosts"])

"""The cost of a command: its time, its and its background processes' CPU and memory, and the CPU of the hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import cpu_s, cpu_with_children_s, memory_mb


@dataclass(frozen=True)
class Clients:
    mark: str
    """NAME=VALUE in their environment."""
    title: str = ""
    """A prefix of the names of OpenSSH's processes for kept connections, which write them over the environment."""

    def pids(self, known: dict[int, bool] | None = None) -> Iterator[int]:
        """The processes. `known` caches what was found, because another inspection costs more."""
        seen = {} if known is None else known
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            if pid not in seen:
                seen[pid] = self._has(pid)
            if seen[pid]:
                yield pid

    def _has(self, pid: int) -> bool:
        with suppress(OSError):
            if self.mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return True
            return bool(self.title) and Path(f"/proc/{pid}/cmdline").read_bytes().startswith(self.title.encode())
        return False

    def end(self) -> None:
        for pid in list(self.pids()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


PATIENCE_S = 600.0
SAMPLED_EVERY_S = 0.1
SETTLED_S = 0.02


@dataclass(frozen=True)
class Taken:
    wall_s: float
    client_s: float
    """The CPU of the client: of the process, its children, and its background processes."""
    machine_s: float
    """The CPU of the client and of all hosts."""
    memory_mb: float = 0.0
    """The most memory of all processes of the client together, with shared pages counted once."""


@dataclass(frozen=True)
class Outcome:
    taken: Taken
    code: int
    printed: str


@dataclass(frozen=True)
class Gauge:
    hosts_init: int
    """The first process of the namespace that all hosts are in."""
    clients: Clients

    def measure(self, argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str], *, memory: bool) -> Outcome:
        """Runs a command to its end. Measuring the memory takes CPU, so it is done in a run that does not count."""
        left, hosts = self._background_s(), self._hosts_s()
        with tempfile.TemporaryFile() as printed, self._peak_mb(memory) as peak_mb:
            begin = time.monotonic()
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            deadline = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))
            deadline.start()
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - begin
            deadline.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            printed.seek(0)
            text = printed.read().decode(errors="replace")
        client_s = used.ru_utime + used.ru_stime + _settled(self._background_s) - left
        taken = Taken(wall_s, client_s, client_s + _settled(self._hosts_s) - hosts, max(peak_mb()))
        return Outcome(taken, process.returncode, text)

    def _background_s(self) -> float:
        total = 0.0
        for pid in self.clients.pids():
            with suppress(OSError):
                total += cpu_s(pid)
        return total

    def _hosts_s(self) -> float:
        """The CPU of all processes there, running or ended: its parent, or the init, has waited for each ended one."""
        own = os.readlink(f"/proc/{self.hosts_init}/ns/pid")
        total = 0.0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(process / "ns/pid") == own:
                    total += cpu_with_children_s(int(process.name))
        return total

    @contextmanager
    def _peak_mb(self, wanted: bool) -> Iterator[Callable[[], list[float]]]:
        seen, over = [0.0], threading.Event()

        def sample() -> None:
            known: dict[int, bool] = {}
            while not over.wait(SAMPLED_EVERY_S):
                seen.append(self._memory_mb(known))

        sampler = threading.Thread(target=sample)
        if wanted:
            sampler.start()
        try:
            yield lambda: seen
        finally:
            over.set()
            if wanted:
                sampler.join()

    def _memory_mb(self, known: dict[int, bool]) -> float:
        total = 0.0
        for pid in self.clients.pids(known):
            with suppress(OSError, KeyError):
                total += memory_mb(pid)[1]
        return total


def _settled(read: Callable[[], float]) -> float:
    """The value once it hardly grows any more: connections are still being closed when the client has ended."""
    before, deadline = read(), time.monotonic() + 3.0
    while True:
        time.sleep(0.1)
        now = read()
        if now - before < SETTLED_S or time.monotonic() > deadline:
            return now
        before = now

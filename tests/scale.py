"""`python -m tests.scale [HOSTS...]`: what commands, faults and rest cost a coordinator and a controller, by size.

The hosts exist in memory; the coordinator, the sessions and the command line are dtctl's own (`served.py`).
"""

from __future__ import annotations

import contextlib
import io
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from dtctl.agent.host import paths
from dtctl.cli import main as command_line
from dtctl.cli.scope import Scope
from dtctl.render.terminal import console
from tests.unit.agent.coordinate.served import Served, ServedTransport
from tests.unit.agent.coordinate.simulated import simulate
from tests.unit.agent.coordinate.world import running

SIZES = (10, 100, 300, 1000)
REST_S = 60.0


@dataclass
class Measured:
    """What one thing has cost."""

    seconds: float
    """CPU time of the controller, the session and the coordinator together, and of the hosts in memory."""
    messages: int
    """Between the coordinator and the other hosts, both ways."""
    written: int
    """Bytes of cluster.json."""
    lines: int = 0
    code: int = 0
    text: str = ""


@dataclass
class Bench:
    """A run on so many hosts, and a desk at which commands for it are typed."""

    world: Served
    transport: ServedTransport
    written: list[int] = field(default_factory=list)

    def type(self, command: str) -> Measured:
        def typed() -> tuple[int, str]:
            out = io.StringIO()
            sys.argv = ["dtctl", *shlex.split(command)]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                try:
                    command_line()
                except SystemExit as ended:
                    return int(ended.code or 0), out.getvalue()
            return 0, out.getvalue()

        return self.measure(typed)

    def measure(self, act: Callable[[], tuple[int, str] | None]) -> Measured:
        messages, written = self.messages, sum(self.written)
        begin = time.process_time()
        code, text = act() or (0, "")
        seconds = time.process_time() - begin
        return Measured(
            seconds, self.messages - messages, sum(self.written) - written, len(text.splitlines()), code, text
        )

    @property
    def messages(self) -> int:
        return self.world.links.received + len(self.world.sent)


@contextlib.contextmanager
def bench(hosts: int) -> Iterator[Bench]:
    """The run has begun, and every worker has reported a step."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        simulate(patch)
        written: list[int] = []
        write = paths.write_text

        def counted(path: str, text: str) -> None:
            written.append(len(text) * path.endswith("cluster.json"))
            write(path, text)

        patch.setattr(paths, "write_text", counted)
        patch.setenv("HOME", name)
        patch.setenv("COLUMNS", "120")
        patch.delenv("DTCTL_CONFIG", raising=False)
        patch.setattr(sys, "argv", sys.argv)
        project = Path(name) / "project"
        project.mkdir()
        patch.chdir(project)
        world = Served(hosts, project)
        transport = ServedTransport(world)
        patch.setattr(Scope, "transport", property(lambda _: transport))
        running(world)
        world.train()
        world.run_for(3.0)
        before = signal.getsignal(signal.SIGTERM)
        try:
            yield Bench(world, transport, written)
        finally:
            signal.signal(signal.SIGTERM, before)
            console.choose_color("auto")
            console.speak_json(None)


def crash(world: Served) -> None:
    """Every tenth host crashes and comes back."""
    hosts = world.hosts[::10]
    for host in hosts:
        world.crash(host)
    world.train_for(6.0)
    for host in hosts:
        world.boot(host)
    world.train_for(12.0)


def end(world: Served) -> None:
    world.die(*world.workers[::10])
    world.train_for(12.0)


def cut(world: Served) -> None:
    world.cut.update(world.hosts[::10])
    world.train_for(12.0)
    world.cut.clear()
    world.train_for(12.0)


COMMANDS = (
    "status",
    "status -o json",
    "events",
    "restart worker:3",
    "drain host-7",
    "undrain host-7",
    "scale worker=5",
    "scale worker=9",
    "stop worker:4",
    "stop",
)


def played(hosts: int) -> Iterator[tuple[str, Measured]]:
    with bench(hosts) as desk:
        yield f"at rest, {REST_S:.0f} s", desk.measure(lambda: desk.world.train_for(REST_S))
        for act in (crash, end, cut):
            yield f"{act.__name__} of every tenth host", desk.measure(partial(act, desk.world))
        for command in COMMANDS:
            yield f"`{command}`", desk.type(command)


def cell(one: Measured) -> str:
    if one.code:
        return f"exit code {one.code}"
    parts = [f"{one.seconds:.2f} s"]
    parts += [f"{one.messages} messages"] if one.messages else []
    parts += [f"{one.written / 1e6:.1f} MB"] if one.written else []
    parts += [f"{one.lines} lines"] if one.lines else []
    return ", ".join(parts)


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    found: list[dict[str, Measured]] = []
    for hosts in sizes:
        found.append({})
        for what, one in played(hosts):
            print(f"{hosts} hosts, {what}: {cell(one)}", file=sys.stderr, flush=True)
            found[-1][what] = one
    print(f"| | {' | '.join(f'{hosts} hosts' for hosts in sizes)} |")
    print("|---" * (len(sizes) + 1) + "|")
    for what in found[0]:
        print(f"| {what} | {' | '.join(cell(one[what]) for one in found)} |")


if __name__ == "__main__":
    main()

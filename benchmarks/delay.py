"""The round trips that commands wait for with distant hosts: `ssh HOST true` and dtctl, over a delayed line."""

from __future__ import annotations

import heapq
import itertools
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.measuring import DTCTL, heading, measure, show
from benchmarks.servers import Servers, loopback_servers, need

PIECE_BYTES = 256 * 1024


class Relay:
    """Listens on all addresses at `port`, and forwards each connection to the same address at `to_port`.

    Connections are accepted at once, so the delay of connecting (one round trip for TCP) is not included.
    """

    def __init__(self, to_port: int, delay_s: float) -> None:
        self.delay_s = delay_s
        """The delay in each direction; a change applies to the data that follows."""
        self._to_port = to_port
        self._listener = socket.create_server(("0.0.0.0", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._open: set[socket.socket] = set()
        """Sockets of connections; a connection is removed when both directions have ended."""
        self._ends, self._ended = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._ended, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.close()
        self._thread.join()
        for one in (self._listener, self._ended, *self._open):
            one.close()
        self._selector.close()

    def _carry(self) -> None:
        while True:
            wait_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(wait_s):
                if key.data is None:
                    return
                key.data()
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[-1]()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection((near.getsockname()[0], self._to_port))
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(one)
            self._selector.register(one, selectors.EVENT_READ, lambda one=one, other=other: self._read(one, other))

    def _read(self, one: socket.socket, other: socket.socket) -> None:
        try:
            data = one.recv(PIECE_BYTES)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(one)
        due = time.monotonic() + self.delay_s
        heapq.heappush(self._due, (due, next(self._order), lambda: self._write(one, other, data)))

    def _write(self, one: socket.socket, other: socket.socket, data: bytes) -> None:
        with suppress(OSError):  # a peer that has gone needs no more data
            if data:
                other.sendall(data)
            else:
                other.shutdown(socket.SHUT_WR)
        if not data:
            self._open.discard(one)
            if other not in self._open:
                one.close()
                other.close()


@contextmanager
def relay(to_port: int, delay_s: float) -> Iterator[Relay]:
    line = Relay(to_port, delay_s)
    line.start()
    try:
        yield line
    finally:
        line.stop()


HOSTS = 4
ROUNDS = 3
ROUND_TRIP_S = 0.6
"""Long compared with the computing time of commands, which varies."""
GOAL = 2
"""Round trips in addition to those of `ssh HOST true`."""


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    need("ssh")
    seconds: dict[float, dict[str, list[float]]] = {delay_s: defaultdict(list) for delay_s in (0.0, ROUND_TRIP_S / 2)}
    with (
        tempfile.TemporaryDirectory() as name,
        loopback_servers(HOSTS, Path(name), homes=True) as servers,
        relay(servers.sshd.port, 0.0) as line,
    ):
        _write_files(servers, line)
        for _ in range(rounds):
            for delay_s, took in seconds.items():
                line.delay_s = delay_s
                for what, wall_s in _commands(servers, line):
                    took[what].append(wall_s)
    heading("delay", f"{HOSTS} hosts, waits at {ROUND_TRIP_S * 1000:.0f} ms less those at 0 ms, least of {rounds} runs")
    near, far = seconds.values()
    trips = {what: (min(far[what]) - min(near[what])) / ROUND_TRIP_S for what in near}
    bare = next(iter(trips.values()))
    for what, count in trips.items():
        show(what, f"{count:.1f} round trips", goal=f"{bare + GOAL:.1f}" if what.startswith("dtctl") else "")


def _commands(servers: Servers, line: Relay) -> Iterator[tuple[str, float]]:
    """Runs the commands in an order in which each finds what it needs. Yields their names and times."""

    def took(*argv: str | Path) -> float:
        return measure(argv, cwd=servers.directory, env=servers.env).wall_s

    def ours(*words: str) -> float:
        return took(*DTCTL, *words)

    for user in servers.users:
        shutil.rmtree(servers.sshd.users[user].home / ".dtctl", ignore_errors=True)
    yield "ssh HOST true", took("ssh", "-F", servers.ssh_config, "-p", str(line.port), servers.addresses[0], "true")
    yield "dtctl up, the first of all", ours("up", "-q")
    yield "dtctl exec true", ours("exec", "--", "true")
    yield "dtctl push, nothing new", ours("push", "-q")
    yield "dtctl status", ours("status")
    yield "dtctl logs", ours("logs")
    yield "dtctl stop", ours("stop")
    yield "dtctl up, code and agent there", ours("up", "-q")
    yield "dtctl down", ours("down", "-y")


def _write_files(servers: Servers, line: Relay) -> None:
    """Writes the cluster file, its code, and the hosts' keys at the relay's port."""
    known = servers.directory / "known_hosts"
    names = [f"[{address}]:{line.port}" for address in servers.addresses]
    known.write_text("".join(servers.sshd.known_hosts_text(name) for name in names))
    servers.write_cluster('command: [sleep, "3600"], dialect: none', port=line.port)

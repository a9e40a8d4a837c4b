"""One end of a link in a process of its own: `link_end.py hub|dialer DIRECTORY ADDRESS`.

DIRECTORY has the host's credentials; a hub takes those in its subdirectory `past` for a past run's. A dialer wants c.

It takes a JSON object a line on stdin, {METHOD: [arguments]}, and tells on stdout what is said to it.
It ends with its input.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from dtctl.agent.coordinate.contacts import last_words
from dtctl.agent.link.dialer import Dialer
from dtctl.agent.link.hub import Hub
from dtctl.agent.link.tls import Identity


class End:
    def __init__(self, link: Hub | Dialer) -> None:
        self._link = link
        self._began: float | None = time.monotonic()
        self._steps = 0
        self._filling: list[int] = []
        self._commands = b""

    def run(self) -> None:
        while True:
            due = self._link.due()
            timeout = None if due is None else max(due - time.monotonic(), 0)
            writers = self._link.writers() if isinstance(self._link, Dialer) else []
            ready = select.select([0, *self._link.readers()], writers, [], timeout)[0]
            self._steps += 1
            for message in self._link.step(time.monotonic()):
                tell(said=message)
                if self._began is not None and isinstance(message, dict):  # a dialer's first: it is connected
                    tell(dialled_s=time.monotonic() - self._began)
                    self._began = None
            if 0 in ready and not self._obey():
                self._link.close()
                return

    def _obey(self) -> bool:
        piece = os.read(0, 1 << 20)
        *lines, self._commands = (self._commands + piece).split(b"\n")
        for line in lines:
            for name, arguments in json.loads(line).items():
                getattr(self if hasattr(self, name) else self._link, name)(*arguments)
        return bool(piece)

    def count(self) -> None:
        tell(steps=self._steps)

    def measure(self) -> None:
        cpu_s = time.process_time()
        resident_kb = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024
        descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
        tell(measured={"cpu_s": cpu_s, "resident_kb": resident_kb, "descriptors": descriptors})

    def stumble(self, host: str) -> None:
        """The hub will on the next message of that host."""
        assert isinstance(self._link, Hub)
        vars(self._link._connected[host])["receive"] = lambda now: 1 // 0

    def fill(self, limit: int) -> None:
        """Takes descriptors until there are as many as the process may have from now on."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        try:
            while True:
                self._filling.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            tell(filled=len(self._filling))

    def free(self, count: int) -> None:
        for _ in range(count):
            os.close(self._filling.pop())


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    role, directory, where = sys.argv[1:]
    now = time.monotonic()
    if role == "hub":
        past = [identity(Path(directory, "past"))] if Path(directory, "past").is_dir() else []
        hub = Hub(where, int(where.rpartition(":")[2]), identity(Path(directory)), past, last_words, now)
        tell(port=hub.port)
        End(hub).run()
    else:
        End(Dialer(where, "c", identity(Path(directory)), now, random.random)).run()


def identity(directory: Path) -> Identity:
    return Identity(str(directory), (directory / "run").read_text())


main()

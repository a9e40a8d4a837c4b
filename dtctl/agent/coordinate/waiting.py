"""The agent of a run that was taken down while hosts of it gave no answer: it ends their tasks when they come back.

Nothing of the run is left here but what its agents identify each other by. A host that comes back asks the voters, or
is asked itself if it is the only one that coordinates: each that waits sends it the end of the run. When each of them
has reported for itself that it has ended what it had, or after a day, the rest is removed.
"""

from __future__ import annotations

import math
import os
import random
import select
import time
from contextlib import suppress

from ..host import errors, paths, processes, wake
from ..records.messages import Hello
from ..records.spec import Spec, voters_of
from ..run import intents
from . import superseded
from .contacts import last_words, superseded_identities
from .following import hello, news

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple

    from ..link.dialer import Dialer
    from ..link.hub import Hub
    from ..link.peer import Message
    from ..records.whole_run import Awaited
    from ..run.runfiles import RunFiles

LISTEN_AGAIN_S = 5.0
"""Another run may have the port: its agent answers for this one then."""

LONGEST_WAIT_S = 5.0


class Waiting:
    """`run` returns when nothing is awaited any more, after it has removed the run here."""

    def __init__(self, files: RunFiles, awaited: Awaited) -> None:
        self._files = files
        self._spec: Spec = files.spec()
        self._until = awaited["since"] + intents.AWAIT_S
        self._left = set(awaited["hosts"]) - {self._spec["host"]}
        self._read: object = None
        """The version of awaited.json that was read last."""
        self._hub: Optional[Hub] = None
        self._listen_at = 0.0
        self._dialer: Optional[Dialer] = None
        self._is_to_leave = False

    def leave(self) -> None:
        """The host shuts down; the next agent continues."""
        self._is_to_leave = True
        wake.ring(self._files.wake_path)

    def run(self, at_each_look: Callable[[], None]) -> None:
        descriptor = wake.listen(self._files.wake_path)
        self._take_over()
        while os.path.isdir(self._files.directory) and not self._is_to_leave:
            at_each_look()
            self._step(time.monotonic())
            if not self._left or time.time() >= self._until:
                self._remove()
                return
            self._wait(descriptor)

    def _take_over(self) -> None:
        """Names this process as the run's agent, for sessions."""
        state = self._files.state()
        state.update({"agent": {**processes.myself(), "since": time.time()}, "finished": False})
        paths.write_json(self._files.state_path, state)

    def _step(self, now: float) -> None:
        self._listen(now)
        if self._hub is not None:
            for host, message in self._hub.step(now):
                if message["type"] == "left":
                    self._let_go(message["run"], host)
        self._dial(now)
        self._read_left()

    def _let_go(self, run: str, host: str) -> None:
        superseded.note_left(self._files.root, self._spec["host"], run, host)
        if run == self._spec["run"]:
            self._left.discard(host)

    def _read_left(self) -> None:
        """A newer run's agent on this host may have heard from others in place of this one."""
        version = paths.version(self._files.path("awaited.json"))
        if version is not None and version != self._read:
            self._read = version
            with suppress(paths.Damaged):
                known = self._files.awaited()
                self._left.intersection_update(known["hosts"] if known is not None else self._left)

    def _listen(self, now: float) -> None:
        places = superseded.waiting_places(self._spec)
        place = next((one for one in places if one["host"] == self._spec["host"]), None)
        if self._hub is not None or place is None or now < self._listen_at:
            return
        from ..link.hub import Hub
        from ..link.tls import Identity

        try:
            own = Identity(self._files.directory, self._spec["run"])
            others = superseded_identities(self._files, self._spec)
            self._hub = Hub(
                place["address"], place["port"], None, [own, *others], self._last_words, now, removed=self._removed
            )
        except (OSError, ValueError) as error:
            self._listen_at = now + LISTEN_AGAIN_S
            errors.note("waiting: %s" % error)

    def _last_words(self, first: Hello) -> Tuple[List[Message], bool]:
        words, _ = last_words(first, removed=self._removed(first["run"], first["host"]))
        return words, True

    def _removed(self, run: str, host: str) -> bool:
        """Whether the run was removed on an awaited host; the command that removes the run is just asking the
        others.
        """
        if run != self._spec["run"]:
            return superseded.is_awaited_after_removal(self._files.root, self._spec["host"], run, host)
        return host in self._left

    def _dial(self, now: float) -> None:
        """A coordinator that no other can replace asks nobody: it is told by the first agent that connects to it."""
        place = self._spec["coordinator"]
        if voters_of(self._spec) or place["host"] not in self._left:
            return
        if self._dialer is None:
            from ..link.dialer import Dialer
            from ..link.tls import Identity

            own = Identity(self._files.directory, self._spec["run"])
            self._dialer = Dialer(place["address"], place["host"], own, now, random.random)
        for message in self._dialer.step(now):
            intent = intents.IntentFollower(self._files)
            if message["type"] == "connected":
                self._dialer.send(hello(self._spec, self._files.state(), intent, self._files.events.count))
            elif message["type"] == "orders":
                if intent.take(message["intents"]):  # it counts who has confirmed the end
                    self._dialer.send(news(self._files.state(), intent))
                if message["over"]:
                    self._let_go(self._spec["run"], place["host"])

    def _remove(self) -> None:
        for part in (self._hub, self._dialer):
            if part is not None:
                part.close()
        self._files.remove_aside()

    def _wait(self, descriptor: int) -> None:
        now = time.monotonic()
        times = [now + LONGEST_WAIT_S]
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        for part in (self._hub, self._dialer):
            if part is not None:
                part.register(waiting)
                due = part.due()
                times += [due] if due is not None else []
        waiting.poll(math.ceil(max(0.0, min(times) - now) * 1000))
        with suppress(BlockingIOError):
            os.read(descriptor, 65536)

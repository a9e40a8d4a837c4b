"""What every request works with."""

from __future__ import annotations

import _thread
import time
from contextlib import contextmanager, suppress

from ..host.errors import Refused
from ..records.kinds import Wrong, checked
from ..records.requests import WORDS
from .wire import Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Type, TypeVar

    from ..records.answers import Alive
    from .wire import Wire

    R = TypeVar("R")


BEAT_S = 5.0


class Beats:
    """Beats of one conversation; none while it is the controller's turn to speak."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._at: Optional[str] = None
        self._since = 0.0
        self._begun = False

    def at(self, what: Optional[str]) -> None:
        """What the session is at from now on; None: it waits for the controller."""
        self._since = time.monotonic()
        self._at = what
        if what is not None and not self._begun:
            self._begun = True
            _thread.start_new_thread(self._beat, ())

    @property
    def now_at(self) -> Optional[str]:
        return self._at

    def _beat(self) -> None:
        pause_s = BEAT_S
        try:
            while True:
                time.sleep(pause_s)
                what = self._at
                pause_s = BEAT_S
                if what is not None:
                    beat: Alive = {"at": what, "for_s": max(0.0, round(time.monotonic() - self._since, 1))}
                    pause_s = self._wire.fill_silence(dict(beat, type="beat"), BEAT_S)
        except (Gone, ValueError):
            pass  # ValueError: the stream was closed


_HIDDEN = ("secrets", "credentials", "hooks")
"""Fields whose values are not shown, not even in an error."""


class Conversation:
    """One controller's. `program` is the directory that supervisors are started from."""

    def __init__(self, root: str, program: str, wire: Wire) -> None:
        self.root = root
        self.program = program
        self.wire = wire
        self.beats = Beats(wire)
        self.held: List[socket.socket] = []
        """They keep the ports of tasks that are still to start."""
        self.leaving: List[Callable[[], object]] = []
        """What is to be done at `leave`; an OSError of it is nobody's concern."""

    def send(self, kind: str, frame: Mapping[str, object]) -> None:
        """Raises Gone."""
        self.wire.send(dict(frame, type=kind))

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """While it lasts, beats say that the session is at this."""
        before = self.beats.now_at
        self.beats.at(what)
        try:
            yield
        finally:
            self.beats.at(before)

    def expect(self, *types: str) -> str:
        """The type of the next frame, which has to be one of these. Raises Gone and Refused."""
        return str(self.hear(*types)["type"])

    def hear(self, *types: str) -> Dict[str, Any]:
        """The next frame, which has to be one of these. Raises Gone and Refused."""
        before = self.beats.now_at
        self.beats.at(None)
        frame = word(self.wire.receive()[0], *types)
        self.beats.at(before)
        return frame

    def leave(self) -> None:
        """Called when the conversation is over, however it ends, or earlier. Clears up what was made for it."""
        while self.leaving:
            with suppress(OSError):
                self.leaving.pop(0)()

    def pause(self, seconds: float) -> None:
        """Waits, and listens to the controller: raises Gone when it is gone, Aborted when it says `abort`."""
        self.wire.start_listening()
        frame = self.wire.poll(seconds)
        if frame is not None:
            word(frame[0], "abort")
            raise Aborted()

    def wait(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Looks again and again; False when the time is over. Raises as `pause`."""
        import time

        deadline = time.monotonic() + limit_s
        delay = 0.01
        while not done():
            if time.monotonic() > deadline:
                return False
            self.pause(delay)
            delay = min(delay * 1.5, 0.1)
        return True


class Aborted(Exception):
    """The controller asks to stop what is being done."""


def word(frame: Mapping[str, Any], *types: str) -> Dict[str, Any]:
    """A frame within a request, checked to be one of these. Raises Refused."""
    name = frame["type"]
    if name not in types:
        raise Refused("bad_request", "%s came where %s was awaited" % (ascii(name)[:60], " or ".join(types)))
    return dict(held(WORDS[name], frame, name), type=name)


def held(kind: Type[R], frame: Mapping[str, Any], name: str) -> R:
    """A frame as the record that its name stands for. Raises Refused, which tells the field."""
    try:
        return checked(kind, frame)
    except Wrong as wrong:
        hidden = wrong.path and wrong.path[-1] in _HIDDEN
        what = "%s: expected %s" % (wrong.field, wrong.expected) if hidden else str(wrong)
        raise Refused("bad_request", "%s: %s" % (name, what)) from None

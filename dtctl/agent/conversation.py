"""What every request works with."""

from __future__ import annotations

from .errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Mapping

    from .wire import Wire


class Conversation:
    """One controller's. `program` is the directory that supervisors are started from."""

    def __init__(self, root: str, program: str, wire: Wire) -> None:
        self.root = root
        self.program = program
        self.wire = wire

    def send(self, kind: str, **fields: Any) -> None:
        """Raises Gone."""
        self.wire.send(dict(fields, type=kind))

    def expect(self, *types: str) -> Dict[str, Any]:
        """The next frame, which has to be one of these types. Raises Gone and Refused."""
        frame = self.wire.receive()[0]
        if frame.get("type") not in types:
            raise _unexpected(frame, " or ".join(types))
        return frame

    def pause(self, seconds: float) -> None:
        """Waits, and notices the controller. Raises Gone when it is gone, Aborted when it has had enough."""
        self.wire.start_listening()
        frame = self.wire.poll(seconds)
        if frame is not None and frame[0].get("type") == "abort":
            raise Aborted()
        if frame is not None:
            raise _unexpected(frame[0], "abort")

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
    """The controller asks for an end of what is being done."""


def _unexpected(frame: Mapping[str, Any], awaited: str) -> Refused:
    return Refused("bad_request", "%r came where %s was awaited" % (frame.get("type"), awaited))


def field(request: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """A field of a request, checked to be of one of these types (NoneType for null; absent counts as null)."""
    value = request.get(name)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise Refused("bad_request", "%s: %s has to be %s" % (request.get("type"), name, wanted))
    return value

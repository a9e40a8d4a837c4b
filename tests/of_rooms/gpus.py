"""What the tests of all commands have to know of the room `gpus`."""

from __future__ import annotations

from collections.abc import Callable

from tests.hostile.host_answers import MARK, Answer, Fields, Host
from tests.of_rooms import spoken

SPOKEN = (
    spoken("gpus", shows=True),
    spoken("gpus -o json", shows=True),
)
TYPED = ("gpus",)
WRONG = """
2 gpus @node-9
    there is no host 'node-9' in this cluster
    did you mean 'node-3'?
"""


def _gpus(host: Host, request: Fields) -> Answer:
    user = {"pid": 77, "name": f"{MARK} {host.name}", "user": "ada", "used_bytes": 3 << 30}
    one = {"index": 0, "name": "A100", "busy": 0.9, "used_bytes": 3 << 30, "memory_bytes": 40 << 30, "users": [user]}
    yield {"type": "result", "gpus": {"problem": "", "text": "", "each": [one]}}, b""


ANSWERS = {"gpus": _gpus}


def _show_gpus(bad: str) -> None:
    """A GPU with a poisoned user, and a host whose driver answers with poison."""
    from dtctl.agent.records.kinds import made
    from dtctl.agent.records.vitals import Gpu, Gpus, GpuUser
    from dtctl.rooms.gpus.screen import show_gpus

    user = made(GpuUser, pid=7, name=f"python{bad}"[:100], user=f"ada{bad}"[:100])
    own = made(GpuUser, pid=8, name="python", user="ada", run="demo-1", task="worker:0")
    each = [made(Gpu, index=0, name=f"A100{bad}"[:200], memory_bytes=10, used_bytes=9, users=[user, own])]
    broken = made(Gpus, problem="error", text=f"driver{bad}")
    show_gpus({f"a{bad}": {"gpus": made(Gpus, each=each)}, f"b{bad}": {"gpus": broken}})


SHOWS: dict[str, Callable[[str], None]] = {"show_gpus": _show_gpus}

"""What the tests of all commands have to know of the room `profile`."""

from __future__ import annotations

from collections.abc import Callable

from tests.hostile.host_answers import MARK, RUN, Answer, Fields, Host
from tests.of_rooms import spoken

SPOKEN = (
    spoken("profile --seconds 1", endless=True, shows=True),
    spoken("profile --seconds 1 -o json", endless=True, shows=True),
)
HEARD = {"profile": "profiling, profile, profile result"}
TYPED = ("profile",)
WRONG = """
2 profile @node-9
    there is no host 'node-9' in this cluster
    did you mean 'node-3'?
"""


def _profile(host: Host, request: Fields) -> Answer:
    yield {"type": "profiling", "tasks": request["tasks"]}, b""
    for task in request["tasks"]:
        own = {"function": f"train {MARK} {host.name}", "file": "/home/ada/train.py", "line": 7}
        stacks = [{"samples": 4, "frames": [own]}]
        samples = {"pid": 77, "way": "py-spy", "sampled_s": 1.0, "samples": 5, "stacks": stacks}
        path = f"/data/plugins/profile/{request['session']}/{host.name}_{task}.xplane.pb"
        file = {"path": path, "size_bytes": 7000}
        about = {"task": task, "attempt": 1, "state": "running"}
        yield {"type": "profile", **about, **samples, "file": file}, b""
    yield {"type": "result", "run": RUN}, b""


ANSWERS = {"profile": _profile}


def _show_profiles(bad: str) -> None:
    """A task whose frames, file and errors are poisoned."""
    from dtctl.agent.records.kinds import made
    from dtctl.agent.rooms.profile.records import Profile
    from dtctl.model import TaskId
    from dtctl.rooms.profile.operation import Profiled, Profiles
    from dtctl.rooms.profile.screen import show_profiles

    def profiled(index: int, **fields: object) -> Profiled:
        task = TaskId("worker", index)
        answer = made(Profile, task=str(task), attempt=1, state="running", pid=7, **fields)
        return Profiled(task, f"a{bad}", answer)

    frame = {"function": f"f{bad}"[:200], "file": f"/x{bad}.py", "line": 7}
    library = {"function": f"g{bad}"[:200], "file": f"/usr/lib/python3/site-packages/torch{bad}/x.py", "line": None}
    stacks = [{"samples": 2, "frames": [library, library, frame, library]}, {"samples": 1, "frames": [library]}]
    sampled = {"way": "faulthandler", "samples": 3, "stacks": stacks, "command": f"/bin/python{bad} train.py"}
    tasks = (
        profiled(0, **sampled, file={"path": f"/x{bad}", "size_bytes": 7}),
        profiled(1, missing="no_handler", said=f"s{bad}", no_file="failed", file_said=f"t{bad}"),
    )
    show_profiles(Profiles("demo-1", 10, "2026_11_30_13_49_09", tasks))


SHOWS: dict[str, Callable[[str], None]] = {"show_profiles": _show_profiles}

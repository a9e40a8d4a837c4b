"""Requests what tasks do for some seconds of their hosts, and finds the places in the user's code."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from dtctl.agent.records.answers import RunResult
from dtctl.agent.records.vitals import Frame
from dtctl.agent.rooms.profile.records import Profile, Profiling
from dtctl.agent.run.traceback import is_users
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host, TaskId
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Request, about, ask_hosts
from dtctl.operations.client.plausible import check_tasks, wrong
from dtctl.operations.run_record import RunRecord
from dtctl.transport.seam import Message, Transport

AT_ONCE = 8
"""How many tasks a host profiles at the same time, at least."""
QUIET_S = 180.0
"""The longest silence of a host, besides the seconds of the profile: it looks for the event files, imports TensorFlow
and waits for the profiler.
"""


@dataclass(frozen=True)
class Place:
    """A line of the program, and how many samples found its task there."""

    frame: Frame
    samples: int


@dataclass(frozen=True)
class Profiled:
    """One task: what its host reports of it."""

    task: TaskId
    host: str
    answer: Profile

    @property
    def places(self) -> tuple[Place, ...]:
        """The innermost lines of the user's own code, the most frequent first; of libraries alone the innermost."""
        counts: Counter[tuple[str, str, int | None]] = Counter()
        for stack in self.answer["stacks"]:
            frames = stack["frames"]
            if frames:
                own = next((one for one in frames if is_users(one["file"])), frames[0])
                counts[own["function"], own["file"], own["line"]] += stack["samples"]
        return tuple(
            Place({"function": function, "file": file, "line": line}, samples)
            for (function, file, line), samples in counts.most_common()
        )


@dataclass(frozen=True)
class Profiles:
    run: str | None
    """The run; None: no host has one."""
    seconds: int
    session: str
    tasks: tuple[Profiled, ...]
    """The tasks, in the order of the cluster file."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)

    @property
    def has_any(self) -> bool:
        return any(one.answer["stacks"] or one.answer["file"] for one in self.tasks)


def profile(record: RunRecord, transport: Transport, tasks: Sequence[TaskId], seconds: int) -> Profiles:
    """Profiles these tasks, those of all hosts at the same time."""
    session = time.strftime("%Y_%m_%d_%H_%M_%S")
    wanted = {host: [str(task) for task in tasks if record.roster[task] == host] for host in record.roster.values()}
    found: dict[TaskId, Profiled] = {}
    lock = threading.Lock()

    def on_profiling(host: Host, message: Message) -> None:
        with about(host.name, "sent an invalid `profiling`"):
            check_tasks("tasks", message.of(Profiling)["tasks"], wanted[host.name])

    def on_profile(host: Host, message: Message) -> None:
        reported = message.of(Profile)
        with about(host.name, "sent an invalid `profile`"):
            check_tasks("task", [reported["task"]], wanted[host.name])
            _check_file(reported, session)
            task = TaskId.parse(reported["task"])
            with lock:
                if task in found:
                    raise wrong("task", "one that was not reported before", reported["task"])
                found[task] = Profiled(task, host.name, reported)

    most = max(map(len, wanted.values()), default=0)
    outcomes = ask_hosts(
        record,
        ImpatientTransport(transport, record),
        Request(
            "profile",
            RunResult,
            lambda host: {"tasks": wanted[host.name], "seconds": seconds, "session": session},
            within_s=(seconds + QUIET_S) * -(-most // AT_ONCE),
            on_frame={"profiling": on_profiling, "profile": on_profile},
            quiet_s=seconds + QUIET_S,
        ),
        [host for host, named in wanted.items() if named],
    )
    runs = [answer["run"] for answer in outcomes.results.values()]
    known = tuple(found[task] for task in tasks if task in found)
    return Profiles(runs[0] if runs else None, seconds, session, known, outcomes.errors)


def _check_file(reported: Profile, session: str) -> None:
    """Checks that a file is a profile of this request: what a user opens next."""
    file = reported["file"]
    if file is not None and not (f"/{session}/" in file["path"] and file["path"].endswith(".xplane.pb")):
        raise wrong("file.path", f"a profile below {session}", file["path"])

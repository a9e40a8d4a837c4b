"""Measures this host's tasks at intervals, for the supervisor, and keeps what it finds."""

from __future__ import annotations

import time

from ...host import errors
from ...records import kinds
from .adding import largest
from .host import HostUse
from .processes import Uses, processes_of, trainer_of
from .records import MOST_FLOWS, Sample
from .ring import Ring
from .saving import Saving
from .traffic import Traffic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from ...records.run_state import State
    from ...records.spec import Spec
    from ...run.runfiles import RunFiles
    from .records import TaskUse

SAMPLE_S = 10.0
MOST_OF_A_PROCESSOR = 0.005
"""The most that measuring may take: on a host with thousands of threads or sockets there are fewer samples."""


class Observer:
    """`step` is called in each step of the supervisor."""

    def __init__(self, files: RunFiles, spec: Spec) -> None:
        self._ring = Ring(files.directory, len(spec["tasks"]))
        self._traffic = Traffic(spec["host"], spec["roster"])
        self._uses = Uses()
        self._host = HostUse()
        self._saving = Saving()
        self._next = 0.0
        self._before = 0.0
        self._has_tasks = bool(spec["tasks"])
        self._failed = False

    def step(self, now: float, wall: float, state: State) -> None:
        """Takes a sample when it is due. `now`: of the monotonic clock; `wall`: seconds since 1970."""
        if not self._has_tasks:
            return
        self._saving.look(now, state)
        if now < self._next:
            return
        began = time.thread_time()
        sample = self.sample(now, wall, state)
        is_first, self._before = not self._before, now
        if not is_first and sample["tasks"]:
            self._keep(sample)
        self._next = now + max(SAMPLE_S, (time.thread_time() - began) / MOST_OF_A_PROCESSOR)

    def sample(self, now: float, wall: float, state: State) -> Sample:
        """What has happened since the last sample."""
        trainers = {task: trainer_of(entry) for task, entry in state["tasks"].items()}
        pids = processes_of({trainer[0]: task for task, trainer in trainers.items() if trainer is not None})
        tasks = self._uses.sample(now, state, pids)
        flows = self._traffic.sample(pids) if tasks else []
        seconds = min(1e9, max(0.0, now - self._before)) if self._before else 0.0
        _add_gpus(tasks, state, seconds)
        for task, use in tasks.items():
            use["saving_s"] = self._saving.taken(task)
        kept = largest(flows, MOST_FLOWS)
        return {
            "time": wall,
            "seconds": round(seconds, 3),
            **self._host.sample(),  # type: ignore[typeddict-item]
            "tasks": tasks,
            "flows": kept,
            "flows_omitted": len(flows) - len(kept),
            "traffic": self._traffic.problem or "measured",
        }

    def _keep(self, sample: Sample) -> None:
        try:
            self._ring.add(kinds.checked(Sample, sample))
            self._failed = False
        except (OSError, kinds.InvalidValue) as error:  # a full disk: the next sample is tried again
            if not self._failed:
                errors.note("speed: %s" % error)
            self._failed = True


def _add_gpus(tasks: Dict[str, TaskUse], state: State, seconds: float) -> None:
    """The mean use of the GPUs that a task was given, as `vitals` reads them."""
    machine = state["machine"]
    gpus = machine["gpus"] if machine is not None else None
    for task, use in tasks.items():
        busy = [one["busy"] for one in gpus["each"] if task in one["given"]] if gpus is not None else []
        known = [share for share in busy if share is not None]
        if known:
            use["gpu_s"] = round(sum(known) / len(known) * seconds, 3)

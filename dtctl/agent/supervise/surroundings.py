"""What the tasks of a run on one host share."""

from __future__ import annotations

import os

from ..checkpoints.progress import CheckpointSigns
from ..dump.hook import SITE
from ..host.secrets import Masks
from ..run import environment
from ..run.hangs import (
    hung_in_a_row,
    is_judged_by_progress,
    limit_of_first_step,
    limit_of_readiness,
    trains_alone,
)
from .keeper import AttemptSpec
from .observation import Observation
from .watchdog import Watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping, Optional

    from ..records.reasons import Because
    from ..records.run_state import Entry
    from ..records.spec import Spec, TaskSpec
    from ..records.words import TaskState
    from .attempt import Attempt


class Surroundings:
    """`changed` is told of each transition: (task, from, to, attempt, why).

    `touched` is told of other changes of an entry in state.json: True for one that others wait for.
    """

    def __init__(
        self,
        run_dir: str,
        spec: Spec,
        inherited: Mapping[str, str],
        secrets: Mapping[str, str],
        code: Optional[str],
        changed: Callable[[str, TaskState, TaskState, int, Because], None],
        touched: Callable[[bool], None],
    ) -> None:
        self.run_dir = run_dir
        self.spec = spec
        self.inherited = inherited
        self.secrets = secrets
        self.code = code
        self.changed = changed
        self.touched = touched
        self.masks = Masks(secrets.values())
        self.mending = False
        """A task of the run was lost and is not back yet, as the coordinator says."""
        self.may_start = True
        """Nobody may have taken over what runs here, as the coordinator says."""
        self.first_steps: Mapping[str, float] = {}
        """Of tasks whose peers have told steps: how long those took for the first, as the coordinator says."""
        self._checkpoints = CheckpointSigns(environment.Marks(code, inherited).words(spec["checkpoint_dirs"]))
        self._no_checkpoints = CheckpointSigns(())
        self._members = {member["task"]: member for member in spec["roster"]}

    def observe(self, task: str, attempt: Attempt, entry: Entry, port: Optional[int], now: float) -> Observation:
        """Observes a running attempt; `entry` is the task's in state.json, `port` None if readiness needs none."""
        return Observation(
            attempt,
            entry,
            port,
            self.spec["target_step"],
            self.watch(task, entry, now),
            self._no_checkpoints if trains_alone(self._members[task], self.spec["strategy"]) else self._checkpoints,
            lambda: self.mending,
            lambda: self.first_step_limit(task, entry),
            self.masks,
        )

    def watch(self, task: str, entry: Entry, now: float) -> Watchdog:
        longest_gap_s = entry["longest_gap_s"]
        trains = is_judged_by_progress(self._members[task])
        proven = entry["step"] is not None and longest_gap_s > 0
        recovery = self.spec["recovery"]
        in_vain = hung_in_a_row(entry) if recovery["first_step_s"] is None else 0
        adopted = entry["step"] is not None or entry["progress"] is not None
        return Watchdog(
            recovery["stall_s"],
            longest_gap_s,
            trains,
            proven,
            now,
            ready_limit_s=limit_of_readiness(entry, recovery["first_step_s"], recovery["stall_s"]),
            in_vain=in_vain,
            adopted=adopted,
        )

    def first_step_limit(self, task: str, entry: Entry) -> Optional[float]:
        """As the user has said, or as was learnt."""
        recovery = self.spec["recovery"]
        if recovery["first_step_s"] is not None:
            return recovery["first_step_s"]
        return limit_of_first_step(entry, self.first_steps.get(task, 0.0), recovery["stall_s"])

    def launch(self, task: TaskSpec, attempt: int, directory: str) -> AttemptSpec:
        """All that an attempt of a task needs."""
        env = environment.of_task(self.inherited, self.spec, task, self.secrets, attempt, key=directory)
        env["DTCTL_RUN_DIR"] = self.run_dir  # by it `gc` proves whose a process is
        if env.get("PYTHONFAULTHANDLER"):
            env["PYTHONPATH"] = ":".join(filter(None, [SITE, env.get("PYTHONPATH")]))  # so that it tells its stacks
        marks = environment.Marks(self.code, self.inherited)
        cwd = marks.code if task["code"] else marks.home
        wake_path = os.path.join(self.run_dir, "wake")
        return AttemptSpec(directory, wake_path, marks.words(task["argv"]), marks.values(env), cwd, key=directory)

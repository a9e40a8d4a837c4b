"""What all tasks of a host have in common: their run, and what its coordinator says of it."""

from __future__ import annotations

import os

from ..dump import SITE
from ..host.secrets import Masks
from ..run import containers, environment
from ..run.runfiles import RunFiles
from .keeper import AttemptSpec
from .storage import CheckpointSigns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Collection, Mapping, Optional

    from ..records.reasons import Because
    from ..records.spec import Spec, TaskSpec
    from ..records.values import TaskState


class TaskContext:
    """`changed` is called for each transition: (task, from, to, attempt, why).

    `touched` is called for other changes of an entry in state.json: True for one that others wait for.
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
        self.changed = changed
        self.touched = touched
        self.masks = Masks(secrets.values())
        self.members = {member["task"]: member for member in spec["roster"]}
        self.recovering = False
        """A task of the run was lost and is not back yet."""
        self.may_start = True
        """The run has not been taken over elsewhere."""
        self.first_steps: Mapping[str, float] = {}
        """Of tasks whose peers have reported steps: how long those took for the first."""
        self._inherited = inherited
        self._secrets = secrets
        self._marks = environment.Marks(code, inherited)
        self._box = containers.of_spec(RunFiles(run_dir).root, spec["environment"], self._marks)
        self.checkpoint_dirs = self._marks.expand(spec["checkpoint_dirs"])
        self.checkpoints = CheckpointSigns(self.checkpoint_dirs)

    def launch(self, task: TaskSpec, attempt: int, directory: str, without: Collection[str]) -> AttemptSpec:
        """All that an attempt of a task needs. `without`: tasks of the run that take no part in it."""
        box = self._box
        inherited = box.inherited(self._inherited) if box else self._inherited
        env = environment.of_task(inherited, self.spec, task, self._secrets, attempt, key=directory)
        env["DTCTL_RUN_DIR"] = self.run_dir  # by it `gc` proves whose a process is
        if env.get("PYTHONFAULTHANDLER"):
            env["PYTHONPATH"] = ":".join(filter(None, [SITE, env.get("PYTHONPATH")]))  # so that it writes its stacks
        marks, wake_path = self._marks.of_task(self.spec, task["id"], without), os.path.join(self.run_dir, "wake")
        cwd = marks.code if task["code"] else marks.home
        argv, env = marks.expand(task["argv"]), marks.values(env)
        if box is None:
            return AttemptSpec(directory, wake_path, argv, env, cwd)
        name = containers.name_of(self.spec["run"], task["id"], attempt)
        argv, env = box.words(name, argv, env, self._inherited, cwd, task["secrets"])
        return AttemptSpec(directory, wake_path, argv, env, cwd, box.removal(name))

"""The context that all tasks of a host share: their run, its state at the coordinator, and its checkpoint directories.

Those show that something is being saved, of which step it is, and whether this host sees the lead's. Threads inspect
them: a file server that does not answer blocks its caller.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from itertools import islice

from ..checkpoints import reading
from ..dump import SITE
from ..host import errors, files
from ..host.outputs import lead_mark, unmarked
from ..host.secrets import Masks
from ..records.spec import Spec, TaskSpec, has_lead, hold_s
from ..run import containers, environment
from .keeper import AttemptSpec
from .repairing import CheckpointRepair

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Collection, List, Mapping, Optional, Sequence, Tuple

    from ..records.checkpoints import Checkpoint
    from ..run.runfiles import RunFiles


class TaskContext:
    """`changed` is called for each transition: (task, from, to, attempt, why), and of an Event `end` or `asked`.

    `touched` is called for other changes of an entry in state.json: True for one that others wait for.
    """

    def __init__(
        self,
        run: RunFiles,
        spec: Spec,
        inherited: Mapping[str, str],
        secrets: Mapping[str, str],
        changed: Callable[..., None],
        touched: Callable[[bool], None],
    ) -> None:
        self.run = run
        self.spec = spec
        self.changed = changed
        self.touched = touched
        self.masks = Masks(secrets.values())
        self.members = {member["task"]: member for member in spec["roster"]}
        self.recovering = False
        """Whether a task of the run was lost and is not back yet."""
        self.may_start = True
        """Whether tasks may start: no other host has taken over the run."""
        self.holds = False
        """Whether tasks must not act: this host is cut off, and others may have been started in their place."""
        self.hold_s = hold_s(spec) or 0.0
        self.first_steps: Mapping[str, float] = {}
        """Task whose peers have reported steps -> how long they took for the first."""
        self.left_behind: Mapping[str, float] = {}
        """Task that a cut of the network may have left hanging -> how long it has made no step."""
        self._inherited = inherited
        self._secrets = secrets
        self._marks = environment.Marks(environment.code_directory(run.root, spec), inherited)
        self._box = containers.of_spec(run.root, spec["environment"], self._marks)
        self.checkpoint_dirs = self._marks.expand(spec["checkpoint_dirs"])
        self.checkpoints = CheckpointSigns(self.checkpoint_dirs)
        self.repair = CheckpointRepair(run.root, spec, self.checkpoint_dirs)

    def cwd(self, task: TaskSpec) -> str:
        """Where the task's program starts."""
        return self._marks.code if task["code"] else self._marks.home

    def launch(self, task: TaskSpec, attempt: int, directory: str, without: Collection[str]) -> AttemptSpec:
        """The spec of an attempt of a task. `without`: tasks of the run that take no part in it."""
        box = self._box
        inherited = box.inherited(self._inherited) if box else self._inherited
        env = environment.of_task(inherited, self.spec, task, self._secrets, attempt, key=directory)
        env["DTCTL_RUN_DIR"] = self.run.directory  # `gc` uses it to prove whose process it is
        if env.get("PYTHONFAULTHANDLER"):
            env["PYTHONPATH"] = ":".join(filter(None, [SITE, env.get("PYTHONPATH")]))  # so that it writes its stacks
        marks = self._marks.of_task(self.spec, task["id"], without)
        cwd = self.cwd(task)
        argv, env = marks.expand(task["argv"]), marks.values(env)
        if box is None:
            return AttemptSpec(self.run, directory, argv, env, cwd)
        name = containers.name_of(self.spec["run"], task["id"], attempt)
        argv, env = box.words(name, argv, env, self._inherited, cwd, task["secrets"])
        return AttemptSpec(self.run, directory, argv, env, cwd, box.removal(name))


SIGNS_S = 5.0
LOOK_S = 10.0
OLD_S = 60.0
"""Observations older than this do not count."""

_READS_OF_A_SAVE = 12
"""A save that takes longer is read after the next one."""

_MOST_ENTRIES = 1000


class _Looks:
    """Runs each inspection in a thread, and starts no second one before it has ended."""

    def __init__(self, look: Callable[[], None], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._next = 0.0
        self._thread: Optional[threading.Thread] = None

    def step(self, now: float) -> bool:
        """Begins another one when it is time; whether one has ended since the last call."""
        has_ended = self._thread is not None and not self._thread.is_alive()
        if has_ended:
            self._thread = None
        if self._thread is None and now >= self._next:
            self._next = now + self._every_s
            thread = threading.Thread(target=self._look, daemon=True)
            with suppress(RuntimeError):  # the user's limit of threads is reached
                thread.start()
                self._thread = thread
        return has_ended


class CheckpointSigns:
    """Whether something is being saved, as a sign of progress, and of which step it is."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = directories
        self._changes = 0
        self._seen: Optional[List[Tuple[str, int]]] = None
        self._reads = 0
        """The number of the next looks in which checkpoints are read."""
        self._wanted = False
        self._newest: Optional[Checkpoint] = None
        self._looks = _Looks(self._look, SIGNS_S)

    def changes(self, now: float) -> int:
        """How often something was found to have been saved so far; another look is begun every 5 s."""
        if self._directories:
            self._looks.step(now)
        return self._changes

    def step(self, now: float, since: float) -> Optional[int]:
        """The step of the newest complete checkpoint, if that was saved since this time.

        From the first call on, checkpoints are read after each save.
        """
        if not self._wanted:
            self._wanted, self._reads = True, 1
        self.changes(now)
        newest = self._newest
        return newest["step"] if newest is not None and newest["time"] >= since else None

    def _look(self) -> None:
        found = [sign for directory in self._directories for sign in _times(directory)]
        is_new = found != self._seen
        self._changes += is_new and self._seen is not None
        self._seen = found
        if self._wanted and is_new:
            self._reads = _READS_OF_A_SAVE
        if self._reads:
            self._read()

    def _read(self) -> None:
        reports = reading.report(list(self._directories))
        is_whole = not any(one["incomplete"] or one["problem"] for one in reports)
        self._reads = 0 if is_whole else self._reads - 1
        complete = [one for each in reports for one in each["all"] if one["complete"] and one["step"] is not None]
        self._newest = max(complete, key=lambda one: one["time"], default=self._newest)


def _times(directory: str) -> List[Tuple[str, int]]:
    """When entries were last added to or removed from a directory and those in it, as every save does."""
    try:
        with os.scandir(directory) as entries:
            below = sorted(entry.path for entry in islice(entries, _MOST_ENTRIES) if files.leads_on(entry))
        return [(path, os.stat(path).st_mtime_ns) for path in [directory, *below]]
    except OSError:
        return []  # nothing has been saved yet, or it changes just now


class SharedStorage:
    """Whether this host sees the checkpoints that the lead writes: by a file that the lead's agent puts beside them.

    A run with spares has one. `directories`: the checkpoint directories on this host.
    """

    def __init__(self, spec: Spec, directories: List[str]) -> None:
        self._writes = has_lead(spec)
        self._run = spec["run"]
        self._directories = directories if spec["spares"] else []
        self._looks = _Looks(self._look, LOOK_S)
        self._seen_at = float("-inf")
        self._unseen: List[str] = []

    def unseen(self, now: float) -> Optional[List[str]]:
        """Directories that are not the lead's; None while that is unknown."""
        if self._directories and self._looks.step(now):
            self._seen_at = now
        return self._unseen if now - self._seen_at < OLD_S else None

    def close(self) -> None:
        """Removes the marks at the end of the run."""
        for directory in self._directories if self._writes else ():
            with suppress(OSError):
                os.unlink(lead_mark(directory, self._run))

    def _look(self) -> None:
        if self._writes:
            for directory in self._directories:
                self._mark(directory)
        self._unseen = unmarked(self._directories, self._run)

    def _mark(self, directory: str) -> None:
        try:
            os.close(os.open(lead_mark(directory, self._run), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644))
        except FileNotFoundError:
            pass  # the trainer creates it
        except OSError as error:
            errors.note("checkpoints: %s" % error)

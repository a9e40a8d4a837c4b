"""The supervisor of one run on one host: a loop that observes, decides and acts, and holds `agent.lock`."""

from __future__ import annotations

import math
import os
import select
import time
from contextlib import suppress

from ..checkpoints.progress import CheckpointSigns
from ..coordinate.role import take_role
from ..dump.threads import SITE
from ..host import fifo, log, paths, ports, processes
from ..host.secrets import Masks
from ..records.reasons import because, fact, said
from ..records.spec import ports_of
from ..run import environment, intents
from ..run.hangs import (
    Watchdog,
    hung_in_a_row,
    is_judged_by_progress,
    limit_of_first_step,
    limit_of_readiness,
    trains_alone,
)
from ..run.runfiles import RunFiles
from ..vitals.machine_load import MachineLoad, presses
from . import rebuilding
from .keeper import AttemptSpec
from .observation import Observation
from .task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional

    from ..coordinate.role import Role
    from ..records.reasons import Because
    from ..records.run_state import Entry, Intent
    from ..records.spec import Spec, TaskSpec
    from ..records.whole_run import Event
    from ..records.words import TaskState
    from .attempt import Attempt


class TaskContext:
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
        self.recovering = False
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
            lambda: self.recovering,
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


PROGRESS_S = 2.0
"""Between two states that differ in nothing but the tasks' progress."""

LONGEST_WAIT_S = 1.0
LOAD_S = 10.0
"""Between two samples of the host."""


class Supervisor:
    """`state` is state.json; it is written when something in it has changed, and again until the disk takes it."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._spec = files.spec()
        self._claims = ports.claim(ports_of(self._spec))
        self._wake = -1
        self._changes = True
        self._progress = False
        self._unsaved = True
        self._published = 0.0
        now, wall = time.monotonic(), time.time()
        damage: List[str] = []
        self.state = rebuilding.state(files, self._spec, wall, damage.append)
        self._intent = intents.IntentFollower(files, rebuilding.intents(self.state), damage.append)
        self._was_finished = self.state["finished"]
        me, before = processes.myself(), self.state["agent"]
        rebooted = before is not None and before["boot_id"] != me["boot_id"]
        self.state.update({"agent": {**me, "since": wall}, "finished": False})
        self._around = TaskContext(
            files.directory,
            self._spec,
            files.inherited(),
            files.secrets(),
            files.code_directory(),
            self._changed,
            self._touched,
        )
        entries = self.state["tasks"]
        self._tasks = [Task(spec, entries[spec["id"]], self._around, now, wall) for spec in self._spec["tasks"]]
        self._lasting = rebuilding.LastingFiles(files.directory)
        for text in damage:
            self._tell_damage(text)
        self._intent.report = self._tell_damage
        self._role = take_role(self._files, self._spec, now, rebooted=rebooted)
        self._around.may_start = self._role.may_start
        self._load = MachineLoad()
        self._next_load = 0.0

    def run(self, at_each_look: Callable[[], None]) -> None:
        """Returns when every task is final, and nobody else needs this host's agent."""
        self._wake = fifo.listen(self._files.wake_path)
        while os.path.isdir(self._files.directory):
            at_each_look()
            now, wall = time.monotonic(), time.time()
            self._restore_files()
            self._step_tasks(now, wall)
            self._sample(now, wall)
            self._publish(now)
            self._save()  # what others are told is on the disk
            if self._has_new_orders(now, wall):
                continue
            if self._over() and self._finish():
                return
            self._save()
            self._wait()

    def _restore_files(self) -> None:
        """What somebody has removed or emptied. Sessions, and the next agent, need each of them."""
        try:
            if (restored := self._lasting.restore()) is not None:
                self._tell_damage(restored)
            if not fifo.is_read(self._files.wake_path):
                unread, self._wake = self._wake, fifo.listen(self._files.wake_path)
                os.close(unread)
        except OSError as error:
            log.note("%s" % error)
        self._unsaved = self._unsaved or not rebuilding.size_bytes(self._files.state_path)

    def _step_tasks(self, now: float, wall: float) -> None:
        self._intent.read()
        if self.state["intent_serial"] != self._intent.value["serial"]:
            self.state["intent_serial"] = self._intent.value["serial"]
            self._changes = True
        for task in self._tasks:
            intent = self._intent.value["tasks"][task.id]
            if self._intent.lost_session:
                intent = _given_up(intent)
            try:
                task.step(intent, now, wall)
            except OSError as error:
                log.note("%s: %s" % (task.id, error))  # a full disk, too many files: later
        self._files.events.write_waiting()

    def _sample(self, now: float, wall: float) -> None:
        """How busy the host is, told with the next that is new here; it is news that something becomes short."""
        if now < self._next_load:
            return
        self._next_load = now + LOAD_S
        before, sample = self.state["machine"], self._load.look(wall)
        self.state["machine"] = sample
        if before is None or presses(before) != presses(sample):
            self._progress = True

    def _has_new_orders(self, now: float, wall: float) -> bool:
        """Tells the coordinator what is new here, and takes its orders."""
        orders = self._role.step(now, wall, self.state, self._intent)
        self._around.recovering = self._role.recovering
        self._around.may_start = self._role.may_start
        self._around.first_steps = self._role.first_steps
        return orders is not None and self._intent.take(orders)

    def _changed(self, task: str, before: TaskState, after: TaskState, attempt: int, why: Because) -> None:
        self._changes = True
        event: Event = {
            "time": time.time(),
            "task": task,
            "attempt": attempt,
            "from": before,
            "to": after,
            **why,
        }
        self._files.events.add(event)

    def _tell_damage(self, text: str) -> None:
        """In agent.log, and in the run's story as an event of every task: it is their record."""
        log.note(text)
        why = because(said(text))
        for task, entry in self.state["tasks"].items():
            self._changed(task, entry["state"], entry["state"], entry["attempt"], why)

    def _touched(self, awaited: bool) -> None:
        self._changes = self._changes or awaited
        self._progress = True

    def _over(self) -> bool:
        if not all(task.final for task in self._tasks):
            return False
        if self._role.over or self._intent.lost_session:
            return True
        wants = {intent["want"] for intent in self._intent.value["tasks"].values()}
        return wants <= {"stop"} and not self._role.connected and not self._awaits_coordinator()

    def _awaits_coordinator(self) -> bool:
        """A coordinator that comes back has to hear that tasks were stopped meanwhile: it may be waiting for them."""
        if self._was_finished:  # it had told this host that nothing more would be asked
            return False
        ended = max((entry["since"] or 0.0 for entry in self.state["tasks"].values()), default=0.0)
        return time.time() - ended < intents.AWAIT_S

    def _finish(self) -> bool:
        """Ends the run's life here, unless a session has changed the intent since it was read.

        The FIFO is closed under the same lock under which sessions write the intent: one that finds no reader
        knows that this supervisor has seen nothing of it.
        """
        with self._files.intent_lock():
            if not self._intent.settled():
                return False
            self.state["finished"] = True
            self._changes = True
            self._publish(time.monotonic())
            if not self._save():
                self.state["finished"] = False
                return False
            os.close(self._wake)
        self._role.close()
        return True

    def _publish(self, now: float) -> None:
        """Gives a changed state its serial, by which others notice it."""
        if self._changes or (self._progress and now - self._published >= PROGRESS_S):
            self.state["serial"] += 1
            self._published = now
            self._changes = self._progress = False
            self._unsaved = True

    def _save(self) -> bool:
        if self._unsaved:
            try:
                paths.write_json(self._files.state_path, self.state)
                self._unsaved = False
            except OSError as error:
                log.note("state: %s" % error)
        return not self._unsaved

    def _wait(self) -> None:
        """Until somebody writes into `wake`, a connection has news, or it is time for a look."""
        now = time.monotonic()
        times = [now + LONGEST_WAIT_S, *(task.due(now) for task in self._tasks)]
        waiting = select.poll()
        waiting.register(self._wake, select.POLLIN)
        due = self._role.due(now)
        times += [due] if due is not None else []
        for descriptor, events in _events(self._role).items():
            waiting.register(descriptor, events)
        waiting.poll(math.ceil(max(0.0, min(times) - now) * 1000))
        with suppress(BlockingIOError):
            os.read(self._wake, 65536)


def _given_up(intent: Intent) -> Intent:
    return {**intent, "want": "stop", "grace_s": 0.0, **because([fact("session_lost")])}


def _events(role: Role) -> Dict[int, int]:
    """What to wait for on each of its descriptors."""
    readers, writers = role.register()
    wanted = dict.fromkeys(readers, select.POLLIN)
    for descriptor in writers:
        wanted[descriptor] = wanted.get(descriptor, 0) | select.POLLOUT
    return wanted

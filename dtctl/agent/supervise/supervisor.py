"""The supervisor of one run on one host: a loop that observes, decides and acts, and holds `agent.lock`."""

from __future__ import annotations

import math
import os
import select
import time
from contextlib import suppress

from .. import rooms
from ..host import errors, paths, ports, processes, wake
from ..records.reasons import Because, because, fact, said
from ..records.run_state import ahead_s, on_clock
from ..records.spec import Moved, coordinates, kept_by_coordinator, ports_of, votes
from ..records.values import FINAL, TaskState
from ..run import drains, intents, letters
from ..vitals.gpus import Reader
from ..vitals.machine_load import MachineLoad, presses
from . import rebuilding
from .context import SharedStorage, TaskContext
from .task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Union

    from ..coordinate.following import Following
    from ..coordinate.leading import Leading
    from ..coordinate.superseded import Farewell
    from ..coordinate.voting import Voter
    from ..coordinate.waiting import Waiting
    from ..records.run_state import Intent, Past
    from ..records.spec import Spec
    from ..records.whole_run import Event
    from ..rooms import Observer
    from ..run.runfiles import RunFiles

    Role = Union[Following, Leading]


PROGRESS_S = 2.0
"""The least interval between two states that differ only in the tasks' progress."""

LONGEST_WAIT_S = 1.0
LOAD_S = 10.0
"""The interval between two samples of the host."""


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
        self._epoch = wall - now
        damage: List[str] = []
        self.state = rebuilding.state(files, self._spec, wall, damage.append)
        self._intent = intents.IntentFollower(files, rebuilding.intents(self.state), damage.append)
        self._was_finished = self.state["finished"]
        me, before = processes.myself(), self.state["agent"]
        rebooted = before is not None and before["boot_id"] != me["boot_id"]
        self.state.update({"agent": {**me, "since": wall}, "finished": False})
        self._context = TaskContext(files, self._spec, files.inherited(), files.secrets(), self._changed, self._touched)
        entries = self.state["tasks"]
        self._tasks = [Task(spec, entries[spec["id"]], self._context, now, wall) for spec in self._spec["tasks"]]
        self._lasting = rebuilding.LastingFiles(files.directory)
        for text in damage:
            self._report_damage(text)
        self._intent.report = self._report_damage
        self._voter = self._new_voter(now) if votes(self._spec) else None
        self._role = take_role(files, self._voter, now, rebooted=rebooted)
        self._context.may_start = self._role.may_start and not self._role.holds()
        self._farewell: Optional[Farewell] = None
        self._letters = letters.Letters()
        self._load = MachineLoad()
        self._storage = SharedStorage(self._spec, self._context.checkpoint_dirs)
        self._gpus = Reader(self._spec["tasks"], LOAD_S)
        self._observers = _observers(files, self._spec)
        self._next_load = 0.0
        self._is_to_leave = False
        self._leaves_since: Optional[float] = None

    def leave(self) -> None:
        """The host shuts down. Signal handlers call this; `run` does the rest."""
        self._is_to_leave = True
        wake.ring(self._files.wake_path)

    def run(self, at_each_look: Callable[[], None]) -> None:
        """Returns when every task is final, and the run needs this host's agent no more; or when it is to leave.

        Or when its guard is to start another, which begins with other tasks, or with other addresses of theirs.
        """
        self._wake = wake.listen(self._files.wake_path)
        while os.path.isdir(self._files.directory):
            now, wall = time.monotonic(), time.time()
            self._follow_clock(now, wall)
            if not self._is_to_leave:
                at_each_look()
            elif self._leaves_since is None:
                self._leave(now)
            self._restore_files()
            self._step_tasks(now, wall)
            self._sample(now, wall)
            self._observe(now, wall)
            self._publish(now)
            self._save()  # every reported fact is on the disk
            if self._has_new_orders(now, wall):
                continue
            if self._over() and self._has_said_farewell(now) and self._finish():
                if self._role.is_removed:
                    self._files.remove_aside()
                return
            self._save()
            if self._role.moved is not None and self._begins_anew(self._role.moved):
                self._role.close()
                return
            if self._leaves_since is not None and intents.has_left(self.state["tasks"], self._leaves_since, now):
                self._role.close()
                return
            self._wait()

    def _follow_clock(self, now: float, wall: float) -> None:
        """When the wall clock is set, what it has shown before moves with it: how long ago that was stays the same."""
        jump_s = ahead_s(wall - now, self._epoch)
        if jump_s:
            self._epoch += jump_s
            self._next_load = now
            for entry in self.state["tasks"].values():
                entry.update(on_clock(entry, jump_s))
            self._changes = True

    def _leave(self, now: float) -> None:
        self._leaves_since = now
        self._context.may_start = False
        for task in self._tasks:
            task.expect_end()

    def _begins_anew(self, moved: Moved) -> bool:
        """Whether the next agent can begin with these moves: nothing is left of what this host has no more."""
        orders = intents.to_move(self._files, self._spec, moved, self._intent.value["tasks"])
        if orders is None:
            return False
        self._intent.take(orders)
        are_gone = all(self.state["tasks"][task]["state"] in FINAL for task in orders)
        return are_gone and intents.write_moves(self._files, moved)

    def _restore_files(self) -> None:
        """Restores what was removed or emptied. Sessions, and the next agent, need each of these files."""
        try:
            if (restored := self._lasting.restore()) is not None:
                self._report_damage(restored)
            if not wake.is_read(self._files.wake_path):
                unread, self._wake = self._wake, wake.listen(self._files.wake_path)
                os.close(unread)
        except OSError as error:
            errors.note("%s" % error)
        self._unsaved = self._unsaved or not rebuilding.size_bytes(self._files.state_path)

    def _step_tasks(self, now: float, wall: float) -> None:
        self._intent.read()
        self._letters.obey(self._intent)
        wanted, entries = self._intent.value["tasks"], self.state["tasks"]
        leaves = self._leaves_since is not None
        spec = self._spec
        self._intent.take(intents.to_leave(spec, wanted, entries) if leaves else intents.to_return(spec, wanted))
        if self.state["intent_serial"] != self._intent.value["serial"]:
            self.state["intent_serial"] = self._intent.value["serial"]
            self._changes = True
        self._context.holds = self._role.holds()
        grace_s = self._role.fence_s()
        if grace_s is not None:
            self._intent.take(intents.to_hold(drains.CUT_OFF, grace_s, self._spec, wanted, entries))
        for task in self._tasks:
            intent = self._intent.value["tasks"][task.id]
            if self._gives_up:
                intent = _given_up(intent)
            try:
                task.step(intent, now, wall)
            except OSError as error:
                errors.note("%s: %s" % (task.id, error))  # a full disk, too many files: later
        self._letters.answer(self.state)
        self._files.events.write_waiting()

    def _sample(self, now: float, wall: float) -> None:
        """How busy the host is: sent with the next news. GPUs are news themselves, as is that something is short."""
        unseen = self._storage.unseen(now)
        if unseen != self.state["unseen"]:
            self.state["unseen"], self._changes = unseen, True
        if now < self._next_load:
            return
        self._next_load = now + LOAD_S
        before, sample = self.state["machine"], self._load.sample(wall, self._files.directory)
        self.state["machine"] = sample
        sample["gpus"] = self._gpus.read(now)
        if before is None or presses(before) != presses(sample) or sample["gpus"] != before["gpus"]:
            self._progress = True

    def _observe(self, now: float, wall: float) -> None:
        """Lets rooms observe. A run must not depend on them: one that fails is left out from then on."""
        for observer in self._observers[:]:
            try:
                observer.step(now, wall, self.state)
            except Exception as error:
                errors.note("%s: %r" % (type(observer).__module__, error))
                self._observers.remove(observer)

    def _has_new_orders(self, now: float, wall: float) -> bool:
        """Reports changes to the coordinator, and takes its orders."""
        orders = self._role.step(now, wall, self.state, self._intent)
        if self._role.outdated:
            self._role.close()
            self._role = take_role(self._files, self._voter, now)
        self._context.recovering = self._role.recovering
        self._context.may_start = self._role.may_start and not (self._is_to_leave or self._role.holds())
        self._context.first_steps = self._role.first_steps
        self._context.left_behind = self._role.left_behind
        return orders is not None and self._intent.take(orders)

    def _new_voter(self, now: float) -> Voter:
        from ..coordinate.voting import Voter  # most hosts of a large run do not vote

        return Voter(self._files, self._spec, now)

    def _changed(
        self,
        task: str,
        before: TaskState,
        after: TaskState,
        attempt: int,
        why: Because,
        *,
        end: Optional[Past] = None,
        asked: bool = False,
    ) -> None:
        self._changes = True
        event: Event = {
            "time": time.time(),
            "task": task,
            "attempt": attempt,
            "from": before,
            "to": after,
            "end": end,
            "asked": asked,
            **why,
        }
        self._files.events.add(event)

    def _report_damage(self, text: str) -> None:
        """Reports damage in agent.log, and in the run's history as an event of every task."""
        errors.note(text)
        why = because(said(text))
        for task, entry in self.state["tasks"].items():
            self._changed(task, entry["state"], entry["state"], entry["attempt"], why)

    def _touched(self, awaited: bool) -> None:
        self._changes = self._changes or awaited
        self._progress = True

    def _over(self) -> bool:
        if not self._tasks:
            is_asked = self._intent.value["ends_run"] is not None
            return is_asked or self._role.over or self._gives_up or self._is_forgotten()
        if not all(task.final for task in self._tasks):
            return False
        if self._role.over or (self._gives_up and not coordinates(self._spec)):
            return True
        wants = {intent["want"] for intent in self._intent.value["tasks"].values()}
        return wants <= {"stop"} and not self._role.connected and not self._awaits_coordinator()

    @property
    def _gives_up(self) -> bool:
        """The session ended before the run was kept, and no coordinator can keep it."""
        return self._intent.lost_session and not kept_by_coordinator(self._spec)

    def _is_forgotten(self) -> bool:
        """Whether a host without tasks can leave: the run was never kept here, or has ended without it."""
        silent_s = self._role.silent_s(time.monotonic())
        return silent_s >= (self._spec["start_timeout_s"] if self._intent.lost_session else intents.AWAIT_S)

    def _awaits_coordinator(self) -> bool:
        """A coordinator that comes back has to hear that tasks were stopped meanwhile: it may be waiting for them."""
        if self._was_finished:  # it has reported before that it is done
            return False
        ended = max((entry["since"] or 0.0 for entry in self.state["tasks"].values()), default=0.0)
        return time.time() - ended < intents.AWAIT_S

    def _has_said_farewell(self, now: float) -> bool:
        """Those that may wait for this host have heard that it has ended what it had, or cannot be reached.

        It has when the disk says that every task is to be stopped: no later agent starts any of them.
        """
        if not self._role.is_superseded:
            return True
        if self._farewell is None:
            with self._files.intent_lock():
                if not self._intent.settled():
                    return False
            from ..coordinate.superseded import Farewell  # rarely needed

            self._farewell = Farewell(self._files, self._spec, now)
        return self._farewell.step(now)

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
        self._storage.close()
        self._gpus.close()
        self._role.close()
        if self._farewell is not None:
            self._farewell.close()
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
                errors.note("state: %s" % error)
        return not self._unsaved

    def _wait(self) -> None:
        """Waits until `wake` is written to, a connection has news, or a task is due."""
        wake.show_work(self._wake)
        now = time.monotonic()
        due = self._role.due()
        times = [now + LONGEST_WAIT_S, *(task.due(now) for task in self._tasks), *([due] if due is not None else [])]
        if self._farewell is not None:
            times.append(self._farewell.due())
        waiting = select.poll()
        waiting.register(self._wake, select.POLLIN)
        self._role.register(waiting)
        if self._farewell is not None:
            self._farewell.register(waiting)
        waiting.poll(math.ceil(max(0.0, min(times) - now) * 1000))
        with suppress(BlockingIOError):
            self._letters.feed(os.read(self._wake, 65536))


def _observers(files: RunFiles, spec: Spec) -> List[Observer]:
    """What rooms observe of the run, as `Supervisor._observe`: without one that cannot begin."""
    found: List[Observer] = []
    for name in rooms.OBSERVERS:
        try:
            found.append(rooms.load(name)(files, spec))
        except Exception as error:
            errors.note("%s: %r" % (name, error))
    return found


def agent_of(files: RunFiles) -> Union[Supervisor, Waiting]:
    """What works for a run on this host. A run that was taken down has nothing left to supervise."""
    with suppress(paths.Damaged):
        awaited = files.awaited()
        if awaited is not None and awaited["is_removed"]:
            from ..coordinate.waiting import Waiting  # rarely needed

            return Waiting(files, awaited)
    return Supervisor(files)


def _given_up(intent: Intent) -> Intent:
    return {**intent, "want": "stop", "grace_s": 0.0, "ends_as": intents.ABANDONED, **because([fact("session_lost")])}


def take_role(files: RunFiles, voter: Optional[Voter], now: float, *, rebooted: bool = False) -> Role:
    """This agent's part in its run. Its `step` never blocks, and gives new intents for this host's tasks."""
    spec = files.spec()
    if voter.leads if voter is not None else coordinates(spec):
        from ..coordinate.leading import Leading

        before = voter.take_over() if voter is not None else None
        return Leading(files, spec, now, rebooted=rebooted, voter=voter, before=before)
    from ..coordinate.following import Following

    if voter is not None:
        voter.hand_over()
    return Following(files, spec, now, rebooted=rebooted, voter=voter)

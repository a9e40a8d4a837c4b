"""One task under supervision: observes its attempt, decides, and takes the next step.

Every transition there is:

    pending  -> starting    an attempt is given to a keeper
    starting -> running     the keeper has recorded the start, and exec succeeded
    running  -> stalled     it is frozen, or makes no progress: its stack is asked for, then it is killed
    running  -> succeeded   exit code 0 that was not requested
    running  -> backoff     another exit that was not requested, and that may be tried again
    backoff  -> starting    after the delay; without one, when the coordinator asks for another generation, or
                            when it was early, and those that it needs are ready
    running  -> failed      past the budget, or an exit that may not be tried again, or the run's outcome is decided
    backoff  -> failed      the run's outcome is decided, or nothing of it is to continue
    pending  -> stopped     the run's outcome is decided
    any      -> stopped     the intent demands it, and nothing of the process tree is left
    any      -> starting    another generation is to run, and nothing of the process tree is left
    any      -> pending     another generation is to be held, and nothing of the process tree is left
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import paths, processes
from ..logs.lines import last_lines
from ..records.kinds import made
from ..records.reasons import Fact, because, explain, fact, why_of
from ..records.run_state import HISTORY, MOST_LEFT, Ending, Entry, Intent, Left, Past
from ..records.values import FINAL, TaskState, brief
from ..run import policy
from ..run.hangs import why_hung
from . import autopsy, keeper
from .attempt import Attempt, LogLimit
from .observation import FIRST_LOOK_S, FIRST_S, LOOK_S, READY_LOOK_S, Observation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..records.run_state import Exit
    from ..records.spec import TaskSpec
    from ..records.values import Repair
    from .context import TaskContext

ENDING_LOOK_S = 0.1
EARLY_S = 5.0
"""A program that ends within this time after the tasks that it needs are ready may not have found them."""


class Task:
    """`entry` is the task's part of state.json."""

    def __init__(self, spec: TaskSpec, entry: Entry, context: TaskContext, now: float, wall: float) -> None:
        self.id = spec["id"]
        self.entry = entry
        self._spec = spec
        self._context = context
        self._log_limit = LogLimit(context.spec["log_limit_bytes"])
        self._attempt: Optional[Attempt] = None
        self._observation: Optional[Observation] = None
        self._dump: Optional[autopsy.StackDump] = None
        self._start_at: Optional[float] = None
        """When the back-off ends."""
        self._exit_before: Optional[Exit] = None
        """The exit of the attempt before the newest, if this agent began the newest."""
        self._early_until = 0.0
        self._new_until = 0.0
        """The time until which the first step of a new attempt is looked for often."""
        """Until then a failed attempt still counts as early, although the tasks that it needs are ready."""
        self._repairing: Optional[Repair] = None
        """How the run's checkpoints are being repaired, before this task restores one."""
        self._adopt(now, wall)

    @property
    def final(self) -> bool:
        return self.entry["state"] in FINAL

    def due(self, now: float) -> float:
        """When the next step is to be taken, at the latest."""
        if self._repairing is not None:
            return now + ENDING_LOOK_S
        if self._start_at is not None:
            return self._start_at
        if self._dump is not None or (self._attempt is not None and self._attempt.ending):
            return now + (LOOK_S if self.entry["left"] else ENDING_LOOK_S)
        if self.entry["state"] == "running" and self.entry["step"] is None and now < self._new_until:
            return now + FIRST_LOOK_S
        return now + (READY_LOOK_S if self.entry["state"] == "running" and not self.entry["ready"] else LOOK_S)

    def step(self, intent: Intent, now: float, wall: float) -> None:
        """Observes, decides and acts, once, without waiting."""
        if self.entry["version"] != intent["version"]:
            self.entry["version"] = intent["version"]
            if intent["want"] == "hold" and self.entry["state"] == "pending":
                explain(self.entry, why_of(intent))
                self._note_hold(intent)
            self._context.touched(True)
        if self._attempt is None:
            self._step_idle(intent, now, wall)
        else:
            self._step_attempt(self._attempt, intent, now, wall)

    def expect_end(self) -> None:
        """Records that its process will be ended, also by others than this agent, so any exit counts as requested."""
        if self._attempt is not None and not self.entry["asked"]:
            self._note_ending()

    def _step_idle(self, intent: Intent, now: float, wall: float) -> None:
        if self._is_repairing(intent):
            return
        is_due = self._start_at is not None and now >= self._start_at
        decision = policy.while_idle(self.entry, intent, may_start=self._context.may_start, is_due=is_due)
        if decision is not None:
            self._follow_decision(decision, intent, now, wall)
        elif intent["want"] == "hold" and self._start_at is not None:
            self._start_at = max(self._start_at, now + LOOK_S)

    def _is_repairing(self, intent: Intent) -> bool:
        """Whether damaged checkpoints are being set aside. It does not start meanwhile, whatever is ordered."""
        if self._repairing is None and intent["want"] == "hold" and self.entry["generation"] >= intent["generation"]:
            done, how = self.entry["repaired"], intent["repair"]
            is_done = done is not None and done["attempt"] == self.entry["attempt"] and done["how"] in (how, "full")
            self._repairing = None if is_done else how
        if self._repairing is None:
            return False
        repaired = self._context.repair.step(self._repairing, self.entry["attempt"])
        if repaired is not None:
            self._repairing, self.entry["repaired"] = None, repaired
            self._context.touched(True)
        return repaired is None

    def _step_attempt(self, attempt: Attempt, intent: Intent, now: float, wall: float) -> None:
        if intent["early"]:
            self._early_until = now + EARLY_S
        attempt.update(now, wall)
        self._log_limit.update(attempt.directory)
        state = self.entry["state"]
        if attempt.exit is not None:
            if attempt.cleared(self.entry["asked"], self._grace(intent), now):
                self._conclude(attempt, attempt.exit, intent, now, wall)
                return
        elif intent["want"] == "stop" or policy.replaced(intent, self.entry["generation"]):
            self._end(attempt, intent, now)
        elif state == "stalled":
            self._kill_hung(attempt, now)
        elif self._holds:
            self._hold_still(attempt)
        elif self.entry["held"]:
            self._let_go_on(attempt)
        elif state == "starting":
            if attempt.runs(now):
                self._set_running(attempt, wall)
        elif not attempt.is_unwritten(now):
            self._observe(attempt, intent, now, wall)
        if attempt.is_unwritten(now):
            self._note_unwritten()
        self._note_left(attempt, now)

    def _adopt(self, now: float, wall: float) -> None:
        """Takes up what an earlier supervisor has left.

        The attempts' directories count where it could not write its last state. A delay continues, whatever has
        been done to the wall clock since.
        """
        newest = paths.last_attempt(self._context.run.directory, self.id)
        if newest > self.entry["attempt"]:
            self.entry.update({"state": "starting", "attempt": newest, "exit": None, "asked": False, "hang": None})
            explain(self.entry, [])
            self._forget_attempt()
        if self.entry["state"] in ("starting", "running", "stalled"):
            self._attempt = Attempt(self._directory, now)
        if self.entry["state"] == "backoff" and self.entry["next_start"] is not None:
            left = self.entry["next_start"] - wall
            longest = policy.back_off(1000, self._context.spec["recovery"], 1, shortage=_had_shortage(self.entry))
            self._start_at = now + min(max(left, 0.0), longest)

    def _set_running(self, attempt: Attempt, wall: float) -> None:
        trainer = attempt.trainer
        if trainer is not None:
            self.entry.update({"pid": trainer["pid"], "start_time": trainer["start_time"]})
        if attempt.start is not None and attempt.start["argv"]:
            self.entry["program"] = brief(attempt.start["argv"][0])
        self._move("running", [], wall)  # starting -> running

    def _observe(self, attempt: Attempt, intent: Intent, now: float, wall: float) -> None:
        observation = self._observing(attempt, now)
        if observation.sees_ready(now):
            self._context.touched(True)
        hung = observation.update(now, wall)
        if observation.has_news():
            self._context.touched(False)
        if hung is not None and intent["want"] != "finish":
            self.entry["hang"] = hung
            self._move("stalled", [why_hung(hung)], wall)  # running -> stalled
            self._kill_hung(attempt, now)

    def _observing(self, attempt: Attempt, now: float) -> Observation:
        if self._observation is None:
            self._observation = Observation(self._context, self._spec, self.entry, attempt, now)
        return self._observation

    def _kill_hung(self, attempt: Attempt, now: float) -> None:
        """Asks what hangs for its stack, and then kills it: it cannot be expected to heed anything."""
        trainer = attempt.trainer
        if self._dump is None and trainer is not None:
            self._dump = autopsy.StackDump(attempt.directory, trainer, attempt.key, now)
        if self._dump is None or self._dump.step(now):
            attempt.end(0.0, now)

    @property
    def _holds(self) -> bool:
        """Whether it must not act now. A ps only answers, and others may need it that are not cut off from it."""
        return self._context.holds and self._context.members[self.id]["role"] != "ps"

    def _hold_still(self, attempt: Attempt) -> None:
        attempt.hold()
        if not self.entry["held"]:
            self._note_held(True, fact("held_still", host=self._context.spec["host"], seconds=self._context.hold_s))

    def _let_go_on(self, attempt: Attempt) -> None:
        attempt.resume()
        self._note_held(False, fact("goes_on", host=self._context.spec["host"]))

    def _note_held(self, is_held: bool, why: Fact) -> None:
        self.entry["held"] = is_held
        explain(self.entry, [why] if is_held else [])
        state = self.entry["state"]
        self._context.changed(self.id, state, state, self.entry["attempt"], because([why]))

    def _note_hold(self, intent: Intent) -> None:
        self.entry["hold"] = intent["holds"][0] if intent["want"] == "hold" and intent["holds"] else None

    def _end(self, attempt: Attempt, intent: Intent, now: float) -> None:
        if attempt.end(self._grace(intent), now) and not self.entry["asked"]:
            self._note_ending()

    def _note_unwritten(self) -> None:
        """The state stays: what follows depends on the exit. One that is stalled keeps the reason for its history."""
        if self.entry["state"] != "stalled" and not self.entry["unwritten"]:
            self.entry.update({"pid": None, "start_time": None, "unwritten": True})
            explain(self.entry, [fact("exit_unwritten", host=self._context.spec["host"])])
            self._context.touched(True)

    def _note_ending(self) -> None:
        self.entry["asked"] = True
        state = self.entry["state"]
        self._context.changed(self.id, state, state, self.entry["attempt"], because([fact("ending")]), asked=True)

    def _grace(self, intent: Intent) -> float:
        if self.entry["state"] == "stalled" or self.entry["held"] or self._holds:
            return 0.0  # it hangs, or must not act any more: SIGTERM would let it save
        grace = intent["grace_s"]
        return self._context.spec["grace_s"] if grace is None else grace

    def _note_left(self, attempt: Attempt, now: float) -> None:
        outlived = attempt.left(now)[:MOST_LEFT]
        left: List[Left] = [{"pid": each.pid, "command": processes.command(each.pid)} for each in outlived]
        if left != self.entry["left"]:
            self.entry["left"] = left
            self._context.touched(True)

    def _conclude(self, attempt: Attempt, ending: Ending, intent: Intent, now: float, wall: float) -> None:
        """Writes the attempt into the history and decides what follows."""
        entry = self.entry
        if entry["state"] == "starting" and ending["fault"] is None:
            self._set_running(attempt, wall)  # it has ended before it was looked at
        self._observing(attempt, now).sees_end(now, wall)
        start = attempt.start
        ended = ending["ended"] or wall
        began = start["started"] if start is not None else entry["since"] or ended
        recovery = self._context.spec["recovery"]
        masks, stalled = self._context.masks, entry["state"] == "stalled"
        ending = autopsy.own_status(start, attempt.directory, ending, masks, self._context.cwd(self._spec))
        verdict, log = autopsy.full_verdict(attempt, ending, entry, self._spec["port"], recovery, masks)
        entry["exit"] = policy.exit_record(ending, verdict, last_lines(log), attempt.left_behind)
        past: Past = {
            "attempt": entry["attempt"],
            "started": began,
            "ended": ended,
            "asked": entry["asked"],
            "code": ending["code"],
            "signal": ending["signal"],
            "cause": verdict.cause,
            "step": entry["step"],
            "step_time": entry["step_time"],
            "first_step": entry["first_step"],
            "first_step_time": entry["first_step_time"],
            "shortage": policy.had_shortage(ending, verdict),
            "short_of_memory": verdict.evidence["oom_kills"] > 0,
            "hung": stalled,
            "why": [*why_of(entry), *verdict.beside] if stalled else [],
            "early": policy.is_early(ending, verdict, entry, early=intent["early"], lately=now < self._early_until),
        }
        entry["history"] = [*entry["history"], past][-HISTORY:]
        jitter = os.urandom(1)[0] / 255
        decision = policy.after_exit(ending, verdict, entry, intent, ended - began, recovery, self._spec["own"], jitter)
        self._follow_decision(decision, intent, now, wall, past)

    def _follow_decision(
        self, decision: policy.Decision, intent: Intent, now: float, wall: float, past: Optional[Past] = None
    ) -> None:
        """`past`: the attempt that has just ended."""
        if decision.state == "starting":
            self._begin(decision.why, intent, decision.restarts, now, wall, past)
        elif decision.state == "pending":
            self._hold(decision.why, intent, decision.restarts, wall, past)
        else:
            self._forget_attempt()
            self.entry["restarts"] = decision.restarts
            if decision.failed_attempt:
                self._note_failed(decision.failed_attempt)
            if decision.delay_s is not None:
                self._start_at = now + decision.delay_s
                self.entry["next_start"] = wall + decision.delay_s
            self._move(decision.state, decision.why, wall, past)

    def _note_failed(self, attempt: int) -> None:
        """Records that the task has failed by the end of an attempt before its last, with the exit of that one."""
        exit_ = self._exit_before
        if exit_ is None:
            run, recovery = self._context.run.directory, self._context.spec["recovery"]
            directory = paths.attempt_directory(run, self.id, attempt)
            exit_ = autopsy.exit_of(directory, recovery, self._context.masks, self._context.cwd(self._spec))
        if exit_ is None:  # its files are gone
            past = next(one for one in self.entry["history"] if one["attempt"] == attempt)
            ending = made(Ending, code=past["code"], signal=past["signal"], ended=past["ended"])
            exit_ = policy.exit_record(ending, policy.Verdict(True, past["cause"]), "")
        self.entry.update({"failed_attempt": attempt, "exit": exit_, "asked": False})

    def _forget_attempt(self) -> None:
        if self._dump is not None:
            self._dump.close()
        self._attempt = self._observation = self._dump = self._start_at = None
        self.entry.update({"pid": None, "start_time": None, "next_start": None, "ready": False, "left": []})
        self.entry.update({"held": False, "unwritten": False, "hold": None, "failed_attempt": 0})
        self.entry.update({"cpu": None, "memory_bytes": None, "throttled": None})
        self.entry.update({"idle_since": None, "still_since": None, "step_gap_s": 0.0})

    def _hold(self, why: List[Fact], intent: Intent, restarts: int, wall: float, past: Optional[Past]) -> None:
        self._forget_attempt()
        self.entry.update({"generation": intent["generation"], "restarts": restarts, "asked": False})
        self._note_hold(intent)
        self._move("pending", why, wall, past)  # any -> pending

    def _begin(
        self, why: List[Fact], intent: Intent, restarts: int, now: float, wall: float, past: Optional[Past]
    ) -> None:
        self._forget_attempt()
        self._early_until = 0.0
        number = max(self.entry["attempt"], intent["after"]) + 1
        with suppress(OSError):  # the error is, for example, too many open files: the next number is tried
            number = max(number, paths.last_attempt(self._context.run.directory, self.id) + 1)
        self.entry.update({"attempt": number, "restarts": restarts, "generation": intent["generation"]})
        self._exit_before = self.entry["exit"]
        self.entry.update({"exit": None, "asked": False, "step": None, "step_time": None, "progress": None})
        self.entry.update({"first_step": None, "first_step_time": None})
        self._new_until = now + FIRST_S
        self.entry.update({"steps": None, "rate": None, "loss": None, "complaint": None, "hang": None})
        self._move("starting", why, wall, past)
        self._attempt = Attempt(self._directory, now)
        try:
            paths.make_directory(self._directory)
            keeper.launch(self._context.launch(self._spec, number, self._directory, intent["without"]))
        except OSError as error:
            why, shortage = policy.why_of_error("cannot_start", error), policy.is_shortage(error)
            self._attempt.exit = policy.unknown_exit(wall, "not_run", *why, shortage=shortage)

    @property
    def _directory(self) -> str:
        return paths.attempt_directory(self._context.run.directory, self.id, self.entry["attempt"])

    def _move(self, state: TaskState, why: List[Fact], wall: float, past: Optional[Past] = None) -> None:
        before = self.entry["state"]
        self.entry.update({"state": state, "since": wall})
        explain(self.entry, why)
        self._context.changed(self.id, before, state, self.entry["attempt"], because(why), end=past)


def _had_shortage(entry: Entry) -> bool:
    return bool(entry["history"]) and entry["history"][-1]["shortage"]

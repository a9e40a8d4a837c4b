"""Runs as sessions see them: found by name, revived, told what is wanted."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from . import environment, logind, paths, policy, processes, revival, wake
from .conversation import field
from .errors import Refused
from .records.run_state import Start
from .runfiles import RunFiles, RunRemoved

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any, Callable, Dict, List, Mapping, Optional, Set

    from .conversation import Conversation

BIRTH_LIMIT_S = 20.0
SUPERVISOR_END_LIMIT_S = 10.0
REMOVAL_LIMIT_S = 2.0
"""Of a supervisor whose tasks have ended: it may wait for others, which it need not."""

_children: List[subprocess.Popen[bytes]] = []
"""Supervisors that this session has started; kept so that their ends can be noticed."""


class Run:
    """One run on this host, by its files."""

    def __init__(self, talk: Conversation, directory: str) -> None:
        self.files = RunFiles(directory)
        self.spec = self.files.spec()
        self.id: str = self.spec["run"]
        self._talk = talk

    def state(self) -> Dict[str, Any]:
        return self.files.state()

    def finished(self) -> bool:
        """Its agent has gone, and nobody waits for it."""
        return bool(self.state()["finished"])

    def live(self) -> bool:
        """Something of it runs here, or may run again. An agent may be there still, and wait for other hosts."""
        state = self.state()
        ended = all(task["state"] in policy.FINAL for task in state["tasks"].values())
        return not (state["finished"] or (ended and self._is_told_to_stop()))

    def _is_told_to_stop(self) -> bool:
        return all(intent["want"] == "stop" for intent in self.files.intent()["tasks"].values())

    def supervised(self) -> bool:
        """Tells by the FIFO's reader whether there is an agent: a supervisor, or a guard about to replace it."""
        return wake.is_read(self.files.wake_path)

    def tasks(self, request: Mapping[str, Any]) -> List[str]:
        """The ids that a request names, in the order of the spec; null means all."""
        known = [task["id"] for task in self.spec["tasks"]]
        named = field(request, "tasks", list, type(None))
        if named is None:
            return known
        unknown = [str(task) for task in named if task not in known]
        if unknown:
            raise Refused("bad_request", "%s: no such task on this host" % ", ".join(unknown))
        return [task for task in known if task in named]

    def change(self, change: Callable[[Dict[str, Any]], None]) -> int:
        """Writes a changed intent and returns its serial; the run is supervised afterwards."""
        with self.files.intent_lock():
            intent = self.files.intent()
            change(intent)
            intent["serial"] += 1
            self.files.write_intent(intent)
            wake.ring(self.files.wake_path)
        self.supervise()
        serial: int = intent["serial"]
        return serial

    def supervise(self) -> None:
        """Returns when a supervisor is at work, by its guard or by a new agent if there was none."""
        before = self.state()["agent"]
        child = None
        deadline = time.monotonic() + BIRTH_LIMIT_S
        while not self._at_work(before):
            there = self.supervised()
            if child is None and not there:
                child = self._spawn()
            elif time.monotonic() > deadline or (child is not None and child.poll() is not None and not there):
                log = paths.tail(self.files.agent_log)
                raise Refused("internal", "the agent's supervisor does not start", log)
            time.sleep(0.02)

    def _at_work(self, before: Optional[Mapping[str, Any]]) -> bool:
        """One that has written `finished` is about to go; one that has come since `before` may have gone already."""
        state = self.state()
        agent = state["agent"]
        if agent != before:
            return True
        return bool(agent) and not state["finished"] and processes.find(agent) is not None and self.supervised()

    def keep_supervised(self) -> None:
        """Gives a live run whose agent was killed a new one."""
        if not self.finished():
            self.supervise()

    def _spawn(self) -> subprocess.Popen[bytes]:
        import subprocess

        log = revival.open_log(self.files)
        try:
            child = subprocess.Popen(
                [*logind.prefix(), *revival.command(self.files.directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment.encoded(environment.base()),
                start_new_session=True,
            )
        finally:
            os.close(log)
        _children.append(child)
        return child

    def until(self, done: Callable[[Mapping[str, Any]], bool], limit_s: float) -> Optional[Dict[str, Any]]:
        """The first state for which `done`; None when the time is over. A supervisor that is killed is replaced.

        Raises as Conversation.pause.
        """
        found: List[Dict[str, Any]] = []

        def look() -> bool:
            state = self.state()
            if done(state):
                found.append(state)
            else:
                self.keep_supervised()
            return bool(found)

        self._talk.wait(look, limit_s)
        return found[0] if found else None

    def survivors(self, tasks: List[str]) -> List[Dict[str, Any]]:
        """What is left of the newest attempts of these tasks, as /proc says now."""
        left = []
        for task in tasks:
            newest = paths.last_attempt(self.files.directory, task)
            start = paths.read_record(
                os.path.join(paths.attempt_directory(self.files.directory, task, newest), "start.json"), Start
            )
            if start is not None and start["key"]:
                left += processes.describe(processes.tree(processes.trainer(start), [start["key"]]), task)
        return left

    def end_supervisor(self, limit_s: float = SUPERVISOR_END_LIMIT_S) -> None:
        """Waits for its own end. One that waits in its turn, for hosts that are away, is killed: it holds nothing."""
        import signal

        if self._ends_soon(limit_s):
            return
        revival.retire(self.files)
        agent = self.state()["agent"]
        waiting = processes.find(agent) if agent is not None else None
        if waiting is not None:
            processes.send_signal([waiting], signal.SIGKILL)
        self._ends_soon(SUPERVISOR_END_LIMIT_S)

    def _ends_soon(self, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while self.supervised() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.supervised()

    def finish(self) -> None:
        """Of one whose supervisor was ended: it has nothing to wait for any more."""
        state = dict(self.state(), finished=True)
        paths.write_json(self.files.state_path, state)

    def remove(self) -> None:
        """Removes the run's files once its supervisor has ended, and `current` where it says this run."""
        import shutil

        self.end_supervisor(REMOVAL_LIMIT_S)
        shutil.rmtree(self.files.directory, ignore_errors=True)
        if os.path.isdir(self.files.directory):
            shutil.rmtree(self.files.directory)  # says what is in the way
        with suppress(OSError):  # another host of the inventory has its part of the run here
            os.rmdir(os.path.dirname(self.files.directory))
        current = current_path(self._talk.root, self.spec["cluster"], self.spec["host"])
        if paths.read_text(current) == self.id:
            os.unlink(current)


def current_path(root: str, cluster: str, host: str) -> str:
    return os.path.join(paths.cluster_directory(root, cluster, host), "current")


def set_current(root: str, cluster: str, host: str, run: Optional[str]) -> None:
    path = current_path(root, cluster, host)
    if run is not None:
        paths.write_text(path, run + "\n")
    elif os.path.exists(path):
        os.unlink(path)


def find(talk: Conversation, request: Mapping[str, Any]) -> Optional[Run]:
    """The run that a request means, None when it means the current one and there is none. Raises Refused."""
    cluster, host = field(request, "cluster", str), field(request, "host", str)
    named = field(request, "run", str, type(None))
    run = named or paths.read_text(current_path(talk.root, cluster, host))
    if not run:
        return None
    try:
        found = Run(talk, paths.run_directory(talk.root, run, host))
    except RunRemoved:
        if named:
            raise Refused("no_run", "there is no run %s on this host" % run) from None
        return None
    if found.spec["cluster"] != cluster:
        raise Refused("no_run", "run %s is not one of cluster %s" % (run, cluster))
    return found


def need(talk: Conversation, request: Mapping[str, Any]) -> Run:
    """As `find`, and refuses when there is none."""
    run = find(talk, request)
    if run is None:
        raise Refused("no_run", "there is no run of %s on this host" % request["cluster"])
    return run


def every(talk: Conversation, cluster: Optional[str] = None) -> List[Run]:
    """All runs below the root, of one cluster or of all; oldest first."""
    found = []
    runs = os.path.join(talk.root, "runs")
    for run in paths.entries(runs):
        for host in paths.entries(os.path.join(runs, run)):
            try:
                found.append(Run(talk, os.path.join(runs, run, host)))
            except (OSError, ValueError):
                continue  # being made, or being removed
    return sorted((run for run in found if cluster in (None, run.spec["cluster"])), key=lambda run: run.spec["created"])


def used_bundles(talk: Conversation) -> Set[str]:
    return {str(run.spec["bundle"]) for run in every(talk) if run.spec["bundle"]}

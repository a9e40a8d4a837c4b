"""Runs as sessions see them: they find a run by name, revive it, and change what is wanted of it."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from .. import main
from ..host import files, paths, processes, wake
from ..host.errors import NO_ROOM, Refused
from ..records.spec import VERSION
from ..records.values import FINAL, READ_ONLY
from ..run import environment
from ..run.runfiles import RunFiles
from ..survival import revival, systemd
from . import left_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Container, Iterator, List, Optional, Set, Tuple

    from ..checkpoints import directories
    from ..conversation import Conversation
    from ..records.answers import Survivor
    from ..records.requests import Request
    from ..records.run_state import AgentProcess, IntentFile, State
    from ..records.spec import Spec

BIRTH_LIMIT_S = 90.0
"""How long an agent may take to start on a very busy host. Its death is detected at once."""

DISK_LOOK_S = 3.0
"""How long the start may take until the disk is inspected, and then the interval: on a full one no agent may start."""

SUPERVISOR_END_LIMIT_S = 10.0
REMOVAL_LIMIT_S = 2.0
"""How long a supervisor whose tasks have ended may take to end; it may wait for others in vain."""

_MEND_LIMIT_S = 10.0


class Run:
    """One run on this host, by its files. Methods that read them raise paths.RunRemoved and paths.Damaged."""

    def __init__(self, talk: Conversation, directory: str) -> None:
        self.files = RunFiles(directory)
        self.spec = self.files.spec()
        self.id = self.spec["run"]
        self._talk = talk
        self._state: Optional[State] = None
        self._version: Optional[Tuple[int, int, int]] = None
        place = paths.run_directory(self.files.root, self.id, self.spec["host"])
        if place != directory:
            raise paths.Damaged(
                "%s is of another run or host: it belongs in %s" % (self.files.path("spec.json"), place)
            )

    def state(self) -> State:
        """The state, read only if the file has changed, as it is queried often."""
        version = paths.version(self.files.state_path)
        if self._state is None or version is None or version != self._version:
            state = self.files.state()
            self._refuse_lack(self.files.state_path, state["tasks"])
            self._state, self._version = state, version
        return self._state

    def intent(self) -> IntentFile:
        intent = self.files.intent()
        self._refuse_lack(self.files.intent_path, intent["tasks"])
        return intent

    def _refuse_lack(self, path: str, tasks: Container[str]) -> None:
        lacking = [task["id"] for task in self.spec["tasks"] if task["id"] not in tasks]
        if lacking:
            raise paths.Damaged("%s is damaged: it lacks %s" % (path, ", ".join(lacking[:10])))

    def finished(self) -> bool:
        """Whether its agent has ended because it was no longer needed."""
        return self.state()["finished"]

    def live(self) -> bool:
        """Tasks of it run here, or may run again. If not, an agent may still be there and wait for other hosts.

        Without tasks: it has not ended.
        """
        state = self.state()
        if not self.spec["tasks"]:
            return not state["finished"] and self.intent()["ends_run"] is None
        ended = all(task["state"] in FINAL for task in state["tasks"].values())
        stopped = ended and all(intent["want"] == "stop" for intent in self.intent()["tasks"].values())
        return not (state["finished"] or stopped)

    def has_ended(self) -> bool:
        """Whether it has ended or was removed; otherwise keeps it supervised."""
        try:
            self.keep_supervised()
            return not self.live()
        except paths.RunRemoved:
            return True

    def supervised(self) -> bool:
        """Whether the FIFO has a reader, and so an agent: a supervisor, or a guard about to replace it."""
        return wake.is_read(self.files.wake_path)

    def tasks(self, named: Optional[List[str]]) -> List[str]:
        """The ids that are named, in the order of the spec; None means all. Refuses those that are not here."""
        known = [task["id"] for task in self.spec["tasks"]]
        if named is None:
            return known
        unknown = [task for task in named if task not in known]
        if unknown:
            raise Refused("bad_request", "%s: no such task on this host" % ", ".join(unknown[:10]))
        return [task for task in known if task in named]

    def change(self, change: Callable[[IntentFile], None]) -> int:
        """Writes a changed intent and returns its serial; the run is supervised afterwards.

        A supervisor rebuilds a damaged one first.
        """
        deadline = time.monotonic() + _MEND_LIMIT_S
        while True:
            try:
                serial = self._write(change)
                break
            except paths.Damaged:
                if time.monotonic() > deadline:
                    raise
            self.supervise()
            wake.ring(self.files.wake_path)
            time.sleep(0.02)
        self.supervise()
        return serial

    def note(self, change: Callable[[IntentFile], None]) -> None:
        """Writes a changed intent of a run that has ended here: nobody needs to act on it."""
        self._write(change)

    def _write(self, change: Callable[[IntentFile], None]) -> int:
        with self.files.intent_lock():
            intent = self.intent()
            change(intent)
            intent["serial"] += 1
            self.files.write_intent(intent)
            wake.ring(self.files.wake_path)
        return intent["serial"]

    def supervise(self) -> None:
        """Returns when a supervisor works, started by its guard or by a new agent if there was none."""
        if READ_ONLY in os.environ:
            raise Refused("not_answering", "the run's machines have been given back, and nothing of it runs any more")
        before = self.state()["agent"]
        child, delay = 0, 0.01
        deadline = time.monotonic() + BIRTH_LIMIT_S
        look_at_disk = time.monotonic() + DISK_LOOK_S
        while not self._at_work(before):
            if time.monotonic() >= look_at_disk:
                look_at_disk = time.monotonic() + DISK_LOOK_S
                if not paths.has_room(self.files.state_path):
                    raise Refused("not_answering", "the agent cannot start: the disk of its host is full", "", NO_ROOM)
            there = self.supervised()
            if not child and not there:
                self.refuse_older()
                child = revival.start_child(self.files, systemd.prefix(), main.supervise)
            elif time.monotonic() > deadline or (child and not there and os.waitpid(child, os.WNOHANG)[0]):
                log = paths.tail(self.files.agent_log)
                raise Refused("internal", "the agent's supervisor does not start", log)
            time.sleep(delay)
            delay = min(1.2 * delay, 0.1)

    def refuse_older(self) -> None:
        """Raises paths.OtherVersion for an older version's run without an agent, unless it has finished.

        An agent of this version would not know what holds a task there.
        """
        if self.spec["version"] < VERSION and not (self.supervised() or self.finished()):
            raise paths.OtherVersion("run %s is of an older version of dtctl, and its agent has ended" % self.id)

    def _at_work(self, before: Optional[AgentProcess]) -> bool:
        """Whether a supervisor works, or a new one has since `before`; one that has written `finished` will exit.

        The one that state.json names may have ended although another works, which a full disk keeps from writing there.
        """
        state = self.state()
        agent = state["agent"]
        if agent != before:
            return True
        alive = agent is not None and processes.resumed(processes.find(agent)) is not None
        return (alive and not state["finished"] and self.supervised()) or wake.is_at_work(self.files.wake_path)

    def keep_supervised(self) -> None:
        """Starts a new agent for a live run whose agent was killed, and resumes one that a signal has stopped."""
        if not (self.finished() or READ_ONLY in os.environ):
            self.supervise()

    def until(self, done: Callable[[State], bool], limit_s: float) -> Optional[State]:
        """The first state for which `done`; None when the time is over. A supervisor that is killed is replaced.

        Raises as Conversation.pause.
        """
        found: List[State] = []

        def refresh() -> bool:
            state = self.state()
            if done(state):
                found.append(state)
            else:
                self.keep_supervised()
            return bool(found)

        self._talk.wait(refresh, limit_s)
        return found[0] if found else None

    def places(self) -> directories.Run:
        """The directories of its checkpoints."""
        from ..checkpoints import directories

        code = environment.code_directory(self.files.root, self.spec)
        return directories.Run(self.spec, code, environment.Marks(code).expand)

    def listens_on(self, port: int) -> bool:
        """Whether one of its own processes certainly listens there, on this machine."""
        from ..host import ports

        pid = ports.listener(port)
        return pid is not None and (self._is_own(pid) or processes.environment(pid).get("DTCTL_RUN") == self.id)

    def has_lost(self, port: int) -> bool:
        """Whether a foreign process certainly listens there.

        A process of another user may be the run's own, in a container.
        """
        from ..host import ports  # not before: few sessions need sockets

        pid = ports.listener(port)
        if pid is None or processes.environment(pid).get("DTCTL_RUN") == self.id:
            return False
        return not self._is_own(pid)

    def _is_own(self, pid: int) -> bool:
        agent = self.state()["agent"]
        own = {process.pid for task in self.spec["tasks"] for process in self._remains(task["id"])}
        return pid in own or (agent is not None and pid == agent["pid"])

    def survivors(self, tasks: List[str]) -> List[Survivor]:
        """The remaining processes of these tasks' newest attempts, by /proc."""
        left: List[Survivor] = []
        for task in tasks:
            left += processes.survivors_of(self._remains(task), task)
        return left

    def _remains(self, task: str) -> List[processes.Process]:
        newest = paths.last_attempt(self.files.directory, task)
        return processes.of_attempt(paths.attempt_directory(self.files.directory, task, newest))

    def end_supervisor(self, limit_s: float = SUPERVISOR_END_LIMIT_S) -> None:
        """Waits until its agent exits; kills one that waits for unreachable hosts, or that a signal has stopped."""
        import signal

        if self.ends_within(limit_s):
            return
        from . import orphans  # scans all processes

        revival.retire(self.files)
        there = orphans.of_directory(self.files.root, self.files.directory)
        processes.send_signal([one.process for one in there if one.is_agent], signal.SIGKILL)
        self.ends_within(SUPERVISOR_END_LIMIT_S)

    def ends_within(self, limit_s: float) -> bool:
        """Whether its agent ends by itself."""
        deadline = time.monotonic() + limit_s
        while self.supervised() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.supervised()

    def finish(self) -> None:
        """Marks a run finished whose supervisor was ended, as it has nothing left to wait for."""
        state = self.state()
        state["finished"] = True
        paths.write_json(self.files.state_path, state)

    def left_out(self) -> bool:
        """Whether it has left this host out for the failures on it."""
        return left_out.is_left_out(self.spec, self.intent()["tasks"])

    def keep_left_out(self) -> None:
        """Keeps that beyond its files, which are about to be removed."""
        with suppress(OSError, paths.Damaged):
            if self.left_out():
                left_out.remember(self.files.root, self.spec)

    def remove(self) -> None:
        """Removes the run's files once its supervisor has ended."""
        self.end_supervisor(REMOVAL_LIMIT_S)
        self.keep_left_out()
        remove(self.files, self.spec["cluster"])


def remove(run: RunFiles, cluster: Optional[str]) -> None:
    """Removes a run without processes, and `current` if it names this run."""
    from ..bundles.tree import remove_tree

    id_, host = run.directory.split(os.sep)[-2:]
    remove_tree(run.set_aside())
    if cluster is not None and current(run.root, cluster, host)[0] == id_:
        set_current(run.root, cluster, host, None)


def current_path(root: str, cluster: str, host: str) -> str:
    return os.path.join(paths.cluster_directory(root, cluster, host), "current")


def current(root: str, cluster: str, host: str) -> Tuple[Optional[str], str]:
    """The id of the current run, None if there is none; and why it is unknown, where it is."""
    path = current_path(root, cluster, host)
    try:
        run = paths.read_text(path)
    except files.Unfit as error:
        return None, "%s %s" % (path, error.strerror)
    if run and not paths.is_component(run):
        return None, "%s does not name a run: %s" % (path, ascii(run[:60]))
    return run or None, ""


def set_current(root: str, cluster: str, host: str, run: Optional[str]) -> None:
    path = current_path(root, cluster, host)
    if run is not None:
        paths.write_text(path, run + "\n")
    elif os.path.exists(path):
        os.unlink(path)


def find(talk: Conversation, cluster: str, host: str, named: Optional[str]) -> Optional[Run]:
    """The run of this name, or the current one; None if there is no current one.

    Raises Refused, and Damaged for a run without a directory whose processes exist.
    """
    run = named or current(talk.root, cluster, host)[0]
    try:
        found = Run(talk, paths.run_directory(talk.root, run, host)) if run is not None else None
    except paths.RunRemoved:
        found = None
    if found is None:
        from . import orphans  # scans all processes

        for directory, owner, problem in orphans.without_files(talk.root):
            id_, place = directory.split(os.sep)[-2:]
            if place == host and (id_ == run or (run is None and owner in (cluster, None))):
                raise paths.Damaged(problem)
        if named:
            raise Refused("no_run", "there is no run %s on this host" % run)
        return None
    if found.spec["cluster"] != cluster:
        raise Refused("no_run", "run %s is not one of cluster %s" % (run, cluster))
    return found


def need(talk: Conversation, request: Request) -> Run:
    """The run that a request means. Raises Refused, also when there is none."""
    cluster, host = request["cluster"], request["host"]
    run = find(talk, cluster, host, request["run"])
    if run is None:
        why = current(talk.root, cluster, host)[1]
        raise Refused("no_run", "there is no run of %s on this host" % cluster, why)
    return run


def every(talk: Conversation, cluster: Optional[str] = None, host: Optional[str] = None) -> List[Run]:
    """Runs below the root, of one cluster or of all, oldest first; damaged_runs.py has those that cannot be read.

    `host`: only those of this host of the inventory; others share its home directory, and theirs are not read.
    """
    found = []
    for directory in run_directories(talk.root, host):
        with suppress(OSError, paths.Damaged):
            found.append(Run(talk, directory))
    return sorted((run for run in found if cluster in (None, run.spec["cluster"])), key=lambda run: run.spec["created"])


def run_directories(root: str, host: Optional[str] = None) -> Iterator[str]:
    """The directories of the runs; see revival.every."""
    return (files.directory for files in revival.every(root, host))


def used_bundles(talk: Conversation, without: Container[str] = ()) -> Set[str]:
    """Bundles used by all runs except those in the directories `without`. A run that cannot be read may use any.

    Wheels are used, too: after a change only those that are new have to be sent.
    """
    from ..bundles.tree import is_bundle_id

    there = set(filter(is_bundle_id, paths.entries(os.path.join(talk.root, "bundles"))))
    return _used(
        talk, there, lambda spec: [spec["bundle"], spec["environment"] and spec["environment"]["wheels"]], without
    )


def used_environments(talk: Conversation, without: Container[str] = ()) -> Set[str]:
    """The same of the directories of environments."""
    from ..run import environments

    there = set(paths.entries(environments.store(talk.root)))
    return _used(talk, there, lambda spec: [spec["environment"] and spec["environment"]["directory"]], without)


def _used(
    talk: Conversation, there: Set[str], of: Callable[[Spec], List[Optional[str]]], without: Container[str]
) -> Set[str]:
    used: Set[str] = set()
    for directory in run_directories(talk.root):
        if there <= used:
            break
        if directory in without:
            continue
        try:
            found = of(RunFiles(directory).spec())
        except paths.RunRemoved:
            continue
        except (paths.Damaged, OSError):
            return there
        used.update(one for one in found if one is not None)
    return used


def refuse_live(talk: Conversation, cluster: str) -> None:
    for run in every(talk, cluster):
        with suppress(paths.Damaged):  # its state is unknown, and `up` will report it
            if run.live():
                hint = "dtctl stop    stops it; then try again"
                raise Refused("run_live", "run %s of %s is live" % (run.id, cluster), "", hint)


def output_directories(run: Run) -> List[str]:
    """The directories that trainers of the run write to: those of its spec except `data`, and the working directory."""
    code = environment.code_directory(run.files.root, run.spec)
    places = environment.Marks(code).expand([*run.spec["checkpoint_dirs"], *run.spec["dirs"]])
    works_in_code = code is not None and any(task["code"] for task in run.spec["tasks"])
    return [*places, code] if code is not None and works_in_code else places

"""profile: what tasks do for some seconds, to a controller."""

from __future__ import annotations

import os
import queue
import threading
from contextlib import suppress
from itertools import islice

from ...host import paths, processes
from ...host.secrets import Masks
from ...records import kinds
from ...requests import runs
from ..dump.serving import Stacks
from ..metrics.event_files import find, outermost
from .records import Profile
from .sampling import Samples, main_process
from .tracing import NoProfile, Tracing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Union

    from ...conversation import Conversation
    from ...records.answers import RunResult
    from ...records.run_state import Entry
    from ...records.spec import TaskSpec
    from .records import ProfileRequest, Profiling

MOST_AT_ONCE = 8
"""The most tasks of a host that are profiled at the same time: each takes a process that imports TensorFlow."""
END_S = 15.0
"""How long a cancelled profile may take to end."""


def profile(talk: Conversation, request: ProfileRequest) -> RunResult:
    """What tasks do in the next seconds, all at the same time, each in a frame `profile`; `profiling` comes first. The
    stacks of the main thread are sampled as by `dump`. A process that has loaded TensorFlow is profiled by
    TensorFlow's own profiler service, on the port of its task or another on which it listens and answers as a gRPC
    server; the profile becomes a file beside the event files, below `plugins/profile` and the `session` of the request.
    """
    run = runs.need(talk, request)
    tasks = run.tasks(request["tasks"])
    entries = run.state()["tasks"]
    with talk.at("profile"):
        work = _Work(run, _directory(run, request["session"]), request["seconds"])
        specs = {task["id"]: task for task in run.spec["tasks"]}
        try:
            work.begin([(specs[task], entries[task]) for task in tasks])
            begun: Profiling = {"tasks": tasks}
            talk.send("profiling", begun)
            for _ in tasks:
                talk.send("profile", _next(talk, work))
        finally:
            work.end()
    return {"run": run.id}


def _next(talk: Conversation, work: _Work) -> Profile:
    while True:
        with suppress(queue.Empty):
            found: Union[Profile, BaseException] = work.found.get_nowait()
            if isinstance(found, BaseException):
                raise found
            return found
        talk.pause(0.1)


def _directory(run: runs.Run, session: str) -> str:
    """Where TensorBoard finds a profile: beside the event files, as `dtctl tensorboard` shows them."""
    places = runs.output_directories(run)
    roots = [*(folder.root for folder in islice(find(places), 1)), *outermost(places), run.files.directory]
    return os.path.join(roots[0], "plugins", "profile", session)


class _Work:
    """The profiles of the tasks of this host: each has a thread, which puts what it has found into `found`."""

    def __init__(self, run: runs.Run, place: str, seconds: int) -> None:
        self.found: queue.Queue[Any] = queue.Queue()
        self._run = run
        self._place = place
        self._seconds = seconds
        self._secrets = run.files.secrets()
        self._masks = Masks(self._secrets.values())
        self._cancelled = threading.Event()
        self._turns = threading.Semaphore(MOST_AT_ONCE)
        self._threads: List[threading.Thread] = []

    def begin(self, tasks: Any) -> None:
        for task, entry in tasks:
            thread = threading.Thread(target=self._profile, args=(task, entry), daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Cancels what is unfinished, and waits until its programs have ended and their files are removed."""
        self._cancelled.set()
        for thread in self._threads:
            thread.join(END_S)
        with suppress(OSError):
            os.rmdir(self._place)  # if no profile is in it

    def _profile(self, task: TaskSpec, entry: Entry) -> None:
        try:
            with self._turns:
                found = self._measured(task, entry)
            self.found.put(kinds.checked(Profile, found))
        except BaseException as error:
            self.found.put(error)

    def _measured(self, task: TaskSpec, entry: Entry) -> Dict[str, object]:
        attempt = paths.attempt_directory(self._run.files.directory, task["id"], entry["attempt"])
        found = processes.of_attempt(attempt) if entry["attempt"] else []
        found.sort(key=lambda process: (process.pid != entry["pid"], process.pid))  # the trainer first
        answer: Dict[str, object] = {"task": task["id"], "attempt": entry["attempt"], "state": entry["state"]}
        if not found or self._cancelled.is_set():
            return answer
        tracing: Optional[Tracing] = None
        try:
            try:
                tracing = Tracing(found, task["port"], self._place, self._secrets)
                tracing.begin(self._seconds)
            except NoProfile as none:
                answer.update(no_file=none.why, file_said=none.said)
            answer.update(self._sampled(attempt, found))
            if tracing is not None and "no_file" not in answer:
                try:
                    name = "%s_%s.xplane.pb" % (self._run.spec["host"], task["id"].replace(":", "-"))
                    answer["file"] = tracing.finish(name, self._masks, self._cancelled)
                except NoProfile as none:
                    answer.update(no_file=none.why, file_said=none.said)
        finally:
            if tracing is not None:
                tracing.close()
        return answer

    def _sampled(self, attempt: str, found: List[processes.Process]) -> Dict[str, object]:
        process = main_process(found, Stacks(attempt))
        if process is None:
            return {"missing": "not_python"}
        samples = Samples(attempt, process, self._masks)
        samples.take(self._seconds, self._cancelled)
        return {
            "pid": process.pid,
            "command": self._masks.hide_text(processes.command(process.pid))[: processes.LONGEST_COMMAND],
            "way": samples.way or None,
            "sampled_s": samples.seconds,
            "samples": samples.number,
            "stacks": samples.most_frequent(),
            "missing": samples.missing,
            "said": samples.said,
        }

"""The GPUs of the host, read by a separate process: a driver may not return a call, or crash its caller.

It samples their load, and writes a line with all their figures at intervals, to a pipe. Its parent reads the pipe
without blocking, and kills the process when it is silent for too long. Another one is started only when it has ended,
which a process that hangs in its driver may never do.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from contextlib import suppress

from ..host import daemon, programs
from ..records.kinds import InvalidValue, checked, made, parse_json
from ..records.spec import TaskSpec, gpus_of
from ..records.vitals import MOST_GPUS, Gpu, Gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Union

    from .drivers import Amd, Nvml

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
"""Devices that the drivers of NVIDIA and AMD create."""


def to_use_none(task: TaskSpec) -> bool:
    """Whether a task is to use no GPU: it may use none, or is given none by number, and the host has no driver."""
    if gpus_of(task):
        return False
    return "CUDA_VISIBLE_DEVICES" in task["env"] or not any(map(os.path.exists, _DRIVERS))


SAMPLE_S = 2.0
LINE_S = 10.0
SILENT_S = 30.0
"""A driver that was unloaded takes some seconds for each GPU at the first call."""
RETRY_S = 60.0
_MOST_BYTES = 1 << 20
_DIE_WITH_PARENT = 1
"""prctl(2)"""


class Reader:
    """`tasks` are those that are given GPUs."""

    def __init__(self, tasks: Sequence[TaskSpec] = (), every_s: float = LINE_S) -> None:
        self._given = {task["id"]: gpus_of(task) for task in tasks}
        self._every_s = every_s
        self._pid: Optional[int] = None
        self._pipe = -1
        self._last_output = 0.0
        self._next_start = 0.0
        self._data = b""
        self._known: Optional[Gpus] = None

    def start(self, now: float) -> None:
        """Starts the reader, whether a driver is present or not."""
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            self._pid = daemon.fork(lambda: _serve(theirs, self._given, self._every_s), 1)
        except OSError:  # too many processes: later
            self._next_start = now + RETRY_S
            self._close_pipe()
        finally:
            os.close(theirs)
        self._last_output = now
        self._data = b""

    def read(self, now: float) -> Optional[Gpus]:
        """The last figures; None at first, and if there is nothing to read. It never waits."""
        if self._pid is None:
            if now >= self._next_start and (any(map(os.path.exists, _DRIVERS)) or any(self._given.values())):
                self.start(now)
            return self._known
        self._take(now)
        if self._pipe >= 0 and now - self._last_output > SILENT_S:
            self._lose("silent", "")
        if self._pipe < 0:
            self._reap(now)
        return self._known

    def wait(self, limit_s: float) -> Gpus:
        """Waits for the first figures, for a session."""
        now = time.monotonic()
        self.start(now)
        until = now + limit_s
        while self._known is None and self._pipe >= 0 and now < until:
            select.select([self._pipe], [], [], until - now)
            now = time.monotonic()
            self._take(now)
        if self._known is None:
            self._lose("silent", "")
        self.close()
        assert self._known is not None
        return self._known

    def close(self) -> None:
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._close_pipe()
            self._reap(0.0)

    def _take(self, now: float) -> None:
        while self._pipe >= 0:
            try:
                data = os.read(self._pipe, 65536)
            except BlockingIOError:
                return
            self._data += data
            *lines, self._data = self._data.split(b"\n")
            if not data or len(self._data) > _MOST_BYTES:
                self._lose("error", "the process that reads them has ended")
            elif lines:
                self._last_output = now
                try:
                    self._known = checked(Gpus, parse_json(lines[-1]))
                except (InvalidValue, ValueError) as error:
                    self._lose("error", str(error)[:4096])

    def _lose(self, how: str, text: str) -> None:
        """Ends the reader, with the reason; its own report of a missing driver stays."""
        if how == "silent" or self._known is None or not self._known["problem"]:
            self._known = made(Gpus, problem=how, text=text)
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._close_pipe()

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe = -1

    def _reap(self, now: float) -> None:
        with suppress(ChildProcessError):
            if self._pid is None or not os.waitpid(self._pid, os.WNOHANG)[0]:
                return
        self._pid, self._next_start = None, now + RETRY_S


def _serve(pipe: int, given: Dict[str, List[int]], every_s: float) -> None:
    """The life of the other process."""
    import ctypes

    daemon.isolate("dtctl-gpus", but=[*programs.held(), pipe])
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as lines:
        driver = _driver()
        if isinstance(driver, dict):
            lines.write(json.dumps(driver) + "\n")
            return
        busy: List[List[float]] = [[] for _ in range(len(driver))]
        next_line = 0.0
        while True:
            for index, samples in enumerate(busy):
                sample = driver.busy(index)
                samples += [] if sample is None else [sample]
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + every_s
                each: List[Gpu] = [{**driver.look(index), "busy": _mean(samples)} for index, samples in enumerate(busy)]
                lines.write(json.dumps(made(Gpus, each=_as_given(each, given))) + "\n")
                busy = [[] for _ in busy]
            time.sleep(min(SAMPLE_S, every_s))


def _driver() -> Union[Nvml, Amd, Gpus]:
    """Why there is none, where that is so."""
    from . import drivers

    try:
        found = drivers.Nvml()
        if len(found):
            return found
        problem, text = "no_driver", "the driver finds no GPU"
    except drivers.Unavailable as missing:
        problem, text = missing.problem, str(missing)
    amd = drivers.Amd()
    return amd if len(amd) else made(Gpus, problem=problem, text=text)


def _mean(samples: Sequence[float]) -> Optional[float]:
    return round(sum(samples) / len(samples), 3) if samples else None


def _as_given(each: Sequence[Gpu], given: Dict[str, List[int]]) -> List[Gpu]:
    """The GPUs with the tasks that may use them, also those that tasks may use and the driver does not know."""
    missing = {index for indexes in given.values() for index in indexes} - {gpu["index"] for gpu in each}
    every = [*each, *(made(Gpu, index=index, lost=True) for index in sorted(missing))]
    for gpu in every:
        gpu["given"] = [task for task, indexes in given.items() if gpu["index"] in indexes]
    return every[:MOST_GPUS]

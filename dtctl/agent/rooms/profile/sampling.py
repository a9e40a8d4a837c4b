"""Samples the Python stack of a task's main thread, and counts equal ones."""

from __future__ import annotations

import time

from ...host import processes
from ..dump.serving import Stacks, ask, is_python, turn_at
from .records import MOST_FRAMES, MOST_SAMPLES, MOST_STACKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import Dict, List, Optional, Sequence, Tuple

    from ...host.secrets import Masks
    from ...records.vitals import Frame, Stack
    from ..dump.records import Missing
    from .records import SampledStack

    Key = Tuple[Tuple[str, str, Optional[int]], ...]

EVERY_S = 0.2
REST = 2.0
"""How often the time that a sample takes passes until the next: a reader of stacks uses half of a processor at most."""
LAUNCHER = 10
"""A trainer is taken for a launcher if a process below it has used this many times its processor time."""


def main_process(found: Sequence[processes.Process], stacks: Stacks) -> Optional[processes.Process]:
    """The process that trains: the first with Python, but of a launcher the busiest one below it.

    `found`: the processes of an attempt, the trainer first.
    """
    own = [process for process in found if is_python(stacks, process.pid)]
    if not own:
        return None
    busiest = max(own, key=lambda process: process.ticks)
    return busiest if busiest.ticks > LAUNCHER * max(1, own[0].ticks) else own[0]


class Samples:
    """The samples of one process."""

    def __init__(self, attempt: str, process: processes.Process, masks: Masks) -> None:
        self.way = ""
        self.number = 0
        self.seconds = 0.0
        self.missing: Optional[Missing] = None
        self.said = ""
        self._attempt = attempt
        self._process = process
        self._masks = masks
        self._counts: Dict[Key, List[int]] = {}
        """Stack -> how many samples have found it, and the number of its omitted frames."""

    def take(self, seconds: float, cancelled: threading.Event) -> None:
        """Takes samples for these seconds, or until there is no answer."""
        began = now = time.monotonic()
        while now - began < seconds and self.number < MOST_SAMPLES and not cancelled.is_set():
            if not self._take_one():
                break
            took_s = time.monotonic() - now
            left_s = began + seconds - time.monotonic()
            cancelled.wait(max(0.0, min(max(EVERY_S - took_s, REST * took_s), left_s)))
            now = time.monotonic()
        self.seconds = round(now - began, 3)

    def _take_one(self) -> bool:
        with turn_at(self._attempt):
            way, stacks, missing, said = ask(Stacks(self._attempt), self._process, self._masks)
        if not stacks:
            self.missing, self.said = missing, said
            return False
        self.way = way
        main = next((stack for stack in stacks if stack["main"]), stacks[-1])  # faulthandler lists the main one last
        self.add(main)
        return True

    def add(self, stack: Stack) -> None:
        frames = stack["frames"][:MOST_FRAMES]
        key = tuple((one["function"], one["file"], one["line"]) for one in frames)
        count = self._counts.setdefault(key, [0, stack["omitted"] + len(stack["frames"]) - len(frames)])
        count[0] += 1
        self.number += 1

    def most_frequent(self) -> List[SampledStack]:
        ordered = sorted(self._counts.items(), key=lambda item: -item[1][0])
        return [
            {"samples": samples, "frames": list(map(_frame, key)), "omitted": omitted}
            for key, (samples, omitted) in ordered[:MOST_STACKS]
        ]


def _frame(key: Tuple[str, str, Optional[int]]) -> Frame:
    return {"function": key[0], "file": key[1], "line": key[2]}

"""What is told of stacks, within bounds."""

from __future__ import annotations

from ..records.dump import LONGEST_NAME, LONGEST_PATH, MOST_FRAMES, MOST_STACKS, MOST_THREADS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from ..records.dump import Frame, Stack

MOST_FRAMES_IN_ALL = 4000
MOST_THREADS_IN_ALL = 1500
"""Of one task, which is told in one frame of the protocol."""


def line(text: str) -> str:
    return text[:LONGEST_NAME]


def frame(function: str, file: str, number: Optional[int]) -> Frame:
    known = number if type(number) is int and number >= 0 else None
    return {"function": str(function)[:LONGEST_NAME], "file": str(file)[-LONGEST_PATH:], "line": known}


class Room:
    """How many frames and threads may still be told of a task."""

    def __init__(self) -> None:
        self._left = MOST_FRAMES_IN_ALL
        self._threads_left = MOST_THREADS_IN_ALL

    @property
    def threads(self) -> int:
        """How many threads of the next process there is room for."""
        return min(MOST_THREADS, self._threads_left)

    def count_threads(self, number: int) -> None:
        self._threads_left -= number

    def take(self, stacks: List[Stack]) -> Tuple[List[Stack], int]:
        """Those that there is room for, the innermost frames of each; and how many stacks there is none for."""
        kept: List[Stack] = []
        for stack in stacks[:MOST_STACKS]:
            most = min(MOST_FRAMES, self._left)
            if most <= 0:
                break
            frames = stack["frames"][:most]
            omitted = stack["omitted"] + len(stack["frames"]) - len(frames)
            kept.append({**stack, "frames": frames, "omitted": omitted})
            self._left -= max(1, len(frames))
        return kept, len(stacks) - len(kept)

"""TensorFlow's file `checkpoint`: which checkpoint of its directory is to be restored, and which others there are.

A text CheckpointState (tensorflow/python/training/checkpoint_state.proto), one field a line. TF1 writes absolute paths,
TF2 names beside it, and times that stand for the paths with the same index.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

NAME = "checkpoint"

_PATH = re.compile(r'(model_checkpoint_path|all_model_checkpoint_paths): "(.*)"\s*\Z')
_TIMESTAMP = re.compile(r"all_model_checkpoint_timestamps: ")
_PRESERVED = re.compile(r"last_preserved_timestamp: ")


def named(state: str) -> Optional[str]:
    """The name of the checkpoint that is to be restored; None where none is named."""
    found = (_PATH.match(line) for line in state.strip().split("\n"))
    names = [os.path.basename(one.group(2)) for one in found if one and one.group(1) == "model_checkpoint_path"]
    return names[-1] if names else None


def renamed(text: str, damaged: str, good: str) -> str:
    """Names `good` where it names `damaged`, in whatever way it writes paths, and lists `damaged` no more."""
    lines: List[str] = []
    times: List[str] = []
    dropped: List[int] = []
    for line in text.split("\n"):
        match = _PATH.match(line)
        if _TIMESTAMP.match(line):
            times.append(line)
        elif match and os.path.basename(match.group(2)) == damaged:
            if match.group(1) == "model_checkpoint_path":
                lines.append('%s: "%s"' % (match.group(1), match.group(2)[: -len(damaged)] + good))
            else:
                dropped.append(_all_paths(lines) + len(dropped))
        else:
            lines.append(line)
    for index in reversed(dropped):  # a time stands for the path with the same index
        if index < len(times):
            del times[index]
    return "\n".join(lines + times) + "\n"


def with_newest(text: str, name: str, now: float) -> str:
    """The same with `name` as the one that is to be restored, and as the newest of all; nothing else is forgotten.

    `name` may hold neither quotes nor backslashes.
    """
    paths, times, preserved = _listed(text)
    timed = bool(paths) and len(times) == len(paths)
    before = [(path, times[index] if timed else "") for index, path in enumerate(paths)]
    before = [(path, at) for path, at in before if os.path.basename(path) != name]
    lines = ['model_checkpoint_path: "%s"' % name]
    lines += ['all_model_checkpoint_paths: "%s"' % path for path in (*(path for path, _ in before), name)]
    if timed:
        lines += [at for _, at in before] + ["all_model_checkpoint_timestamps: %r" % now]
    return "\n".join(lines + preserved) + "\n"


def _listed(text: str) -> Tuple[List[str], List[str], List[str]]:
    """The paths, the lines of their times, and that of the last preserved; lines of any other form are left out."""
    lines = text.strip().split("\n")
    matches = [match for match in map(_PATH.match, lines) if match]
    paths = [match.group(2) for match in matches if match.group(1) == "all_model_checkpoint_paths"]
    times = [line for line in lines if _TIMESTAMP.match(line)]
    return paths, times, [line for line in lines if _PRESERVED.match(line)][:1]


def _all_paths(lines: List[str]) -> int:
    return sum(line.startswith("all_model_checkpoint_paths") for line in lines)

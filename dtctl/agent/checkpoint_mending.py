"""Sets damaged checkpoints aside, so that a trainer which starts again goes back to the newest complete one.

TensorFlow restores what its file `checkpoint` names (a text CheckpointState, tensorflow/python/training/
checkpoint_state.proto) and ends with DataLossError when that was cut off by a full disk or a crash, for ever.
Nothing is deleted: the files are moved into a directory beside them.
"""

from __future__ import annotations

import os
import re

from . import checkpoints, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping

_PATH = re.compile(r'(model_checkpoint_path|all_model_checkpoint_paths): "(.*)"\s*\Z')
_TIMESTAMP = re.compile(r"all_model_checkpoint_timestamps: ")


def mend(directory: str) -> List[str]:
    """What was set aside, in words. Only while nobody writes there; without a complete one nothing is touched."""
    found = checkpoints.report([directory])[0]["all"]
    newest: Dict[str, Mapping[str, Any]] = {}
    done = []
    for one in found:  # newest first
        if one["complete"]:
            newest.setdefault(os.path.dirname(one["prefix"]), one)
    for one in reversed(found):
        below, name = os.path.split(one["prefix"])
        good = newest.get(below)
        if good is not None and not one["complete"] and one["time"] >= good["time"]:
            _rename_in_state(os.path.join(directory, below), name, os.path.basename(good["prefix"]))
            _move(os.path.join(directory, below), name)
            done.append("checkpoint %s is damaged (%s): set aside" % (one["prefix"], one["problem"]))
    return done


def _move(directory: str, name: str) -> None:
    aside = os.path.join(directory, checkpoints.ASIDE)
    for entry in paths.entries(directory):
        if entry.startswith((name + ".index", name + ".data-", name + ".meta")):
            paths.make_directory(aside)
            os.replace(os.path.join(directory, entry), os.path.join(aside, entry))


def _rename_in_state(directory: str, damaged: str, good: str) -> None:
    """Lets the file `checkpoint` name `good` where it names `damaged`, in whatever way it writes paths."""
    path = os.path.join(directory, "checkpoint")
    text = paths.read_text(path)
    if text is None:
        return
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
    paths.write_text(path, "\n".join(lines + times) + "\n")


def _all_paths(lines: List[str]) -> int:
    return sum(line.startswith("all_model_checkpoint_paths") for line in lines)

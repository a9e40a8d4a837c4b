"""TensorFlow's file `checkpoint`, which names the checkpoint of its directory to restore, and the others.

It is a text CheckpointState (tensorflow/python/training/checkpoint_state.proto), one field a line. TF1 writes absolute
paths, TF2 relative names, and times for the paths with the same index.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

STATE_FILE = "checkpoint"

_PATH = r'(model_checkpoint_path|all_model_checkpoint_paths): "(.*)"\s*\Z'
_TIMESTAMP = "all_model_checkpoint_timestamps: "
_PRESERVED = "last_preserved_timestamp: "


def restored_name(state: str) -> Optional[str]:
    """The name of the checkpoint that is to be restored; None where none is."""
    restored = _parsed(state)[0]
    return None if restored is None else os.path.basename(restored)


def with_renamed(text: str, damaged: str, good: str) -> str:
    """The text with `good` in place of `damaged`, with paths in the same form; it no longer lists `damaged`."""
    restored, listed, preserved = _parsed(text)
    if restored is not None and os.path.basename(restored) == damaged:
        restored = restored[: -len(damaged)] + good
    return _written(restored, [one for one in listed if os.path.basename(one[0]) != damaged], preserved)


def with_newest(text: str, name: str, now: float) -> str:
    """The text with `name` as the checkpoint to restore, and as the newest; all others stay listed.

    `name` may contain neither quotes nor backslashes.
    """
    _, listed, preserved = _parsed(text)
    at = "%s%r" % (_TIMESTAMP, now) if any(at for _, at in listed) else ""
    return _written(name, [*(one for one in listed if os.path.basename(one[0]) != name), (name, at)], preserved)


def _parsed(text: str) -> Tuple[Optional[str], List[Tuple[str, str]], List[str]]:
    """The path to be restored; all paths, each with the line of its time; and the line of the last preserved.

    Lines of any other form are left out, and so are times where there are not as many as paths.
    """
    lines = text.strip().split("\n")
    matches = [match for line in lines for match in [re.match(_PATH, line)] if match]
    restored = [match.group(2) for match in matches if match.group(1) == "model_checkpoint_path"]
    paths = [match.group(2) for match in matches if match.group(1) == "all_model_checkpoint_paths"]
    times = [line for line in lines if line.startswith(_TIMESTAMP)]
    listed = list(zip(paths, times if len(times) == len(paths) else [""] * len(paths)))
    return restored[-1] if restored else None, listed, [line for line in lines if line.startswith(_PRESERVED)][:1]


def _written(restored: Optional[str], listed: List[Tuple[str, str]], preserved: List[str]) -> str:
    lines = [] if restored is None else ['model_checkpoint_path: "%s"' % restored]
    lines += ['all_model_checkpoint_paths: "%s"' % path for path, _ in listed]
    return "\n".join([*lines, *(at for _, at in listed if at), *preserved]) + "\n"

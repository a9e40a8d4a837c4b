"""Requests of a controller about checkpoints, and the reports of a host."""

from .kinds import AtMost, Default, List, OneOf, Optional, Record
from .values import By, Count, Epoch, Inode, Line, Name, Path, Reason

MOST_SHARDS = 1000
"""The most shards of a checkpoint that are reported."""

MOST_STORED = MOST_SHARDS + 2
"""Files of a checkpoint that is stored: its shards, the index and the graph."""


CheckpointKind = OneOf[
    "tensorflow",
    "keras",
    "safetensors",
    "mxnet",
    "lightning",
    "torch",
    "orbax",
    "huggingface",
    "accelerate",
    "deepspeed",
    "dcp",
    "spacy",
]
"""The rows of the table in `dtctl/agent/checkpoints/formats.py`."""


class OutputMark(Record):
    """The last start of a run that writes to a directory."""

    path: Path
    inode: Inode
    """The inode of the directory, which may have been created again since."""
    cluster: Name
    run: Name
    controller: By
    file: Line
    """The cluster file there."""
    time: Epoch


class Checkpoint(Record):
    """One checkpoint, by its files."""

    prefix: Path
    step: Optional[Count]
    time: Epoch
    size_bytes: Count
    shards: Count
    complete: bool
    problem: Optional[Reason]
    kind: Default[CheckpointKind, "tensorflow"]
    held: Default[AtMost[List[Count], MOST_SHARDS], []]
    """The shards that are on this host; of a directory only where it is not complete."""
    lacking: Default[AtMost[List[Count], MOST_SHARDS], []]
    """The shards that a directory of PyTorch's names, and that are not on this host."""
    identity: Default[AtMost[str, 100], ""]
    """The same on hosts that share the file."""


class CheckpointReport(Record):
    """The checkpoints of a directory. `incomplete`: those newer than the newest complete one. `all`: newest first."""

    dir: Path
    newest_complete: Optional[Checkpoint]
    incomplete: AtMost[List[Checkpoint], 100]
    all: AtMost[List[Checkpoint], 100]
    problem: Default[Optional[Reason], None]
    identity: Default[AtMost[str, 100], ""]
    """The identity of the directory; it usually differs on hosts that do not share it."""
    guessed: Default[bool, False]
    """Whether no setting names it, only the lead's command line or working directory."""


Reports = AtMost[List[CheckpointReport], 100]


class Saved(Record):
    """A checkpoint of an earlier run of the cluster; `run` null: the run was removed."""

    run: Optional[Name]
    dir: Path
    checkpoint: Checkpoint
    seen: bool
    """Whether the run to start reads this directory, by its settings and its command line."""

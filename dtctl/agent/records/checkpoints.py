"""What a host tells of checkpoints."""

from .kinds import AtMost, Form, List, OneOf, Optional, Record, Usual
from .words import Count, Epoch, Name, Reason, Seconds

MOST_SHARDS = 1000
"""That are told of a checkpoint."""


class Checkpoint(Record):
    """One checkpoint as its files tell it."""

    prefix: AtMost[str, 8192]
    step: Optional[Count]
    time: Epoch
    size_bytes: Count
    shards: Count
    complete: bool
    problem: Optional[Reason]
    kind: Usual[OneOf["tensorflow", "keras"], "tensorflow"]
    held: Usual[AtMost[List[Count], MOST_SHARDS], []]
    """Which of the shards lie on this host."""
    identity: Usual[AtMost[str, 100], ""]
    """The same on hosts that share the file."""


class CheckpointReport(Record):
    """Of one directory; `incomplete` are those newer than the newest complete one, `all` stand newest first."""

    dir: AtMost[str, 8192]
    newest_complete: Optional[Checkpoint]
    incomplete: AtMost[List[Checkpoint], 100]
    all: AtMost[List[Checkpoint], 100]
    problem: Usual[Optional[Reason], None]
    identity: Usual[AtMost[str, 100], ""]
    """Of the directory: differs where hosts do not share it, as a rule."""
    guessed: Usual[bool, False]
    """No setting names it: the lead's command line does, or the lead works there."""


Reports = AtMost[List[CheckpointReport], 100]


class Saved(Record):
    """What an earlier run of the cluster has saved; `run` null: one of which nothing else is left."""

    run: Optional[Name]
    dir: AtMost[str, 8192]
    checkpoint: Checkpoint
    seen: bool
    """The run that is to start looks where it lies, as far as its settings and its command line tell."""


class Verified(Record):
    """What was found when every byte of a checkpoint was read."""

    dir: AtMost[str, 8192]
    prefix: AtMost[str, 8192]
    problems: AtMost[List[Reason], 100]
    unread: Optional[Reason]
    """Why not all of it was read."""
    tensors: Count
    read_bytes: Count
    seconds: Seconds


class VerifyResult(Record):
    """Of each that was asked about."""

    run: Name
    verified: AtMost[List[Verified], 100]


class FilePart(Record):
    """The frame `part`: bytes of a file, from `offset` on."""

    name: AtMost[str, 300]
    offset: Count
    total: Count
    identity: AtMost[str, 100]
    """As long as it is the same, so is what the file held before."""


class FileSent(Record):
    """A file that was sent to its end."""

    name: AtMost[str, 300]
    size: Count
    sha256: Form[str, 64, r"[0-9a-f]{64}", "64 hex digits"]


class FetchResult(Record):
    """All files that were asked for and are there."""

    run: Name
    files: AtMost[List[FileSent], 1100]


class Pruned(Record):
    """One directory."""

    dir: AtMost[str, 8192]
    removed: AtMost[List[Checkpoint], 10_000]
    kept: AtMost[List[Checkpoint], 10_000]
    freed_bytes: Count
    problem: Optional[Reason]
    """Why not all that was to go has gone."""
    listed: bool
    """TensorFlow's file `checkpoint` names what is left; while a trainer is at work there, it is left to that."""


class PruneResult(Record):
    """What was, or would be, removed."""

    run: Name
    directories: AtMost[List[Pruned], 100]

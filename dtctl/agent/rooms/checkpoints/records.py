"""Single checkpoints: requests to verify, send, store and remove them, and the results."""

import re

from ...records.checkpoints import MOST_STORED, Checkpoint, CheckpointKind, OutputMark
from ...records.kinds import AtMost, Default, InvalidValue, List, Optional, Pattern, Record, Within, also
from ...records.requests import Request
from ...records.values import By, Count, Hex32, Hex64, Name, Path, Reason, Seconds, refuse_unfit


class Verified(Record):
    """The result of reading every byte of a checkpoint."""

    dir: Path
    prefix: Path
    problems: AtMost[List[Reason], 100]
    unread: Optional[Reason]
    """Why not all of it was read."""
    tensors: Count
    read_bytes: Count
    seconds: Seconds


class VerifyResult(Record):
    """One result for each requested checkpoint."""

    run: Optional[Name]
    verified: AtMost[List[Verified], 100]


class FilePart(Record):
    """The frame `part`: bytes of a file, from `offset` on."""

    name: AtMost[str, 300]
    offset: Count
    total: Count
    identity: AtMost[str, 100]
    """While it is unchanged, so are the bytes that the file already had."""


class Arrived(Record):
    """The number of bytes of a file that have arrived."""

    name: AtMost[str, 300]
    size: Count


class FileSent(Arrived):
    """A complete file of a checkpoint that was fetched, or is to be stored."""

    sha256: Hex64


class FetchResult(Record):
    """The requested files that exist."""

    run: Optional[Name]
    files: AtMost[List[FileSent], 1100]


class Landing(Record):
    """The frame `landing`: the directory for a checkpoint, and the parts of it that are already there."""

    dir: Path
    token: Hex32
    """The same on hosts that share the directory."""
    there: bool
    """Whether this very checkpoint is already in place."""
    have: AtMost[List[Arrived], MOST_STORED]
    """Files that an interrupted push left."""
    owners: AtMost[List[OutputMark], 1]
    """The last run that wrote there, if known."""


class Stored(Record):
    """The frame `stored`: every file has arrived and is valid; none has its final name yet."""


class StoreResult(Record):
    """The checkpoint is in its place, and the file `checkpoint` names it."""

    dir: Path
    prefix: Path


class Pruned(Record):
    """The result for one directory."""

    dir: Path
    removed: AtMost[List[Checkpoint], 10_000]
    kept: AtMost[List[Checkpoint], 10_000]
    freed_bytes: Count
    problem: Optional[Reason]
    """Why not everything was removed."""
    listed: bool
    """Whether TensorFlow's file `checkpoint` names the remaining ones; a live trainer updates it itself."""


class PruneResult(Record):
    """The checkpoints that were removed, or would be."""

    run: Optional[Name]
    directories: AtMost[List[Pruned], 100]


class CheckpointPath(Record):
    """A checkpoint, as a report names it."""

    dir: Path
    prefix: Path
    part: Default[bool, False]
    """Whether other hosts hold the rest of it."""


class Had(Arrived):
    """The beginning of a file that was received before."""

    identity: AtMost[str, 100]


class CheckpointRequest(Request):
    """About checkpoints of the run, or, before the first one, of the cluster file."""

    before: Default[AtMost[List[Path], 100], []]
    """Where the checkpoints will be, if there is no run here."""


class VerifyRequest(CheckpointRequest):
    """Reads every byte of checkpoints, as `status` lists them."""

    wanted: AtMost[List[CheckpointPath], 100]
    limit_s: Default[Seconds, 600.0]
    """The longest time for reading."""


class FetchRequest(CheckpointRequest):
    """Fetches the files of one checkpoint, or the rest of them."""

    of: CheckpointPath
    files: AtMost[List[AtMost[str, 300]], MOST_STORED]
    """The files to send, if they exist, in this order; of a directory by their paths in it, or all if none is named."""
    have: Default[AtMost[List[Had], 1100], []]
    """The parts of them that were received before."""


class PruneRequest(CheckpointRequest):
    """Removes old checkpoints."""

    dirs: AtMost[List[Path], 100]
    keep: Within[int, 1, 100_000]
    dry_run: Default[bool, False]


class StoreRequest(Request):
    """Takes a checkpoint, moves it into place on `keep`, and names it as the one to be restored."""

    dir: Path
    """The path, with marks."""
    below: Default[Optional[Pattern[str, 200, r"[^/\0]+", "the name of a directory"]], None]
    """A directory in it, which is created if necessary."""
    name: Pattern[str, 200, r"[^./\\\"\x00-\x1f\x7f][^/\\\"\x00-\x1f\x7f]*", "the name of a checkpoint"]
    kind: Default[CheckpointKind, "tensorflow"]
    files: AtMost[List[FileSent], MOST_STORED]
    """The files of a checkpoint that is a directory have their paths in it as names."""
    push: Hex32
    """A random name of this attempt, the same for all hosts."""
    by: Default[By, ""]


class PartWord(Record):
    """`part`: bytes of one of the files of a checkpoint, from `offset` on."""

    name: AtMost[str, 300]
    offset: Count


_IN_DIRECTORY = re.compile(r"[^\x00-\x1f\x7f/\\]{1,200}")
_MOST_DEPTH = 7
_LONGEST_PATH = 200


def is_path_inside(path: str) -> bool:
    """Whether this is the path of a file in a checkpoint that is a directory, and leads nowhere else."""
    parts = path.split("/")
    fits = all(part not in (".", "..") and _IN_DIRECTORY.fullmatch(part) for part in parts)
    return fits and path.isprintable() and len(parts) <= _MOST_DEPTH and len(path.encode()) <= _LONGEST_PATH


_SHARD = r"\.data-[0-9]{5}-of-[0-9]{5}"


def is_part(name: str, file: str) -> bool:
    """Whether a file of this name is one of the checkpoint's."""
    own, end = file[: len(name)], file[len(name) :]
    return own == name and (end in (".index", ".meta") or re.fullmatch(_SHARD, end) is not None)


@also(StoreRequest)
def _is_whole(request: StoreRequest) -> None:
    refuse_unfit(("dir",), [request["dir"]])
    if request["below"] in (".", ".."):
        raise InvalidValue.at(("below",), "the name of a directory", request["below"])
    names = [file["name"] for file in request["files"]]
    if request["kind"] != "tensorflow":
        for number, name in enumerate(names):
            if not is_path_inside(name) or name in names[:number]:
                raise InvalidValue.at(("files", str(number), "name"), "a file of %s, once" % request["name"], name)
        return
    if names[-1:] != [request["name"] + ".index"] or len(set(names)) != len(names):
        raise InvalidValue.at(("files",), "the files of %s, each once, the index last" % request["name"], names[-1:])
    for number, name in enumerate(names):
        if not is_part(request["name"], name):
            raise InvalidValue.at(("files", str(number), "name"), "a file of %s" % request["name"], name)

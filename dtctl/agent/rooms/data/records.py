"""The data set of a cluster on a host: requests about it, and their results."""

from ...records.kinds import AtMost, Default, List, Optional, Record, also
from ...records.requests import Request
from ...records.starting import Credentials, _are_texts
from ...records.values import MOST_PLACES, BundleId, Count, Line, Path, Port, refuse_unfit


class DataPushRequest(Request):
    """Sends a bundle's files into a directory."""

    dir: Path
    """The path, with marks."""
    bundle: BundleId
    overwrite: Default[bool, False]
    """Whether to replace differing files that others have put there."""
    credentials: Default[Optional[Credentials], None]
    """Set for hosts that send the files to each other; null: the controller sends them."""
    ports: Default[AtMost[List[Port], 1024], []]
    """Ports that other hosts should be able to reach here: the first free one is used, or else any."""


class DataRequest(Request):
    """Inspects, hashes or removes the files that dtctl has put into these directories."""

    dirs: AtMost[List[Path], MOST_PLACES]
    """The paths, with marks."""


@also(DataPushRequest)
def _is_a_place(request: DataPushRequest) -> None:
    refuse_unfit(("dir",), [request["dir"]])
    _are_texts(request["credentials"])


@also(DataRequest)
def _are_places(request: DataRequest) -> None:
    refuse_unfit(("dirs",), request["dirs"])


class DataPushResult(Record):
    """The number of files that were sent, and of those that others had already put there."""

    bundle: Line
    sent_files: Count
    found_files: Default[Count, 0]
    removed_files: Default[Count, 0]
    """Files of an earlier push that the data set no longer contains."""
    port: Default[Optional[Port], None]
    """The same as `port` in `need`."""


class DataDropped(Record):
    """The result of `data drop` for one directory."""

    dir: Path
    removed_files: Default[Count, 0]
    freed_bytes: Default[Count, 0]
    kept_files: Default[Count, 0]
    """Files that others have put there or have changed since."""


class DataDropResult(Record):
    """One result for each directory, in the order of the request."""

    at: AtMost[List[DataDropped], MOST_PLACES]


class DataHeld(Record):
    """The files that a push has put into a directory, and their state."""

    dir: Path
    """The path as in the request."""
    there: bool
    bundle: Default[Optional[BundleId], None]
    """The bundle of the newest push, even if that was interrupted; null: there was none."""
    files: Default[Count, 0]
    """The number of files in the bundle."""
    size_bytes: Default[Count, 0]
    missing: Default[Count, 0]
    missing_bytes: Default[Count, 0]
    changed: Default[Count, 0]
    examples: Default[AtMost[List[Path], 10], []]
    """Examples of missing or changed files."""


class DataQuestion(Record):
    """Directories that `data push` fills."""

    dirs: AtMost[List[Path], MOST_PLACES]
    """The paths, with marks."""


class DataFacts(Record):
    """The facts of the directories, in the order of the request."""

    at: AtMost[List[DataHeld], MOST_PLACES]

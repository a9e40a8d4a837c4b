"""The scalars that trainers write for TensorBoard."""

from .kinds import AtMost, Default, Dict, InvalidValue, List, Optional, Pattern, Record, Within, also
from .values import Count, Epoch, Inode, Name, Path, Reason

MOST_FOLDERS = 500
MOST_PROBLEMS = 100
LONGEST_PATH = 8192

Number = Pattern[str, 32, r"nan|-?(inf|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)", "a number as Python writes it"]
"""As text: JSON has no word for what a loss becomes when training diverges."""


class Problem(Record):
    """A file or a directory that was not read as a whole, and why."""

    path: Path
    problem: Reason


class SeriesPoints(Record):
    """The points of one tag, by their steps; `steps`, `times` and `values` are as long as each other."""

    tag: AtMost[str, 1000]
    count: Count
    """Of all its points; those that are sent may be fewer."""
    least: Optional[Number]
    most: Optional[Number]
    """Of the numbers among its values."""
    steps: AtMost[List[Count], 2000]
    times: AtMost[List[Epoch], 2000]
    values: AtMost[List[Number], 2000]


@also(SeriesPoints)
def _is_of_whole_points(series: SeriesPoints) -> None:
    for name, column in (("times", series["times"]), ("values", series["values"])):
        if len(column) != len(series["steps"]):
            raise InvalidValue.at((name,), "as many as there are steps, %d" % len(series["steps"]), column)


class FolderAt(Record):
    """A directory with event files: `name` below `dir`, `.` for that itself."""

    dir: Path
    name: Path
    identity: AtMost[str, 300]
    """The same on all hosts that share it."""


class FolderPoints(FolderAt):
    """The points that were read from its event files."""

    series: AtMost[List[SeriesPoints], 1000]


Folders = AtMost[List[FolderPoints], MOST_FOLDERS]


class Points(Record):
    """The frame `points`: what has been found since the one before."""

    run: Name
    folders: Folders


VERSION = 2
_Column = AtMost[str, 24_000]
"""Eight bytes for each number, in base64."""


class FileState(Record):
    """How far an event file was read."""

    inode: Inode
    offset: Count


class SeriesState(Record):
    """The points of one tag."""

    file: AtMost[str, 255]
    """The newest that it has points of."""
    every: Within[int, 1, 2**53]
    """Each so many a point was kept."""
    count: Count
    steps: _Column
    times: _Column
    values: _Column


class FolderState(Record):
    """A directory with event files."""

    root: Path
    path: Path
    files: AtMost[Dict[AtMost[str, 255], FileState], 1000]
    series: AtMost[Dict[AtMost[str, 1000], SeriesState], 1000]


class Memory(Record):
    """scalars.json: what was read of a run's event files."""

    version: Within[int, VERSION, VERSION]
    folders: AtMost[List[FolderState], MOST_FOLDERS]


class MetricsResult(Record):
    """What was read from the files."""

    run: Name
    time: Epoch
    dirs: AtMost[List[Path], 100]
    """Where it was looked for event files."""
    folders: Default[Folders, []]
    problems: Default[AtMost[List[Problem], MOST_PROBLEMS], []]
    unread_bytes: Default[Count, 0]
    """There was no time for them: the next look reads on from here."""
    omitted: Default[Count, 0]
    """Values of tags that there was no room for."""

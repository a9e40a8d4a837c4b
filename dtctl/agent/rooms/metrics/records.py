"""The scalars that trainers write for TensorBoard: requests for them, and points."""

from ...records.kinds import AtMost, Default, InvalidValue, List, Optional, Pattern, Record, Within, also
from ...records.requests import Request
from ...records.values import Count, Epoch, Name, Path, Reason

MOST_SCALAR_FOLDERS = 500


MOST_PROBLEMS = 100


LONGEST_PATH = 8192


Number = Pattern[str, 32, r"nan|-?(inf|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)", "a number as Python writes it"]
"""A number as text: JSON has no value for the loss of a diverged training."""


class Problem(Record):
    """A file or a directory that was not read completely, and why."""

    path: Path
    problem: Reason


class SeriesPoints(Record):
    """The points of one tag, by their steps; `steps`, `times` and `values` have the same length."""

    tag: AtMost[str, 1000]
    count: Count
    """The number of all its points; fewer may be sent."""
    least: Optional[Number]
    most: Optional[Number]
    """The range of its values, without NaN."""
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


Folders = AtMost[List[FolderPoints], MOST_SCALAR_FOLDERS]


class Points(Record):
    """The frame `points`: the points that were found since the one before."""

    run: Name
    folders: Folders


class MetricsResult(Record):
    """The points that were read from the files."""

    run: Name
    time: Epoch
    dirs: AtMost[List[Path], 100]
    """The directories that were searched for event files."""
    folders: Default[Folders, []]
    problems: Default[AtMost[List[Problem], MOST_PROBLEMS], []]
    unread_bytes: Default[Count, 0]
    """Bytes for which there was no time."""
    omitted: Default[Count, 0]
    """Values of tags for which there was no room."""


MOST_POINTS = 2000
"""The most points of a series that are sent."""


class MetricsRequest(Request):
    """Requests the scalars that trainers have written for TensorBoard."""

    tags: Default[Optional[AtMost[List[AtMost[str, 1000]], 1000]], None]
    """Tags, or patterns as of file names; null: all."""
    points: Default[Within[int, 1, MOST_POINTS], MOST_POINTS]
    """The most of each series, evenly spread."""
    follow: Default[bool, False]

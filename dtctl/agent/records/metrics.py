"""The scalars that trainers write for TensorBoard."""

from .kinds import AtMost, Default, InvalidValue, List, Optional, Pattern, Record, also
from .values import Count, Epoch, Name, Path, Reason

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


class MetricsResult(Record):
    """What was read from the files."""

    run: Name
    time: Epoch
    dirs: AtMost[List[Path], 100]
    """Where it was looked for event files."""
    folders: Default[Folders, []]
    problems: Default[AtMost[List[Problem], MOST_PROBLEMS], []]
    unread_bytes: Default[Count, 0]
    """There was no time for them."""
    omitted: Default[Count, 0]
    """Values of tags that there was no room for."""

"""What dead runs have left on a host."""

from .answers import Files, Written
from .kinds import AtMost, Default, InvalidValue, List, Optional, Record, also
from .reasons import Because
from .values import MOST_CLUSTERS, MOST_PROCESSES, MOST_RUNS, Count, Line, Name, Pid


class GcRequest(Record):
    """Finds and removes what dead runs have left, of one cluster or of all."""

    type: Line
    cluster: Default[Optional[Name], None]
    host: Name
    dry_run: Default[bool, False]
    all: Default[bool, False]
    written: Default[bool, False]
    """Whether to remove also files of trainers in the working directories of clusters that have no run."""
    over: Default[bool, False]
    """Whether to remove every run that has ended, also the newest."""


class Orphan(Record):
    """A process of a run that has ended or was removed."""

    pid: Pid
    command: Line
    run: Name


class DeadRun(Because):
    """A run that is not needed any more."""

    run: Name
    cluster: Optional[Name]
    """null: its files no longer name it."""
    host: Name
    size_bytes: Default[Count, 0]


class GcResult(Record):
    """The processes and files that were removed, or would be."""

    dry_run: bool
    processes: Default[AtMost[List[Orphan], MOST_PROCESSES], []]
    survivors: Default[AtMost[List[Orphan], MOST_PROCESSES], []]
    """Processes that survived SIGKILL."""
    runs: Default[AtMost[List[DeadRun], MOST_RUNS], []]
    bundles: Default[AtMost[List[Line], 10_000], []]
    environments: Default[AtMost[List[Line], 10_000], []]
    files: Default[Files, []]
    written: Default[AtMost[List[Written], MOST_CLUSTERS], []]
    """Directories that `written` removes."""
    kept: Default[AtMost[List[Written], MOST_CLUSTERS], []]
    """Such directories that stay."""
    omitted: Default[Count, 0]
    """The number of items, of any kind, for which the lists have no room."""
    freed_bytes: Default[Count, 0]


@also(GcRequest)
def _is_of_one_or_all(request: GcRequest) -> None:
    if not request["all"] and request["cluster"] is None:
        raise InvalidValue.at(("cluster",), "the name of a cluster, or `all`", None)

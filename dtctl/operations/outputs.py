"""Finds which other clusters have written to a run's output directories.

An output directory has an owner, as a trainer that finds checkpoints of another program restores them, or fails for
ever. Hosts report who has last started a run that writes there (dtctl/agent/host/outputs.py). It is the same project if

- the cluster file lies in the same directory of the same machine and user, under any name, with any `name`;
- or the cluster has the same name and was started from another machine or by another user: a colleague's clone of the
  project, which cannot be inspected here;
- or it has the same name, and the file that it was started from is no longer here: the project was moved.

Two directories of one machine with clusters of one name are two projects. The history is data that
others may have written: it is shown, and compared, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dtctl.agent.records.answers import OutputMark, Prepared
from dtctl.config.ranges import fold
from dtctl.errors import PreflightError
from dtctl.model import grouped

_MOST_OUTPUTS = 5


def refuse_outputs_of_others(prepared: Mapping[str, Prepared], cluster: str, controller: str, file: Path) -> None:
    """Raises PreflightError, before anything has been started."""
    lines = strangers({host: answer["outputs"] for host, answer in prepared.items()}, cluster, controller, file)
    if not lines:
        return
    raise PreflightError(
        "the output directory was last written by a cluster of another directory: its checkpoints would be restored",
        detail="\n".join([*lines, f"this is cluster {cluster} of {file.parent}"]),
        hint="dtctl up --adopt-output    continues from what is there; or give this cluster a name, or dirs.output, of "
        f"its own in {file}",
    )


def strangers(marked: Mapping[str, Sequence[OutputMark]], cluster: str, controller: str, file: Path) -> list[str]:
    """Which other clusters have written to the output directories, by the marks on the hosts; one line for each."""
    others = [
        (host, one) for host, own in marked.items() for one in own if not _is_same(one, cluster, controller, file)
    ]
    same = grouped(((one["path"], one["run"]), (host, one)) for host, one in others)
    return [f"{fold(host for host, _ in each)}: {_described(each[-1][1])}" for each in [*same.values()][:_MOST_OUTPUTS]]


def _is_same(mark: OutputMark, cluster: str, controller: str, file: Path) -> bool:
    before = Path(mark["file"])
    if mark["controller"] == controller and before.parent == file.parent:
        return True
    if mark["cluster"] != cluster:
        return False
    return mark["controller"] != controller or not before.exists()


def _described(mark: OutputMark) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(mark["time"]))
    where = f"cluster {mark['cluster']} of {Path(mark['file']).parent}"
    return f"{mark['path']}, by {where} ({mark['controller']}), run {mark['run']}, started {when}"

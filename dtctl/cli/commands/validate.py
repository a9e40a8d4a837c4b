"""dtctl validate"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dtctl.cli.options import ClusterFile, OutputOption, Overrides, Scope, on_cluster
from dtctl.errors import ConfigError

if TYPE_CHECKING:
    from dtctl.errors import Problem
    from dtctl.model import Cluster


@on_cluster
def validate(
    scope: Scope, cluster_file: ClusterFile = None, overrides: Overrides = None, output: OutputOption = "text"
) -> None:
    """Check the cluster file, and all that `up` needs of this machine: name every mistake with its place."""
    from dtctl.render import errors
    from dtctl.render.machine import document
    from dtctl.render.terminal import console
    from dtctl.render.words import count

    try:
        cluster, doubts = _reviewed(scope, cluster_file, overrides)
    except ConfigError as error:
        if output == "json":
            found = {"problems": document.problems(error.problems), "warnings": document.problems(error.doubts)}
            document.print_json("Validation", {"valid": False, **found})
        raise
    if output == "json":
        document.print_json("Validation", {"valid": True, "problems": [], "warnings": document.problems(doubts)})
        return
    errors.show_doubts(doubts)
    hosts = len({cluster.host_of(task).name for task in cluster.tasks()})
    console.say(f"{cluster.file}: {cluster.name}, {count(len(cluster.tasks()), 'task')} on {count(hosts, 'host')}")


def _reviewed(scope: Scope, cluster_file: ClusterFile, overrides: Overrides) -> tuple[Cluster, tuple[Problem, ...]]:
    from dtctl.operations.up.review import review

    checked = scope.checked(cluster_file, overrides)
    return checked.cluster, review(checked, os.environ, started=False).doubts

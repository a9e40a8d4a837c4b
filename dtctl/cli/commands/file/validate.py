"""dtctl validate"""

from __future__ import annotations

import typer

from dtctl.cli.options import ClusterFile, OutputOption, Overrides, Scope, on_cluster
from dtctl.errors import ConfigError


@on_cluster
def validate(
    scope: Scope, cluster_file: ClusterFile = None, overrides: Overrides = None, output: OutputOption = "text"
) -> None:
    """Check the cluster file and name every mistake with its place."""
    from dtctl.render.machine import document
    from dtctl.render.terminal import console
    from dtctl.render.words import count

    try:
        cluster = scope.cluster(cluster_file, overrides)
    except ConfigError as error:
        if output == "json":
            document.print_json("Validation", {"valid": False, "problems": document.problems(error)})
            raise typer.Exit(error.exit_code) from None
        raise
    if output == "json":
        document.print_json("Validation", {"valid": True, "problems": []})
        return
    hosts = len({cluster.host_of(task).name for task in cluster.tasks()})
    console.say(f"{cluster.file}: {cluster.name}, {count(len(cluster.tasks()), 'task')} on {count(hosts, 'host')}")

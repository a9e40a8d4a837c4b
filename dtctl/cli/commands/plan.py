"""dtctl plan"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from dtctl.cli.options import (
    ClusterFile,
    Local,
    OutputOption,
    Overrides,
    PortsFrom,
    Scope,
    Tasks,
    on_cluster,
    with_ports_from,
)

_TASK = re.compile(r"@.+|[A-Za-z][A-Za-z0-9_]*(:[0-9,-]+)?")


@on_cluster
def plan(
    scope: Scope,
    cluster_file: ClusterFile = None,
    tasks: Tasks = None,
    overrides: Overrides = None,
    local: Local = False,
    ports_from: PortsFrom = None,
    every: Annotated[bool, typer.Option("--all", help="Every task as a whole, as -v does.")] = False,
    output: OutputOption = "text",
) -> None:
    """Print what `up` would run and where, or tasks as a whole: `dtctl plan worker:1`; nothing is contacted."""
    words = list(tasks or [])
    if cluster_file is not None and _means_tasks(cluster_file):
        cluster_file, words = None, [str(cluster_file), *words]
    show(
        scope,
        cluster_file,
        with_ports_from(overrides, ports_from),
        words,
        local=local,
        every=every or scope.verbose,
        output=output,
    )


def _means_tasks(word: Path) -> bool:
    """A file that is there is meant as one."""
    return _TASK.fullmatch(str(word)) is not None and not word.exists()


def show(
    scope: Scope,
    cluster_file: ClusterFile,
    overrides: Overrides,
    words: list[str],
    *,
    local: bool,
    every: bool,
    output: OutputOption,
) -> None:
    from dtctl.operations.history.record import record_of
    from dtctl.operations.selection import select_tasks
    from dtctl.operations.up.launch import make_plan
    from dtctl.operations.up.local import make_local, scan_code
    from dtctl.operations.up.secrets import exposure
    from dtctl.render import errors, left_out
    from dtctl.render import plan as render
    from dtctl.render.machine import document

    checked = scope.checked(cluster_file, overrides)
    checked.findings.or_raise_all()
    cluster = checked.cluster
    errors.show_doubts(checked.findings.doubts)
    planned = make_plan(make_local(cluster) if local else cluster, scope.transport.hostname)
    chosen = select_tasks(record_of(planned), words) if words else None
    bundle = scan_code(cluster)
    if output == "json":
        document.print_json("Plan", {**document.plan(planned, chosen), **document.not_pushed(bundle)})
    elif chosen is not None or every:
        render.show_whole_tasks(planned, chosen)
    else:
        render.show_plan(planned)
    left_out.show_left_out(bundle, cluster.file)
    left_out.show_exposure(exposure(cluster))

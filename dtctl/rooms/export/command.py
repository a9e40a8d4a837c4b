"""dtctl export"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dtctl.cli.late import console, document, errors, operations, rooms
from dtctl.cli.options import ClusterFile, OutputOption, Overrides, Scope, on_cluster
from dtctl.errors import UsageError


@on_cluster
def export(
    scope: Scope,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="tfjob, jobset, trainjob, slurm or dockerfile.")],
    cluster_file: ClusterFile = None,
    image: Annotated[str | None, typer.Option("--image", metavar="NAME", help="The trainers' image.")] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Write a new file; printed if omitted.")
    ] = None,
    overrides: Overrides = None,
    output: OutputOption = "text",
) -> None:
    """Write the cluster as a TFJob, JobSet, TrainJob, Slurm batch file or Dockerfile; nothing is started."""
    targets = rooms.export.operation.TARGETS
    if target not in targets:
        raise UsageError(f"{target!r} is none of {', '.join(targets)}", hint="dtctl export jobset")
    checked = scope.checked(cluster_file, overrides)
    checked.findings.or_raise_all()
    code = operations.sending.scan_code(checked.cluster)
    made = rooms.export.operation.export(checked.cluster, target, code.code_id, image)
    if to is not None:
        rooms.export.operation.write(made.text, to)
    if output == "json":
        content = {"target": target, "text": made.text, "warnings": list(made.warnings), "file": str(to or "")}
        document.print_json("Export", content)
        return
    for text in made.warnings:
        errors.note(f"warning: {text}")
    if to is not None:
        errors.note(f"wrote {to}")
        return
    for line in made.text.rstrip("\n").split("\n"):
        console.say(line)

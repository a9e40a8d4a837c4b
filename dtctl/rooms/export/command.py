"""dtctl export"""

from __future__ import annotations

import os
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
    with_agent: Annotated[
        bool, typer.Option("--with-agent", help="The pods run dtctl's agents, as hosts do. Needs --to; jobset alone.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", metavar="NAME", help="Where the pods of --with-agent will be.")
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
    run = ""
    if with_agent:
        if target != "jobset" or to is None:
            hint = "dtctl export jobset --with-agent --to run.yaml"
            raise UsageError("--with-agent writes a JobSet with keys of the run, into a file", hint=hint)
        made, record = rooms.export.operation.export_with_agent(checked.cluster, code, image, os.environ, namespace)
        rooms.export.operation.write(made.text, to, is_private=True)
        scope.memory.save(record)
        run = record.run or ""
    else:
        made = rooms.export.operation.export(checked.cluster, target, code.code_id, image)
        if to is not None:
            rooms.export.operation.write(made.text, to)
    if output == "json":
        text = "" if with_agent else made.text  # with keys of the run
        content = {"target": target, "text": text, "warnings": list(made.warnings), "file": str(to or ""), "run": run}
        document.print_json("Export", content)
        return
    for text in made.warnings:
        errors.note(f"warning: {text}")
    if to is not None:
        errors.note(f"wrote {to}")
        if run:
            where = f" --namespace {namespace}" if namespace else ""
            errors.note("next:", f"kubectl apply --server-side -f {to}{where}    starts run {run}")
            errors.note("dtctl status    shows it, by kubectl exec; dtctl logs and dtctl stop reach it as well")
        return
    for line in made.text.rstrip("\n").split("\n"):
        console.say(line)

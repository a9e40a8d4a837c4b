"""dtctl validate, plan, init, explain, schema: what needs no host"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Annotated

import typer

from dtctl.cli.late import console, document, errors, operations, render
from dtctl.cli.options import (
    ClusterFile,
    Exclude,
    Local,
    On,
    OutputOption,
    Overrides,
    PortsFrom,
    Scope,
    Tasks,
    on_cluster,
    with_place,
    with_ports_from,
)
from dtctl.errors import ConfigError


@on_cluster
def validate(
    scope: Scope, cluster_file: ClusterFile = None, overrides: Overrides = None, output: OutputOption = "text"
) -> None:
    """Check the cluster file, and what `up` needs on this machine."""
    try:
        checked = scope.checked(cluster_file, overrides)
        if (engine := operations.engines.engine_of(checked.cluster.on)) is not None:
            checked = dataclasses.replace(checked, cluster=engine.place(checked.cluster))
        doubts = operations.up.review.review(checked, os.environ, started=False).doubts
    except ConfigError as error:
        if output == "json":
            found = {"problems": document.problems(error.problems), "warnings": document.problems(error.doubts)}
            document.print_json("Validation", {"valid": False, **found})
        raise
    if output == "json":
        document.print_json("Validation", {"valid": True, "problems": [], "warnings": document.problems(doubts)})
        return
    errors.show_doubts(doubts)
    cluster = checked.cluster
    hosts, count = len({cluster.host_of(task).name for task in cluster.tasks()}), render.format.count
    console.say(f"{cluster.file}: {cluster.name}, {count(len(cluster.tasks()), 'task')} on {count(hosts, 'host')}")


_TASK = re.compile(r"@.+|[A-Za-z][A-Za-z0-9_]*(:[0-9,-]+)?")


@on_cluster
def plan(
    scope: Scope,
    cluster_file: ClusterFile = None,
    tasks: Tasks = None,
    exclude: Exclude = None,
    overrides: Overrides = None,
    local: Local = False,
    on: On = None,
    ports_from: PortsFrom = None,
    every: Annotated[bool, typer.Option("--all", help="Show every task in full, as -v does.")] = False,
    output: OutputOption = "text",
) -> None:
    """Show what `up` would run, and where; no host is contacted."""
    words = list(tasks or [])
    # a file that exists is meant as one
    if cluster_file is not None and _TASK.fullmatch(str(cluster_file)) and not cluster_file.exists():
        cluster_file, words = None, [str(cluster_file), *words]
    show_plan(
        scope,
        cluster_file,
        with_place(with_ports_from(overrides, ports_from), on),
        words,
        exclude or [],
        local=local,
        every=every or scope.verbose,
        output=output,
    )


def show_plan(
    scope: Scope,
    cluster_file: ClusterFile,
    overrides: Overrides,
    words: list[str],
    exclude: list[str],
    *,
    local: bool,
    every: bool,
    output: OutputOption,
) -> None:
    checked = scope.checked(cluster_file, overrides)
    checked.findings.or_raise_all()
    said = cluster = checked.cluster
    engine = None if local else operations.engines.engine_of(said.on)
    if engine is not None:
        cluster = engine.place(said)
    job = engine.request(said) if engine is not None else None
    bundle, files = operations.sending.scan_code(cluster), operations.environments.environment_files(cluster)
    operations.up.review.check_programs(cluster, bundle, checked.findings)
    errors.show_doubts(checked.findings.doubts_and_problems)
    planned = operations.up.launch.make_plan(cluster, scope.transport.hostname, local=local)
    record = operations.run_record.record_of(planned)
    chosen = operations.selection.select_tasks(record, words, exclude) if words or exclude else None
    if output == "json":
        fields = {**document.plan(planned, chosen, files), **document.job(job), **document.not_pushed(bundle)}
        document.print_json("Plan", fields)
    elif chosen is not None or every:
        render.plan.show_whole_tasks(planned, chosen, files)
    else:
        render.plan.show_plan(planned, files)
    if job is not None and output != "json":
        render.allocation.show_request(job, operations.engines.again(said))
    render.plan.show_left_out(bundle, cluster.file)
    render.plan.show_exposure(operations.local.exposure(cluster))
    previous = None if local or engine is not None else scope.memory.newest_of(cluster.file, cluster.name)
    if previous is not None and not previous.outcome and not previous.is_local:
        render.plan.show_new_hosts(operations.up.adding.new_in_file(cluster, previous.hosts), previous.run or "")
    if previous is not None:
        bad = [host for host in previous.bad if host in planned.members]
        render.plan.show_bad_hosts(bad, previous.run or "")


def _topics(incomplete: str) -> list[str]:
    return [name for name in sorted(render.manual.names()) if name.startswith(incomplete)]


def explain(
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="A key of cluster.yaml (trainer.command), an exit code (5), an answer of a host (port_taken), or a "
            "word (lead); all are listed if it is omitted.",
            autocompletion=_topics,
        ),
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Explain a key of cluster.yaml, an exit code or a term."""
    import dataclasses

    if not topic:
        if output == "json":
            document.print_json("Explanations", {"topics": render.manual.listed()})
        else:
            render.manual.show_list(render.manual.listed())
        return
    found = render.manual.find(topic)
    if output == "json":
        document.print_json("Explanation", {"topics": [dataclasses.asdict(one) for one in found]})
    else:
        render.manual.show(found)


def schema(output: OutputOption = "text") -> None:
    """Print the JSON Schema of cluster.yaml, for editors."""
    from dtctl.config.reference import json_schema

    document.print_document(json_schema())

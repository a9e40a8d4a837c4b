"""Commands about a cluster whose engine is used on another machine, the login node: dtctl carries them out there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from dtctl.cli.late import console, errors, operations, render
from dtctl.cli.table import COMMANDS, asks_hosts
from dtctl.errors import DtctlError, UsageError

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.cli.scope import Scope
    from dtctl.config.cluster import Cluster

FILES_HERE = ("pull", "push")
"""Actions of `checkpoints` that read or write files of that machine."""
OF_THIS_MACHINE = ("config", "named", "user", "identity", "jump", "ssh_config", "cluster_file", "ctx")
"""Parameters that say which file is meant, and how the login node is reached."""
AT_LOGIN = "DTCTL_AT_LOGIN"


def carried_out(scope: Scope, context: typer.Context) -> bool:
    """Carries the command out on the login node, and raises Exit with its code. False: it is for this machine."""
    if not asks_hosts(scope.command) or AT_LOGIN in os.environ:
        return False
    said = context.params
    if said.get("local") or said.get("dry_run") or not _may_have_login(scope, said):
        return False
    cluster = scope.checked(said.get("cluster_file"), _overrides(said)).cluster
    found = operations.engines.login_of(cluster)
    if found is None:
        return False
    login, carry_out = found
    if said.get("on") and scope.checked(said.get("cluster_file"), said.get("overrides")).cluster.on != cluster.on:
        hint = f"write    on: {cluster.on}    into it"
        raise UsageError("with slurm.login, the file says where its runs are: later commands read it", hint=hint)
    if COMMANDS[scope.command].here or said.get("action") in FILES_HERE:
        operations.engines.require_here(cluster, f"dtctl {scope.command}")
    printer = render.awaiting.OutputPrinter([login.name])
    bundle = _reviewed(scope, cluster, said) if scope.command == "up" else None

    def on_output(stream: int, data: bytes) -> None:
        printer.print(login.name, stream, data)

    quiet = bool(said.get("quiet")) or console.speaks_json()
    removes = scope.command == "down"
    with scope.on_interrupt(f"the command on {login.name} was ended", "dtctl status    shows the run"):
        with render.progress.UpProgress([login.name] if bundle else [], quiet=quiet or bundle is None) as progress:
            words = [scope.command, *_words(context)]
            code = carry_out(cluster, login, words, bundle, scope.transport, on_output, progress, removes=removes)
        printer.finish()
    raise typer.Exit(code)


def _may_have_login(scope: Scope, said: Mapping[str, Any]) -> bool:
    if scope.named is not None:
        return False
    try:
        return bool(operations.engines.may_have_login(scope.file(said.get("cluster_file"))))
    except DtctlError:  # the command itself reports it
        return False


def _overrides(said: Mapping[str, Any]) -> list[str]:
    return [*(said.get("overrides") or []), *([f"on={said['on']}"] if said.get("on") else [])]


def _reviewed(scope: Scope, cluster: Cluster, said: Mapping[str, Any]) -> Bundle:
    """The code, with the consent to sending it and the values of secrets to the login node."""
    from dtctl.cli.watching import require_consent

    checked = scope.checked(said.get("cluster_file"), _overrides(said))
    reviewed = operations.up.review.review(checked, os.environ)
    errors.show_doubts(reviewed.doubts)
    require_consent(cluster, _overrides(said), local=False, sends=operations.sending.START)
    render.plan.show_left_out(reviewed.bundle, cluster.file)
    bundle: Bundle = reviewed.bundle
    return bundle


def _words(context: typer.Context) -> Iterator[str]:
    """The options and words that were typed, without those for this machine."""
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in OF_THIS_MACHINE or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        values = list(value) if isinstance(value, list | tuple) else [value]
        if parameter.param_type_name == "argument":
            arguments += map(str, values)
        elif isinstance(value, bool):
            yield max(parameter.opts if value else parameter.secondary_opts, key=len)
        else:
            for one in values:
                yield f"{max(parameter.opts, key=len)}={one}"
    yield from arguments

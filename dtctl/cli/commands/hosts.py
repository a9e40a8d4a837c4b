"""dtctl trust, allow, check: before a start"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.ending import on_interrupt, report_errors
from dtctl.cli.late import console, document, errors, operations, render, results
from dtctl.cli.options import ClusterFile, Exclude, Local, OutputOption, Scope, on_cluster
from dtctl.errors import UsageError

if TYPE_CHECKING:
    from dtctl.config.outgoing import Sending
    from dtctl.model import Host
    from dtctl.operations.consent import KeyScan, LocalProgram, NewKeys
    from dtctl.transport.connect import Transports

    Pinned = tuple[NewKeys, Sequence[Path]]


@on_cluster
def allow(
    scope: Scope,
    cluster_file: ClusterFile = None,
    local: Local = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="For scripts: allow does not ask in any case.")] = False,
    output: OutputOption = "text",
) -> None:
    """Show what the cluster file would run on this machine and send from outside of its directory, and allow it."""
    cluster = scope.cluster(cluster_file)
    programs = operations.consent.programs_here(cluster, local=local)
    sendings = () if local else operations.sending.allowable(cluster)
    consents = operations.consent.Consents()
    new: list[LocalProgram | Sending] = [*consents.missing(programs), *consents.missing(sendings)]
    if output == "text":
        render.starting.show_wanted(programs, sendings)
    consents.allow(new)
    if output == "json":
        return document.print_json("Allow", results.allow(programs, sendings, new))
    if not (programs or sendings):
        return errors.note(
            f"nothing to allow: {cluster.file} starts nothing on this machine, and sends nothing from outside of its "
            "directory"
        )
    return errors.note("allowed; you will be asked again when that changes" if new else "allowed already")


@on_cluster
def trust(
    scope: Scope,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="Hosts of the cluster file; all, spares included, if none is named."),
    ] = None,
    exclude: Exclude = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Pin what is found without asking.")] = False,
    output: OutputOption = "text",
) -> None:
    """Show the hosts' key fingerprints, ask, and pin them in known_hosts."""
    from dtctl.plan import plan_roster

    cluster = scope.cluster()
    spares = {name: cluster.hosts[name] for name in cluster.spares}
    record = operations.run_record.record_of(plan_roster(cluster))
    record = dataclasses.replace(record, hosts={**record.hosts, **spares})
    names = operations.selection.select_hosts(record, hosts or [*record.hosts], exclude or [])
    wanted = [record.hosts[name] for name in names]
    pinned: list[Pinned] = []
    with on_interrupt(lambda: _left_pinned(pinned)):
        found = _pin_what_is_new(scope.transport, wanted, pinned, yes=yes, say=output == "text")
    if output == "json":
        document.print_json("Trust", results.trust(found, pinned))
    elif found.known:
        errors.note(f"pinned and unchanged: {render.format.fold(found.known)}")
    if not (found.known or found.errors or pinned):
        errors.note("nothing to trust: none of these hosts is reached by SSH")
    report_errors(found.errors, others=found.new or found.known)


def _pin_what_is_new(
    transport: Transports, wanted: Sequence[Host], pinned: list[Pinned], *, yes: bool, say: bool
) -> KeyScan:
    """Repeats until no key is new: a host behind a gateway is scanned once the gateway's key is pinned.

    Adds to `pinned`.
    """
    while (found := operations.consent.look(transport, wanted)).new:
        if say or not yes:
            _show(found.new)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("keys are pinned only after a person has confirmed them", hint="dtctl trust --yes")
            console.confirm("Are these the keys of your hosts? Pin them?", _left_pinned(pinned))
        files = operations.consent.pin(found.new)
        pinned += [(one, files) for one in found.new]
        if say:
            errors.note(f"pinned {render.format.count(len(found.new), 'host')} in {', '.join(map(str, files))}")
        if found.errors:
            break
    return found


def _show(new: Sequence[NewKeys]) -> None:
    for one in new:
        console.say(one.station.where)
        for key in one.keys:
            console.say(f"  {key.type:<19}  {key.fingerprint}")


def _left_pinned(pinned: Sequence[Pinned]) -> str:
    names = [one.station.name for one, _ in pinned]
    return f"pinned so far: {render.format.fold(names)}; nothing else" if names else "nothing was pinned"

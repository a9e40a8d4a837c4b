"""dtctl trust"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.interrupts import left
from dtctl.cli.options import OutputOption, Scope, on_cluster
from dtctl.errors import UsageError

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.operations.trust import Look, NewKeys
    from dtctl.transport.ssh.trust import Trust

    Pinned = tuple[NewKeys, Sequence[Path]]


@on_cluster
def trust(
    scope: Scope,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="Hosts of the cluster file; all, spares included, if none is named."),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Pin what is found without asking.")] = False,
    output: OutputOption = "text",
) -> None:
    """Show the hosts' key fingerprints, ask, and pin them in known_hosts."""
    from dtctl.operations.history.record import record_of
    from dtctl.operations.selection import select_hosts
    from dtctl.plan.roster import plan_roster
    from dtctl.render import errors
    from dtctl.render.machine import document, results
    from dtctl.render.words import fold

    cluster = scope.cluster()
    spares = {name: cluster.hosts[name] for name in cluster.spares}
    record = record_of(plan_roster(cluster))
    record = dataclasses.replace(record, hosts={**record.hosts, **spares})
    wanted = [record.hosts[name] for name in select_hosts(record, hosts or [])]
    pinned: list[Pinned] = []
    with left(lambda: _left_pinned(pinned)):
        found = _pin_what_is_new(scope.transport.trust(), wanted, pinned, yes=yes, say=output == "text")
    if output == "json":
        document.print_json("Trust", results.trust(found, pinned))
    elif found.known:
        errors.note(f"pinned and unchanged: {fold(found.known)}")
    if not (found.known or found.errors or pinned):
        errors.note("nothing to trust: none of these hosts is reached by SSH")
    errors.show_host_errors(found.errors)
    exit_for(found.errors, others=found.new or found.known)


def _pin_what_is_new(trusted: Trust, wanted: Sequence[Host], pinned: list[Pinned], *, yes: bool, say: bool) -> Look:
    """Again until nothing is new: a host behind a gateway is looked at when the gateway is pinned. Adds to `pinned`."""
    from dtctl.operations.trust import look, pin
    from dtctl.render import errors
    from dtctl.render.terminal import console
    from dtctl.render.words import count

    while (found := look(trusted, wanted)).new:
        if say or not yes:
            _show(found.new)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("keys are pinned only after a person has looked at them", hint="dtctl trust --yes")
            console.confirm("Are these the keys of your hosts? Pin them?", _left_pinned(pinned))
        files = pin(trusted, found.new)
        pinned += [(one, files) for one in found.new]
        if say:
            errors.note(f"pinned {count(len(found.new), 'host')} in {', '.join(map(str, files))}")
        if found.errors:
            break
    return found


def _show(new: Sequence[NewKeys]) -> None:
    from dtctl.render.terminal import console

    for one in new:
        console.say(one.station.where)
        for key in one.keys:
            console.say(f"  {key.type:<19}  {key.fingerprint}")


def _left_pinned(pinned: Sequence[Pinned]) -> str:
    from dtctl.render.words import fold

    names = [one.station.name for one, _ in pinned]
    return f"pinned so far: {fold(names)}; nothing else" if names else "nothing was pinned"

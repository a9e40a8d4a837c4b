"""dtctl trust"""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.options import Scope, on_cluster
from dtctl.errors import UsageError


@on_cluster
def trust(
    scope: Scope,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]...", help="Hosts of the cluster file; all, spares included, if none is named."),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Pin what is found without asking.")] = False,
) -> None:
    """Show the hosts' key fingerprints, ask, and pin them in known_hosts."""
    from dtctl.operations.memory.record import record_of
    from dtctl.operations.selection import select_hosts
    from dtctl.operations.trust import look, pin
    from dtctl.plan.roster import plan_roster
    from dtctl.render import errors
    from dtctl.render.terminal import console
    from dtctl.render.words import count, fold

    cluster = scope.cluster()
    spares = {name: cluster.hosts[name] for name in cluster.spares}
    record = record_of(plan_roster(cluster))
    record = dataclasses.replace(record, hosts={**record.hosts, **spares})
    wanted = [record.hosts[name] for name in select_hosts(record, hosts or [])]
    trusted = scope.transport.trust()
    while (found := look(trusted, wanted)).new:
        width = max(len(one.station.name) for one in found.new)
        for one in found.new:
            for key in one.keys:
                console.say(f"{one.station.name:<{width}}  {key.type:<19}  {key.fingerprint}")
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("keys are pinned only after a person has looked at them", hint="dtctl trust --yes")
            console.confirm("Are these the keys of your hosts? Pin them?")
        files = pin(trusted, found.new)
        errors.note(f"pinned {count(len(found.new), 'host')} in {', '.join(map(str, files))}")
        if found.errors:
            break
    if found.known:
        errors.note(f"pinned and unchanged: {fold(found.known)}")
    errors.show_host_errors(found.errors)
    exit_for(found.errors, others=found.new or found.known)

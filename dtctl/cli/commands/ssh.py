"""dtctl ssh"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from dtctl.cli.completion import complete_tasks
from dtctl.cli.options import Scope, on_run
from dtctl.errors import UsageError


@on_run
def ssh(
    scope: Scope,
    where: Annotated[str, typer.Argument(metavar="TASK|HOST", autocompletion=complete_tasks)],
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="As for ssh.")] = None,
) -> None:
    """Log in to the host of a task, with OpenSSH's own client."""
    from dtctl.operations.selection import select_hosts
    from dtctl.transport.ssh.openssh import ssh_command

    record = scope.record(for_its_hosts=True)
    hosts = select_hosts(record, [where])
    if len(hosts) != 1:
        raise UsageError(f"{where} is on {len(hosts)} hosts", hint=f"name one: {', '.join(hosts)}")
    host = record.hosts[hosts[0]]
    if host.is_local:
        command = command[1:] if command and command[0] == "--" else command  # as ssh takes it
        argv = command or [os.environ.get("SHELL", "/bin/sh")]
    elif host.reach.transport == "ssh":
        argv = [*ssh_command(host, ssh_config=scope.ssh_config), *(command or [])]
    else:
        raise UsageError(f"{host.name} is reached by {host.reach.transport}, not by SSH")
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError as error:
        raise UsageError(f"there is no {argv[0]!r} on this machine") from error

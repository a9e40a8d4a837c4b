"""dtctl exec, ssh"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dtctl.cli.completion import complete_places, complete_tasks
from dtctl.cli.ending import report_errors
from dtctl.cli.late import document, operations, render, rooms
from dtctl.cli.options import Exclude, OutputOption, Raw, Scope, on_run
from dtctl.errors import UsageError


@on_run
def exec(  # noqa: A001 (the command's own name)
    scope: Scope,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[TASK|@HOST]... -- COMMAND...",
            help="Where to run it (everywhere if omitted), and the command.",
            autocompletion=complete_places,
        ),
    ],
    exclude: Exclude = None,
    home: Annotated[bool, typer.Option("--home", help="Run in the home directory, not in the code's.")] = False,
    raw: Raw = False,
    output: OutputOption = "text",
) -> None:
    """Run a command in the environment of tasks, or on hosts, without a shell."""
    record = scope.placed(for_its_hosts=True)
    where, command = _split(words)
    places = rooms.execute.operation.targets(record, where, exclude or [])
    printer = render.awaiting.OutputPrinter([place.name for place in places], raw=raw)
    on_output = printer.print
    if output == "json":
        kept = rooms.execute.document.Outputs()
        on_output = kept.print
    # The output of a single place is passed on as it comes, and may end in the middle of a line.
    awaiting = render.awaiting.Awaiting(len(places), shown=len(places) > 1)
    failing = render.awaiting.failures_noted(scope.transport.dialled, scope.transport.failed)
    with scope.on_interrupt("the hosts end what was started there"), awaiting, failing:
        outcome = rooms.execute.operation.execute(
            record, scope.transport, places, command, on_output, cwd="home" if home else "code", report=awaiting
        )
        printer.finish()
    if output == "json":
        document.print_json("Exec", kept.document(outcome))
    report_errors(outcome.errors, others=outcome.results)
    raise typer.Exit(max(map(rooms.execute.operation.exit_code, outcome.results.values()), default=0))


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Splits the words at `--`: Typer removes one that comes before any argument, and keeps one that follows them."""
    if "--" in sys.argv:
        command = sys.argv[sys.argv.index("--") + 1 :]
        where = [argument for argument in arguments[: len(arguments) - len(command)] if argument != "--"]
    else:
        where, command = arguments, []
    if not command:
        raise UsageError("no command to run: write it after --", hint="dtctl exec worker:0 -- nvidia-smi")
    return where, command


@on_run
def ssh(
    scope: Scope,
    where: Annotated[str, typer.Argument(metavar="TASK|HOST", autocompletion=complete_tasks)],
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="As for ssh.")] = None,
) -> None:
    """Log in to the host of a task, with OpenSSH's own client."""
    from dtctl.transport.ssh.openssh import ssh_command

    record = scope.placed(for_its_hosts=True)
    hosts = operations.selection.select_hosts(record, [where])
    if len(hosts) != 1:
        raise UsageError(f"{where} is on {len(hosts)} hosts", hint=f"name one: {', '.join(hosts)}")
    host = record.hosts[hosts[0]]
    if host.is_local:
        command = command[1:] if command and command[0] == "--" else command  # in the form that ssh accepts
        argv = command or [os.environ.get("SHELL", "/bin/sh")]
    elif host.reach.transport == "ssh":
        argv = [*ssh_command(host, ssh_config=scope.ssh_config), *(command or [])]
    else:
        raise UsageError(f"{host.name} is reached by {host.reach.transport}, not by SSH")
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError as error:
        raise UsageError(f"there is no {argv[0]!r} on this machine") from error

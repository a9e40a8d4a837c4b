"""Options that many commands share, and what they lead to: a run and a way to its hosts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dtctl import durations
from dtctl.cli.completion import complete_clusters, complete_runs, complete_tasks
from dtctl.cli.ending import on_interrupt
from dtctl.cli.forwarding import carried_out
from dtctl.cli.late import errors
from dtctl.cli.scope import DEFAULTS
from dtctl.cli.scope import Scope as Scope
from dtctl.durations import NoDuration
from dtctl.errors import UsageError

Output = Literal["text", "json"]
ClusterFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[CLUSTER_FILE]", help="The cluster file; if omitted, searched for in this directory and its parents."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Set a key of the file, as trainer.args.steps=100."),
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", metavar="text|json", help="Output format.")]
PortsFrom = Annotated[
    int | None,
    typer.Option("--ports-from", metavar="PORT", min=1, max=65535, help="First port where the file sets none."),
]
On = Annotated[
    str | None, typer.Option("--on", metavar="ssh|slurm", help="Where the tasks run, in place of `on` in the file.")
]
Local = Annotated[bool, typer.Option("--local", help="Run all hosts on this machine, without SSH.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
Raw = Annotated[bool, typer.Option("--raw", help="Pass output through byte for byte, escape sequences included.")]
Tasks = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TASK]...",
        help="worker:1, worker, worker:0-3 or @HOST; all if none is named.",
        autocompletion=complete_tasks,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "-x",
        "--exclude",
        metavar="TASK|@HOST",
        help="Leave these out: worker:3, worker:0-3 or @HOST; may be given more than once.",
        autocompletion=complete_tasks,
    ),
]


def check_action(
    command: str, action: str, actions: Collection[str], own: Mapping[str, Collection[str]], given: Mapping[str, object]
) -> None:
    """Raises UsageError for no action of a command, and for options that are `given` and another action's `own`."""
    if action not in actions:
        first, *_ = own
        hint = f"dtctl {command} {first}    or {', '.join(one for one in actions if one != first)}"
        raise UsageError(f"{action!r} is none of {', '.join(actions)}", hint=hint)
    for name in (name for name, value in given.items() if value and name not in own.get(action, ())):
        whose = next(one for one, names in own.items() if name in names)
        raise UsageError(f"{name} is about {command} {whose}", hint=f"dtctl {command} {whose} {name}")


def with_ports_from(overrides: list[str] | None, ports_from: int | None) -> list[str]:
    """--ports-from is --set ports=PORT."""
    return [*(overrides or []), *([] if ports_from is None else [f"ports={ports_from}"])]


def with_place(overrides: list[str], on: str | None) -> list[str]:
    """--on is --set on=PLACE."""
    return [*overrides, *([] if on is None else [f"on={on}"])]


_RUN = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", help="A run other than the current one.", autocompletion=complete_runs),
]
ACCESS = {
    "config": Annotated[Path | None, typer.Option("-c", "--config", metavar="FILE", help="The cluster file.")],
    "named": Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="The cluster of this name that was started last from this machine.",
            autocompletion=complete_clusters,
        ),
    ],
    "user": Annotated[str | None, typer.Option("-u", "--user", metavar="NAME", help="SSH user.")],
    "identity": Annotated[Path | None, typer.Option("-i", "--identity", metavar="FILE", help="SSH private key.")],
    "jump": Annotated[str | None, typer.Option("-J", "--jump", metavar="[USER@]HOST[:PORT]", help="SSH jump host.")],
    "ssh_config": Annotated[
        Path | None, typer.Option("-F", "--ssh-config", metavar="FILE", help="Read this file instead of ~/.ssh/config.")
    ],
    "verbose": Annotated[bool, typer.Option("-v", "--verbose", help="Log what runs on which host.")],
}


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a Scope, for Typer: with the options that say which file and how to log in."""
    return _scoped(command, ACCESS)


def on_run(command: Callable[..., None]) -> Callable[..., None]:
    """Does the same as `on_cluster`, and adds --run."""
    return _scoped(command, {**ACCESS, "run": _RUN})


def _scoped(command: Callable[..., None], options: Mapping[str, Any]) -> Callable[..., None]:
    """Ends the command with 130 on Ctrl-C, with every version of Typer."""
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=DEFAULTS[name])
        for name, annotation in options.items()
    ]

    def run(**values: Any) -> None:
        context = values.pop("ctx")
        scope = Scope(command.__name__, **{name: values.pop(name) for name in options})
        if scope.verbose:
            errors.show_trace()
        with on_interrupt("nothing was changed"):
            if not carried_out(scope, context):
                command(scope, **values)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + [*shared, context]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


_OF_DAY = re.compile(r"\d\d:\d\d(:\d\d)?")


def seconds(text: str) -> float:
    """The length of a span; a bare number counts seconds."""
    try:
        return durations.seconds(text)
    except NoDuration as error:
        raise UsageError(f"{text!r} is not {error}", hint="write, for example, 30s") from error


def seconds_ago(text: str, now: float, option: str = "--since") -> float:
    """The moment meant by `text`, in epoch seconds: a span before `now`, a time of this day, or an ISO 8601 time.

    Without a zone it is local time.
    """
    try:
        return now - durations.seconds(text)
    except NoDuration as error:
        expected = str(error)
    try:
        return _moment(text, now).timestamp()
    except (ValueError, OverflowError):
        summary = f"{text!r} is not {expected}, nor a time such as 10:30 or 2026-05-01T12:00"
        raise UsageError(summary, hint=f"write, for example, {option} 10m") from None


def _moment(text: str, now: float) -> datetime:
    if _OF_DAY.fullmatch(text):
        return datetime.combine(datetime.fromtimestamp(now).date(), time.fromisoformat(text))
    return datetime.fromisoformat(text.replace("Z", "+00:00"))

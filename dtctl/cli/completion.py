"""Words that the shell completes: those of the cluster that the command would mean. No host is asked."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from dtctl.render.terminal.safe import one_line

if TYPE_CHECKING:
    from dtctl.cli.options import Scope
    from dtctl.operations.history.record import RunRecord

T = TypeVar("T")


def complete_tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    record = _record(ctx.params)
    if record is None:
        return []
    tasks = [str(task) for task in record.roster]
    jobs = list(dict.fromkeys(task.job for task in record.roster))
    return _offered((*tasks, *jobs, *(f"@{host}" for host in record.hosts)), incomplete)


def complete_places(ctx: typer.Context, incomplete: str) -> list[str]:
    """Before `--`; what stands behind it is a command of the hosts."""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return [] if "--" in typed.split() else complete_tasks(ctx, incomplete)


def complete_clusters(incomplete: str) -> list[str]:
    scope = _scope({})
    runs = _quietly(lambda: scope.memory.runs()) or ()
    return _offered(dict.fromkeys(one.cluster for one in runs), incomplete)


def complete_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Of this directory's cluster, or else of all."""
    record, scope = _record({**ctx.params, "run": None}), _scope(ctx.params)
    runs = _quietly(lambda: scope.memory.runs()) or ()
    own = [one for one in runs if record is not None and one.cluster == record.cluster]
    return _offered((one.run for one in own or runs if one.run), incomplete)


def _offered(words: Iterable[str], incomplete: str) -> list[str]:
    """The shell writes them into the command line as they are."""
    return [word for word in words if word.startswith(incomplete) and one_line(word) == word]


def _record(options: Mapping[str, Any]) -> RunRecord | None:
    """The run that the command line so far is about, as far as this machine knows it."""
    scope = _scope(options)

    def find() -> RunRecord | None:
        if scope.run is not None:
            return scope.memory.load(scope.run)  # to find another one hosts would have to be asked
        return scope.record(for_its_hosts=True)

    return _quietly(find)


def _scope(options: Mapping[str, Any]) -> Scope:
    from dtctl.cli.options import DEFAULTS, Scope

    said = {name: options[name] for name in DEFAULTS if name != "command" and options.get(name) is not None}
    if "config" in said:
        said["config"] = Path(said["config"])  # still text here with Typer 0.21
    return Scope("status", **said)  # nothing is changed by words that are offered


def _quietly(find: Callable[[], T]) -> T | None:
    """None where there is an error, or something to note: completion shows nothing but words."""
    from dtctl.errors import DtctlError

    try:
        with redirect_stderr(io.StringIO()):
            return find()
    except DtctlError:
        return None

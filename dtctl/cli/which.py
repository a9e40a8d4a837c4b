"""Chooses the cluster of a command if several are possible, and makes the error if none is named."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.cli.late import operations, render
from dtctl.cli.table import COMMANDS
from dtctl.errors import ConfigError, DtctlError, UsageError, did_you_mean

if TYPE_CHECKING:
    from dtctl.operations.run_record import RunRecord

_SHOWN = 8


def same_file(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def one_file(argument: Path | None, option: Path | None, name: str | None) -> Path | None:
    """The file that the command line names, if it names one. Raises UsageError where it names two clusters."""
    if argument and option and not same_file(argument, option):
        raise UsageError(f"{argument} and -c {option} are two cluster files", hint="leave one of them out")
    if name and (file := argument or option):
        raise UsageError(f"{file} and --cluster {name} both select a cluster", hint="leave one of them out")
    return argument or option


def of_name(records: Sequence[RunRecord], name: str, here: Path | None) -> RunRecord:
    """The newest run of the cluster of this name. Raises UsageError where it was started from several directories,
    unless the file `here` is one of theirs."""
    wanted = [record for record in _newest(records) if record.cluster == name]
    if here:
        wanted = [one for one in wanted if one.file and same_file(one.file, here)] or wanted
    if not wanted:
        known = list(dict.fromkeys(record.cluster for record in records))
        hint = did_you_mean(name, known) or (f"remembered: {', '.join(known)}" if known else "dtctl up    starts one")
        raise UsageError(f"no run of a cluster {name!r} was started from this machine", hint=hint)
    there = [one for one in wanted if not one.outcome or (one.file and one.file.exists())] or wanted
    if len(there) > 1:
        raise UsageError(
            f"{len(there)} directories have a cluster {name!r}", detail=_lines(there), hint=_commands(there)
        )
    return there[0]


def not_named(command: str, records: Sequence[RunRecord]) -> UsageError:
    """The error of a command that changes something without a cluster, if there are `records`."""
    newest = sorted(_newest(records), key=lambda record: bool(record.outcome))
    return UsageError(
        f"which cluster? {command} changes something, and there is no cluster.yaml here",
        detail="started from this machine:\n" + _lines(newest),
        hint=_commands(newest),
    )


def first_problem(error: DtctlError) -> str:
    """The first problem, on one line."""
    if isinstance(error, ConfigError):
        return f"{error.problems[0].place}: {error.problems[0].summary}"
    return error.summary


def of_other_directory(run: str, other: Path, own: Path | None) -> UsageError:
    return operations.history.of_other_directory(run, other, own, hint=_typed("-c", str(other)))


def _newest(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The newest run of each cluster file and name; `records` are newest first."""
    found: dict[tuple[str, str], RunRecord] = {}
    for record in records:
        found.setdefault((record.cluster, os.path.realpath(record.file) if record.file else ""), record)
    return list(found.values())


def _lines(records: Sequence[RunRecord]) -> str:
    shown = records[:_SHOWN]
    widths = [max(len(one.cluster) for one in shown), max(len(one.run or "") for one in shown)]
    lines = [
        f"{one.cluster:<{widths[0]}}  {one.run:<{widths[1]}}  since {render.format.local_time(one.created)}  "
        f"{_known(one)}in {one.file.parent if one.file else 'no directory'}"
        for one in shown
    ]
    rest = len(records) - len(shown)
    return "\n".join([*lines, *([f"and {rest} more"] if rest else [])])


def _known(record: RunRecord) -> str:
    if not record.begun:
        return "its start was not finished  "
    return f"{record.outcome}  " if record.outcome else ""


def _commands(records: Sequence[RunRecord]) -> str:
    """A command for each record that refers to it unambiguously."""
    names = [record.cluster for record in records]
    lines = []
    for record in records[:_SHOWN]:
        if names.count(record.cluster) == 1:
            lines.append(_typed("--cluster", record.cluster))
        elif record.file and record.file.is_file():
            lines.append(_typed("-c", str(record.file)))
        else:
            lines.append(_typed("--run", record.run or ""))
    return "\n".join(lines)


def _typed(*option: str) -> str:
    """The command line as it was typed, with the option behind the command's name in place of its like."""
    words = list(sys.argv[1:])
    place = next((index for index, word in enumerate(words) if word in COMMANDS), len(words) - 1) + 1
    for like in ("-c", "--config", "--cluster"):
        if like in words[place:]:
            at = words.index(like, place)
            del words[at : at + 2]
    return shlex.join(["dtctl", *words[:place], *option, *words[place:]])

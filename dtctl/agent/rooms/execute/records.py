"""A command on a host, and how it ended."""

from ...records.kinds import Default, InvalidValue, List, OneOf, Optional, Record, also
from ...records.requests import Request
from ...records.values import ExitCode, SignalNumber, TaskName, refuse_unfit


class ExecRequest(Request):
    """Runs one command."""

    argv: List[str]
    task: Default[Optional[TaskName], None]
    """The task whose environment is used, and whose secrets' values are masked."""
    cwd: Default[OneOf["code", "home"], "home"]


@also(ExecRequest)
def _is_a_command(request: ExecRequest) -> None:
    if not request["argv"]:
        raise InvalidValue.at(("argv",), "a command", request["argv"])
    refuse_unfit(("argv",), request["argv"])


class ExecResult(Record):
    """How the command ended."""

    exit_code: Optional[ExitCode]
    signal: Optional[SignalNumber]

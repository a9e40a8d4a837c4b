"""Hosts that a run is started without, because they cannot be had and none of its tasks needs those there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dtctl.config.ranges import fold
from dtctl.errors import AgentError, DtctlError, PreflightError, TransportError, UsageError
from dtctl.plan.roster import Roster, RosterEntry
from dtctl.strategies import Strategy, may_be_absent
from dtctl.transport.fanout import SomeHostsFailed, failures

_OF_THE_HOST = frozenset(
    {
        "bundle_damaged",
        "damaged",
        "disk_full",
        "not_a_directory",
        "permission_denied",
        "port_taken",
        "python_too_old",
        "setup_failed",
        "would_be_killed",
    }
)
"""What an agent says of a host that cannot have its tasks. Other answers are about the run, or about dtctl."""


def check_may_go_without(roster: Roster) -> None:
    """Raises UsageError where no host can be done without."""
    if any(is_dispensable(roster, host) for host in roster.hosts):
        return
    why = {
        Strategy.ASYNC_PS: f"each host has a task that the others need: a ps, or the lead {roster.lead}",
        Strategy.SINGLE: f"{roster.lead} trains alone",
    }.get(roster.strategy, f"with {roster.strategy.value} every task waits for the others")
    raise UsageError(
        f"--allow-missing cannot help here: {why}",
        hint="strategy: async-ps can do without workers, where recovery.mode is auto or task; dtctl explain strategy",
    )


def is_dispensable(roster: Roster, host: str) -> bool:
    """Whether the run can do without all of the host's tasks."""
    return all(_may_be_absent(roster, task) for task in tasks_on(roster, host))


def tasks_on(roster: Roster, host: str) -> Sequence[RosterEntry]:
    return [task for task in roster.tasks if task.host == host]


def left_out(
    roster: Roster,
    allowed: int | None,
    doing: str,
    errors: Mapping[str, DtctlError],
    already: Mapping[str, DtctlError],
) -> Mapping[str, DtctlError]:
    """The hosts that the start goes on without, and why: those in `errors`. `already`: those before them.

    `allowed`: how many in all; None where nobody is asked. Raises for a host that is needed, or whose answer is about
    the run, and for more than are allowed.
    """
    if not errors:
        return {}
    errors, tried = failures(errors), errors
    every = {**already, **errors}
    needed = {host: error for host, error in errors.items() if not _can_be_left_out(roster, host, error)}
    if needed or allowed is None or len(every) > allowed:
        hint = "" if allowed is None else _hint(roster, allowed, every, needed)
        raise explained(_failed(doing, {**already, **tried}, len(roster.hosts)), hint)
    return errors


def _can_be_left_out(roster: Roster, host: str, error: DtctlError) -> bool:
    its_own = isinstance(error, TransportError | PreflightError) or (
        isinstance(error, AgentError) and error.code in _OF_THE_HOST
    )
    return its_own and is_dispensable(roster, host)


def _failed(doing: str, errors: Mapping[str, DtctlError], total: int) -> DtctlError:
    return next(iter(errors.values())) if total == 1 else SomeHostsFailed(doing, errors, total)


def _hint(roster: Roster, allowed: int, every: Mapping[str, DtctlError], needed: Mapping[str, DtctlError]) -> str:
    vital = [host for host in needed if not is_dispensable(roster, host)]
    if vital and allowed:
        there = [str(task.id) for host in vital for task in tasks_on(roster, host) if not _may_be_absent(roster, task)]
        more = " and more" if len(there) > 3 else ""
        return f"no run without {fold(vital)}: {', '.join(there[:3])}{more} must be there"
    if needed:
        return ""
    count = len(every)
    if allowed:
        return f"{count} hosts are missing, {allowed} may be: dtctl up --allow-missing {count}    goes on without them"
    them = "it" if count == 1 else "them"
    return f"dtctl up --allow-missing {count}    goes on without {them}, and takes {them} in later"


def explained(error: DtctlError, hint: str) -> DtctlError:
    """With one more thing to type."""
    error.hint = "\n".join(filter(None, [error.hint, hint]))
    return error


def _may_be_absent(roster: Roster, task: RosterEntry) -> bool:
    return may_be_absent(task.role, task.scope, roster.strategy)

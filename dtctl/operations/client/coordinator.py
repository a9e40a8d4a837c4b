"""One connection for a whole run: to the host of its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from dtctl.agent.records.answers import RestartResult, StatusResult, StopResult
from dtctl.errors import AgentError, DtctlError, TransportError, advice
from dtctl.transport.seam import Session, Transport

if TYPE_CHECKING:
    from dtctl.operations.client.conversation import Request
    from dtctl.operations.history.record import RunRecord
    from dtctl.operations.status import RunStatus

Answer = StatusResult | StopResult | RestartResult
R = TypeVar("R", StatusResult, StopResult, RestartResult)

_NOT_THERE = {
    "no_run": "has no run",
    "not_coordinator": "does not coordinate the run",
    "internal": "cannot revive its agent",
    "not_answering": "has no coordinator that answers",
    "damaged": "has damaged files of the run",
    "other_version": "has the run of another version of dtctl",
}


class CoordinatorAway(DtctlError):
    """The coordinator cannot be asked; every host may still be asked for itself."""

    def __init__(
        self,
        host: str,
        cause: DtctlError,
        own: Mapping[str, Answer] | None = None,
        found: RunStatus | None = None,
    ) -> None:
        code = cause.code if isinstance(cause, AgentError) else ""
        super().__init__(
            f"the coordinator's host {host} {_NOT_THERE.get(code, 'cannot be reached')}",
            detail=cause.summary,
            hint=advice(cause),
        )
        self.exit_code = cause.exit_code
        self.host = host
        self.cause = cause
        self.found = found
        """The run as its hosts tell it, each for itself; None before they were asked."""
        self.own: Mapping[str, Any] = own or {}
        """What hosts have answered, each for its own part of the run: that is done, or told."""

    @property
    def unreachable(self) -> Mapping[str, DtctlError]:
        """The host, if there is no use in trying it again."""
        return {self.host: self.cause} if isinstance(self.cause, TransportError) else {}

    @property
    def elsewhere(self) -> bool:
        """The host was asked, and knows nothing of coordinating a run."""
        return isinstance(self.cause, AgentError) and self.cause.code in ("no_run", "not_coordinator")


First = Callable[["RunRecord", Session], "RunRecord"]
"""Asks something else in the same conversation before; the record that it gives back is what is asked about."""


def ask_coordinator(record: RunRecord, transport: Transport, wanted: Request[R], first: First | None = None) -> R:
    """The answer about the whole run. Raises CoordinatorAway, and what the coordinator's host refuses."""
    host = record.coordinator
    try:
        session = transport.open(record.way_to(host))
        try:
            answer = wanted.put(first(record, session) if first else record, session)
        finally:
            session.close()
    except DtctlError as error:
        raise coordinator_away(host, error) from error
    if answer["coordination"] is None:
        raise CoordinatorAway(host, why_alone(record.cluster, host, answer), {host: answer})
    return answer


def why_alone(cluster: str, host: str, answer: Answer) -> AgentError:
    """Why a host has answered for its own part of the run alone."""
    why = answer["away"]
    if why is not None:
        return AgentError(why["code"], why["summary"], detail=why["detail"], hint=why["hint"], host=host)
    if answer["run"] is None:
        return AgentError("no_run", f"there is no run of {cluster} on {host}", host=host)
    return AgentError("not_coordinator", f"{host} does not coordinate run {answer['run']}", host=host)


def coordinator_away(host: str, error: DtctlError) -> CoordinatorAway:
    """What an error of the coordinator's host means: that it is away. Raises the error where it is something else."""
    if isinstance(error, CoordinatorAway):
        return error
    if isinstance(error, TransportError) or (isinstance(error, AgentError) and error.code in _NOT_THERE):
        return CoordinatorAway(host, error)
    raise error

"""What hosts are asked about themselves while a run starts, in the conversations of the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dtctl import rooms
from dtctl.agent.records.answers import Facts
from dtctl.errors import UsageError
from dtctl.operations.client import Report
from dtctl.operations.findings import Checked
from dtctl.operations.run_record import RunRecord
from dtctl.plan import RunPlan
from dtctl.plan.spec import EnvironmentContent
from dtctl.transport.seam import NamingTransport, Session


class Inspection(Protocol):
    """The rounds of questions of one start; the facts of a round lead to the questions of the next."""

    saw_checkpoint: bool
    """Whether a host has seen a checkpoint at a storage URL that the run writes to."""

    def question(self, host: str) -> Mapping[str, Any] | None:
        """What the host is asked in this round; None: nothing."""

    def opened(self, host: str, opening: Callable[[], Session]) -> Session:
        """The conversation with a host, which is opened now."""

    def met(self, session: Session) -> None:
        """The host has sent its greeting."""

    def check(self, host: str, answer: Facts) -> None:
        """Raises InvalidValue for facts that the host was not asked for."""

    def add(self, answers: Mapping[str, Facts]) -> None:
        """The answers of this round."""

    def judged(self) -> Checked | None:
        """What was found; None if no host was asked, or none answered."""


class Prepare(Protocol):
    """Begins the inspection for a plan. `content`, `bundle` and `secrets`: see CheckContext of rooms/check."""

    def __call__(
        self, plan: RunPlan, *, content: EnvironmentContent, bundle: str, secrets: Mapping[str, str]
    ) -> Inspection: ...


class RefuseExposed(Protocol):
    """Raises PreflightError where a task's port is open to this machine, or may be to the internet."""

    def __call__(
        self,
        plan: RunPlan,
        content: EnvironmentContent,
        record: RunRecord,
        transport: NamingTransport,
        report: Report,
    ) -> None: ...


class _Nothing:
    """Asks nothing."""

    saw_checkpoint = False

    def question(self, host: str) -> Mapping[str, Any] | None:
        return None

    def opened(self, host: str, opening: Callable[[], Session]) -> Session:
        return opening()

    def met(self, session: Session) -> None:
        pass

    def check(self, host: str, answer: Facts) -> None:
        pass

    def add(self, answers: Mapping[str, Facts]) -> None:
        pass

    def judged(self) -> Checked | None:
        return None


NOTHING: Inspection = _Nothing()


def inspection(plan: RunPlan, *, content: EnvironmentContent, bundle: str, secrets: Mapping[str, str]) -> Inspection:
    """The inspection by the room that checks hosts; without one nothing is asked."""
    prepare: Prepare | None = next(rooms.each("inspection"), None)
    return prepare(plan, content=content, bundle=bundle, secrets=secrets) if prepare is not None else NOTHING


def require_private(
    plan: RunPlan, content: EnvironmentContent, record: RunRecord, transport: NamingTransport, report: Report
) -> None:
    """Refuses a start whose ports others reach. Without such a room the start is refused."""
    refuse: RefuseExposed | None = next(rooms.each("privacy"), None)
    if refuse is None:
        raise UsageError("--require-private needs `dtctl check`, which this dtctl does not have")
    refuse(plan, content, record, transport, report)

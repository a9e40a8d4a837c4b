"""Hosts that are away are not waited for: the run's coordinator, to which they should be connected, knows them."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING

from dtctl.errors import DtctlError, TransportError
from dtctl.operations.coordinator import ask_about, ask_coordinator, request_of_status, status_by_coordinator
from dtctl.operations.run_record import AWAY_CONNECT_S
from dtctl.operations.snapshot import CoordinatorUnreachable
from dtctl.transport.fanout import on_behalf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dtctl.model import Host
    from dtctl.operations.run_record import RunRecord
    from dtctl.transport.seam import Session, Transport


class ImpatientTransport:
    """A transport for the hosts of one run that gives up those that are away, as the run's coordinator reports.

    The coordinator is asked, once for all hosts, when a connection takes longer than AWAY_CONNECT_S: an unreachable
    host fails then, and any other is waited for as long as its settings say.
    """

    def __init__(self, transport: Transport, record: RunRecord, awaits: Collection[str] = ()) -> None:
        """`awaits`: hosts that are waited for all the same."""
        self._transport = transport
        self._record = record
        self._awaits = awaits
        self._lock = threading.Lock()
        self._lost: Collection[str] | None = None

    def open(self, host: Host) -> Session:
        """Opens a session. Raises TransportError."""
        if host.is_local or host.name in self._awaits:
            return self._transport.open(host)
        opening: Future[Session] = Future()
        connect = on_behalf(partial(self._transport.open, host))
        threading.Thread(target=_settle, args=(opening, connect), daemon=True, name=f"open-{host.name}").start()
        if not wait([opening], AWAY_CONNECT_S).done and host.name in self._lost_hosts(host.name) and not opening.done():
            opening.add_done_callback(_close)
            raise TransportError(
                f"{host.name} is unreachable: it could not be connected to within {AWAY_CONNECT_S:g} s",
                detail="the run's coordinator has lost it, too",
                hint="dtctl status    shows whether it is back",
            )
        return opening.result()

    def _lost_hosts(self, late: str) -> Collection[str]:
        with self._lock:
            if self._lost is None:
                self._lost = lost_hosts(self._record, self._transport, late)
            return self._lost


def lost_hosts(record: RunRecord, transport: Transport, late: str) -> Collection[str]:
    """The hosts that the coordinator of the run reports as away; none if there is no run, or no coordinator answers.

    Where its host is away itself, another may have been elected, which the others name. `late`: a host that is being
    connected to, and not asked.
    """

    try:
        try:
            if late == record.coordinator:
                raise CoordinatorUnreachable(late, TransportError(f"{late} could not be connected to yet"))
            answer = ask_coordinator(record, transport, request_of_status(record))
        except CoordinatorUnreachable as away:
            if not isinstance(away.cause, TransportError):
                return ()
            answer = ask_about(record, transport, lambda asked, _: request_of_status(asked), away=away, reads=True)[1]
    except DtctlError:
        return ()
    assert answer["inventory"] is not None
    coordination = status_by_coordinator(record.as_known(answer["inventory"]), answer).coordination
    return coordination.lost_hosts if coordination is not None else ()


def _settle(opening: Future[Session], connect: Callable[[], Session]) -> None:
    try:
        opening.set_result(connect())
    except BaseException as error:  # raised in the thread that waits for it
        opening.set_exception(error)


def _close(opening: Future[Session]) -> None:
    if opening.exception() is None:
        opening.result().close()

"""Hosts that a live run was started without take their part in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dtctl.agent.records import answers
from dtctl.agent.records.spec import Spec, inventory_of
from dtctl.bundle import Sender
from dtctl.errors import PreflightError
from dtctl.model import Host
from dtctl.operations.client.conversation import Progress, Report, about, telling
from dtctl.operations.client.plausible import check_inventory
from dtctl.operations.up import readying
from dtctl.operations.up.conflicts import refuse_taken_ports
from dtctl.operations.up.launch import Start, up_request
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import Session, Transport

Answers = Mapping[str, answers.Prepared]


def offered(prepared: Answers, coordinator: str) -> answers.Joining | None:
    """What the coordinator's host keeps for those that its live run was started without. Nobody else is believed."""
    told = prepared.get(coordinator)
    return told["joining"] if told is not None and told["unchanged"] else None


def gone_without(prepared: Answers, coordinator: str) -> Collection[str]:
    """Hosts that the live run was started without: nobody needs them to be back now."""
    told = offered(prepared, coordinator)
    return told["inventory"]["absent"] if told is not None else ()


def newcomers(prepared: Answers, joining: answers.Joining | None) -> tuple[str, ...]:
    """Hosts that are there now, and that the run was started without."""
    if joining is None:
        return ()
    run, kept = joining["inventory"]["run"], joining["credentials"]
    return tuple(host for host, told in prepared.items() if host in kept and run not in (told["run"], told["current"]))


class Joining:
    """The conversations of an `up` that adds hosts to a live run: what becomes of one concerns no other."""

    def __init__(self, launch: Start, told: answers.Joining, transport: Transport, report: Report) -> None:
        inventory = told["inventory"]
        run, created, replaced = inventory["run"], inventory["created"], inventory["replaced"]
        record = dataclasses.replace(launch.record, run=run, created=created, replaced=replaced)
        self._launch = dataclasses.replace(launch, record=record, authority=None, scene=None)
        self._run = run
        self._told = told
        self._transport = transport
        self._report = report
        self._sender = Sender(launch.bundle)

    def join(self, hosts: Sequence[Host]) -> Outcomes[answers.Started]:
        """Each prepares, starts and keeps its part; one that fails takes it back, and leaves the run as it was."""
        try:
            return fan_out(hosts, telling(self._join, self._report))
        finally:
            self._sender.close()

    def _join(self, host: Host) -> answers.Started:
        self._report(Progress(host.name, "connect"))
        session = self._transport.open(host)
        try:
            return self._converse(session, host)
        finally:
            session.close()

    def _converse(self, session: Session, host: Host) -> answers.Started:
        asked = up_request(self._launch, host, self._told["inventory"]["absent"])
        self._check_same(host, asked["spec"])
        asked = {**asked, "credentials": self._told["credentials"][host.name]}
        record = self._launch.record
        answer = readying.prepared(session, asked, self._sender, self._report, record)
        refuse_taken_ports({host.name: answer}, self._launch.plan.cluster)
        session.send({"type": "start"})
        tasks = readying.started(session, self._report, record, self._run)
        readying.kept(session, self._report, record, self._run)
        self._report(Progress(host.name, "started"))
        return tasks

    def _check_same(self, host: Host, spec: Spec) -> None:
        """Raises PreflightError where what this file says now is not what the run's hosts know."""
        told = self._told["inventory"]
        with about(self._launch.record.coordinator, "tells of another run than it has"):
            check_inventory(told, spec["cluster"], self._run)
        if inventory_of(spec) != told:
            raise PreflightError(
                f"{host.name} cannot join run {self._run}: its tasks have other addresses there than in this file",
                detail="names of hosts in ~/.ssh/config count as well, where hosts.NAME.address says nothing",
                hint="type it where the run was started, or start anew: dtctl up --replace",
            )

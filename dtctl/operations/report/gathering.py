"""Asks the hosts for all that a report tells: by one conversation with each, and the coordinator's host first."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import dtctl
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.client.kept import NotAsked, for_one_look
from dtctl.operations.events import Story, read_events
from dtctl.operations.history.record import RunRecord
from dtctl.operations.metrics import Metrics, Point, Series, read_metrics
from dtctl.operations.report.configuration import read_configuration
from dtctl.operations.report.goodput import goodput_of
from dtctl.operations.report.timeline import timeline
from dtctl.operations.report.tree import HostFacts, Report
from dtctl.operations.report.unlogged import points_of
from dtctl.operations.status import RunStatus, status
from dtctl.transport.seam import Session, Transport, answering

POINTS = 400
"""Of each series: more than a curve on a page can show."""

LINES = 20_000
"""Of the story, the newest."""

RATE_TAGS = ("global_step/sec", "steps_per_second", "steps_per_sec", "steps/s")


def gather(record: RunRecord, transport: Transport, environ: Mapping[str, str]) -> Report:
    """Raises DtctlError where no host says anything of the run."""
    noting = Noting(transport)
    story, scalars = Story(()), Metrics(None, (), {})
    with for_one_look(noting) as kept:
        found = status(record, kept)
        if found.time:
            try:
                story = read_events(found.record, kept, last=LINES)
            except DtctlError as error:
                story = Story((), {found.record.coordinator: error})
            scalars = read_metrics(found.record, kept, [], points=POINTS)
    return put_together(found, story, scalars, noting.facts, environ)


def put_together(
    found: RunStatus, story: Story, scalars: Metrics, facts: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]
) -> Report:
    happenings = story.happenings
    errors = _first_of_each_host(found.errors, story.errors, scalars.errors)
    return Report(
        made=time.time(),
        dtctl=dtctl.__version__,
        python=f"{platform.python_version()}, {platform.system()} {platform.release()}",
        status=found,
        goodput=goodput_of(found, points_of(scalars.series)),
        timeline=timeline(happenings, found.tasks.values(), found.time, cut=len(happenings) >= LINES),
        story=tuple(one for one in happenings if one.kind != "task"),
        scalars=scalars,
        rates=() if any(one.tag in RATE_TAGS for one in scalars.series) else tuple(rates(scalars.series)),
        hosts=tuple(_host(name, found.record, facts.get(name, {})) for name in _hosts(found.record)),
        configuration=read_configuration(found.record.file, environ),
        errors=errors,
        unasked=_unasked(errors, {"events": story.errors, "metrics": scalars.errors}),
    )


def _first_of_each_host(*told: Mapping[str, DtctlError]) -> dict[str, DtctlError]:
    """What has gone wrong there, rather than that it was not asked again."""
    errors: dict[str, DtctlError] = {}
    for failed in told:
        for host, error in failed.items():
            if host not in errors or isinstance(errors[host], NotAsked):
                errors[host] = error
    return errors


def _unasked(
    errors: Mapping[str, DtctlError], parts: Mapping[str, Mapping[str, DtctlError]]
) -> dict[str, tuple[str, ...]]:
    """Of hosts that have failed at something else."""
    failed = [host for host, error in errors.items() if not isinstance(error, NotAsked)]
    left = {
        host: tuple(what for what, told in parts.items() if isinstance(told.get(host), NotAsked)) for host in failed
    }
    return {host: what for host, what in left.items() if what}


def rates(series: Iterable[Series]) -> Iterable[Series]:
    """Of each directory one series: how fast the steps followed one another, by its tag with the most points."""
    fullest: dict[tuple[str, str, str], Series] = {}
    for one in series:
        key = (one.host, one.directory, one.name)
        if len(one.points) > len(fullest[key].points if key in fullest else ()):
            fullest[key] = one
    for one in fullest.values():
        points = [
            Point(after.step, after.time, (after.step - before.step) / (after.time - before.time))
            for before, after in pairwise(one.points)
            if after.step > before.step and after.time > before.time
        ]
        if points:
            values = [point.value for point in points]
            yield dataclasses.replace(
                one, tag="steps/s", points=tuple(points), count=len(points), least=min(values), most=max(values)
            )


def _hosts(record: RunRecord) -> list[str]:
    return list(dict.fromkeys(record.roster.values()))


def _host(name: str, record: RunRecord, facts: Mapping[str, Any]) -> HostFacts:
    known = record.hosts.get(name)
    return HostFacts(
        name=name,
        tasks=record.tasks_on(name),
        system=facts.get("system", ""),
        python=facts.get("python", ""),
        hostname=facts.get("hostname", ""),
        cpus=facts.get("cpus", 0),
        memory_bytes=facts.get("memory_bytes", 0),
        free_bytes=facts.get("free_bytes", 0),
        gpus=known.gpus if known is not None else 0,
    )


class Noting:
    """A transport that keeps what each host says of itself in its greeting."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.facts: dict[str, Mapping[str, Any]] = {}

    def open(self, host: Host) -> Session:
        session = answering(self._transport, host)
        self.facts[host.name] = session.facts
        return session

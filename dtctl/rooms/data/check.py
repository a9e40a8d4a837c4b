"""Whether the hosts have the data that `data push` brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dtctl.agent.rooms.data.records import DataFacts, DataHeld, DataQuestion
from dtctl.model import grouped
from dtctl.operations.findings import Finding
from dtctl.plan import RunPlan, shown_path
from dtctl.plan.hosts import DataPlace
from dtctl.rooms.check import Answers, CheckContext, Line, Topic, found, once
from dtctl.rooms.data.operation import DataSet, data_set, state_of


def _prepare(plan: RunPlan) -> DataSet | None:
    """The data set that dtctl pushes for this file, as far as it is known without reading it."""
    return data_set(plan.cluster, read=False) if plan.cluster.data.source else None


def _of(context: CheckContext) -> DataSet | None:
    known: DataSet | None = context.known.get("data")
    return known


def data_questions(context: CheckContext, answers: Answers[DataFacts]) -> Mapping[str, DataQuestion]:
    data = _of(context)
    if data is None:
        return {}
    return once(answers, {host: {"dirs": [place.directory for place in data.on(host)]} for host in data.hosts})


def data_findings(context: CheckContext, answers: Answers[DataFacts]) -> Iterator[Finding]:
    data = _of(context)
    if data is None or not answers.first:
        return
    states = grouped(
        ((state_of(held, data.wanted(place)), shown_path(place.directory)), (place.host, held))
        for place, held in _held(context, answers)
    )
    for (state, where), those in states.items():
        hosts = [host for host, _ in those]
        if state == "missing":
            yield found("data_not_pushed", hosts, where=where)
        elif state == "differs":
            yield found("data_outdated", hosts, where=where)
        elif state != "complete":
            files = those[0][1]["files"]
            lacking = max(held["missing"] + held["changed"] for _, held in those)
            yield found("data_incomplete", hosts, where=where, lacking=lacking, files=files)
    without = {host for (state, _), those in states.items() if state == "missing" for host, _ in those}
    if data.bundle is None and (others := [host for host in data.hosts if host not in without]):
        yield found("data_source_unread", others)


def data_lines(context: CheckContext, answers: Answers[DataFacts]) -> Iterator[Line]:
    data = _of(context)
    if data is None or context.brief:
        return
    states = grouped((place.host, state_of(held, data.wanted(place))) for place, held in _held(context, answers))
    yield Line("pushed data", {host: ", ".join(dict.fromkeys(each)) for host, each in states.items()})


def _held(context: CheckContext, answers: Answers[DataFacts]) -> Iterator[tuple[DataPlace, DataHeld]]:
    data = _of(context)
    assert data is not None
    for host, facts in answers.first.items():
        held = {one["dir"]: one for one in facts["at"]}
        for place in data.on(host):
            if place.directory in held:
                yield place, held[place.directory]


TOPIC = Topic("data", data_questions, data_findings, data_lines, prepare=_prepare)

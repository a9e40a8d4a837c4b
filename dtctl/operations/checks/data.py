"""Whether the hosts have the data that `data push` brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dtctl.agent.records.checks import DataFacts, DataHeld, DataQuestion
from dtctl.model import grouped
from dtctl.operations.checks import Answers, CheckContext, Line, Topic, found, once, shown
from dtctl.operations.data import state_of
from dtctl.operations.diagnosis import Finding
from dtctl.plan.hosts import DataPlace

MISSING = ("data_not_pushed", "data_incomplete", "data_outdated")


def data_questions(context: CheckContext, answers: Answers[DataFacts]) -> Mapping[str, DataQuestion]:
    data = context.data
    if data is None:
        return {}
    return once(answers, {host: {"dirs": [place.directory for place in data.on(host)]} for host in data.hosts})


def data_findings(context: CheckContext, answers: Answers[DataFacts]) -> Iterator[Finding]:
    data = context.data
    if data is None or not answers.first:
        return
    states = grouped(
        ((state_of(held, data.wanted(place)), shown(place.directory)), (place.host, held))
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
    data = context.data
    if data is None or context.brief:
        return
    states = grouped((place.host, state_of(held, data.wanted(place))) for place, held in _held(context, answers))
    yield Line("pushed data", {host: ", ".join(dict.fromkeys(each)) for host, each in states.items()})


def _held(context: CheckContext, answers: Answers[DataFacts]) -> Iterator[tuple[DataPlace, DataHeld]]:
    assert context.data is not None
    for host, facts in answers.first.items():
        held = {one["dir"]: one for one in facts["at"]}
        for place in context.data.on(host):
            if place.directory in held:
                yield place, held[place.directory]


TOPIC = Topic("data", data_questions, data_findings, data_lines)

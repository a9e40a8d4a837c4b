"""Asks each host of a run what it has measured of its tasks, and judges it."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import field

from dtctl.agent.rooms.speed.records import Sample, SpeedResult
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host, TaskId
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Request, ask_hosts
from dtctl.operations.client.plausible import check_tasks, wrong
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.speed.facts import Facts, Minute, merged
from dtctl.rooms.speed.growth import Growth, growth
from dtctl.rooms.speed.verdict import Verdict
from dtctl.rooms.speed.verdicts import judged
from dtctl.transport.seam import Transport

LEAST_S = 45.0
"""A shorter minute is not judged: a task began or ended in it."""
MINUTES = 5
EVERY_S = 30.0
"""How often a screen that stays asks again: hosts measure every 10 s, and a minute is judged at a time."""


@dataclass(frozen=True)
class Speed:
    """What was measured of a run, and what it means."""

    run: str | None
    """The run; None: no host has one."""
    verdicts: tuple[Verdict, ...]
    """The most expensive one first; empty: nothing stands out, or `judged` is 0."""
    judged: int
    """How many minutes were judged."""
    facts: Facts | None
    """The time that was judged, or else all that was measured; None: nothing was."""
    age_s: float | None
    """How long ago the newest measurement ended."""
    since_s: float | None
    """How long ago the oldest one that is kept began."""
    growth: Growth | None = None
    """What more tasks would bring; None: no minute was judged, or no task trains."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)


def speed(record: RunRecord, transport: Transport, minutes: int = MINUTES) -> Speed:
    """Judges the last minutes in which the run trained."""
    hosts = set(record.roster.values())
    tasks = {host: {str(task) for task, own in record.roster.items() if own == host} for host in hosts}

    def check(host: Host, answer: SpeedResult) -> None:
        for name, sample in _samples(answer):
            check_sample(name, sample, tasks.get(host.name, set()), record.roster)

    outcomes = ask_hosts(
        record,
        ImpatientTransport(transport, record),
        Request(
            "speed",
            SpeedResult,
            lambda host: {"minutes": minutes, "parameters": host.name == record.roster[record.lead]},
            check,
        ),
        hosts,
    )
    answers = outcomes.results
    runs = [answer["run"] for answer in answers.values()]
    whole = {host: answer["whole"] for host, answer in answers.items() if answer["whole"] is not None}
    parameters = next((one["parameters"] for one in answers.values() if one["parameters"] is not None), None)
    lead = answers.get(record.roster[record.lead])
    saves, strategy = (lead["saves"], lead["strategy"]) if lead is not None else ([], None)
    known = Minute({}, parameters, saves, strategy)
    counted = _counted([known._replace(hosts=_minute(answers, number)) for number in range(minutes)])
    facts = merged(counted) or (Facts(known._replace(hosts=whole)) if whole else None)
    ages = [one["time"] - one["minutes"][0]["time"] for one in answers.values() if one["minutes"]]
    begins = [one["time"] - one["since"] for one in answers.values() if one["since"] is not None]
    return Speed(
        runs[0] if runs else None,
        judged(counted),
        len(counted),
        facts,
        max(0.0, min(ages)) if ages else None,
        max(0.0, *begins) if begins else None,
        growth(facts) if counted and facts is not None else None,
        outcomes.errors,
    )


def follow_speed(record: RunRecord, transport: Transport) -> Generator[Speed | None, None, None]:
    """Judges the run again and again; None: there is no news yet, so that a consumer can leave.

    The older the newest measurement is, the more rarely: a run that has ended is hardly asked about.
    """
    next_at = time.monotonic()
    while True:
        if time.monotonic() >= next_at:
            found = speed(record, transport)
            yield found
            next_at = time.monotonic() + max(EVERY_S, found.age_s or 0.0)
        time.sleep(0.2)
        yield None


def _samples(answer: SpeedResult) -> list[tuple[str, Sample]]:
    named = [(f"minutes.{number}", one) for number, one in enumerate(answer["minutes"])]
    return named + ([("whole", answer["whole"])] if answer["whole"] is not None else [])


def check_sample(field: str, sample: Sample, own: set[str], roster: Mapping[TaskId, str]) -> None:
    """Checks that a host reports its own tasks, and others of the run where they are. Raises InvalidValue."""
    check_tasks(f"{field}.tasks", sample["tasks"], own)
    places = {str(task): host for task, host in roster.items()}
    for number, flow in enumerate(sample["flows"]):
        place = f"{field}.flows.{number}"
        check_tasks(f"{place}.task", [flow["task"]], own)
        if flow["peer"] is not None:
            check_tasks(f"{place}.peer", [flow["peer"]], places)
        if flow["host"] is not None and flow["host"] not in places.values():
            raise wrong(f"{place}.host", "a host of the run", flow["host"])


def _minute(answers: Mapping[str, SpeedResult], number: int) -> dict[str, Sample]:
    """Minutes are counted backwards from each host's newest: clocks of hosts may differ."""
    return {host: one["minutes"][number] for host, one in answers.items() if len(one["minutes"]) > number}


def _counted(minutes: list[Minute]) -> list[Minute]:
    """Those in which all tasks of the hosts that answer ran, and those trained that report steps; newest first."""
    known = {task for one in minutes for sample in one.hosts.values() for task in sample["tasks"]}
    stepping = {
        task
        for one in minutes
        for sample in one.hosts.values()
        for task, use in sample["tasks"].items()
        if use["step"] is not None
    }
    return [one for one in minutes if _is_whole(one, known, stepping)]


def _is_whole(minute: Minute, known: set[str], stepping: set[str]) -> bool:
    uses = {task: use for sample in minute.hosts.values() for task, use in sample["tasks"].items()}
    return (
        bool(uses)
        and uses.keys() == known
        and all(use["seconds"] >= LEAST_S for use in uses.values())
        and all(uses[task]["step"] is not None for task in stepping)
    )

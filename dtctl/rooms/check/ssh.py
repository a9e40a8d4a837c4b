"""Finds slow or noisy logins on the hosts, and limits of their SSH servers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.network.records import SshFacts, SshQuestion
from dtctl.model import grouped
from dtctl.operations.findings import Finding
from dtctl.rooms.check import Answers, CheckContext, Line, Statement, Topic, found, once
from dtctl.transport.fanout import WIDTH

Facts = SshFacts

LONG_S = 1.0
"""The time that start-up files may take before it is a finding."""
SLOW_S = 3.0
BEHIND = 3.0
"""A login that takes this many times the median, and SLOW_S, is a finding."""
_MOST_SAID = 80


def ssh_questions(context: CheckContext, answers: Answers[Facts]) -> Mapping[str, SshQuestion]:
    if not context.asks_for("noisy_start_up", "slow_start_up", "start_up_fails", "max_startups"):
        return {}
    others = [host for host in context.hosts if not context.host(host).is_local]
    return once(answers, {host: made(SshQuestion, start_up=True) for host in others})


def ssh_findings(context: CheckContext, answers: Answers[Facts]) -> Iterator[Finding]:
    yield from _start_up(answers)
    yield from _slow_logins(answers)
    yield from _many_logins(answers)


def _start_up(answers: Answers[Facts]) -> Iterator[Finding]:
    """One finding per kind and shell: many hosts have the same start-up files, which print the host's name or the
    time.
    """
    each = answers.first.items()
    slow = grouped((facts["shell"], (host, facts["start_up_s"] or 0.0)) for host, facts in each if _is_slow(facts))
    for shell, took in slow.items():
        yield found("slow_start_up", dict(took), shell=shell, start_up=_span([seconds for _, seconds in took]))
    broken = grouped((facts["shell"], (host, facts["problem"])) for host, facts in each if facts["problem"])
    noisy = grouped(
        (facts["shell"], (host, _first_line(facts["noise"]))) for host, facts in each if facts["noise_bytes"]
    )
    for row, same in (("start_up_fails", broken), ("noisy_start_up", noisy)):
        for shell, said in same.items():
            first, text = said[0]
            on = {"on": first} if len({one for _, one in said}) > 1 else {}
            yield found(row, dict(said), shell=shell, said=text, **on)


def _is_slow(facts: Facts) -> bool:
    return (facts["start_up_s"] or 0.0) > LONG_S


def _span(seconds: list[float]) -> str:
    least, most = f"{min(seconds):.1f}", f"{max(seconds):.1f}"
    return least if least == most else f"{least} to {most}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:_MOST_SAID]


def _slow_logins(answers: Answers[Facts]) -> Iterator[Finding]:
    took = {host: greeted.connect_s for host, greeted in answers.greeted.items() if host in answers.first}
    usual = median(took.values()) if len(took) > 2 else 0.0
    for host, seconds in took.items():
        if usual and seconds > max(SLOW_S, BEHIND * usual):
            yield found("slow_login", (host,), took=f"{seconds:.1f}", usual=f"{usual:.1f}")


def _many_logins(answers: Answers[Facts]) -> Iterator[Finding]:
    """Findings about SSH servers that limit logins, by machine: logins to different machines do not share a limit."""
    machines = grouped(
        ((facts["machine"], facts["max_startups"]), host)
        for host, facts in answers.first.items()
        if facts["machine"] and facts["max_startups"]
    )
    for (_, text), hosts in machines.items():
        logins, limit = min(len(hosts), WIDTH), text.partition(":")[0]
        if limit.isdecimal() and logins > int(limit):
            wanted = f"{2 * WIDTH}:30:{4 * WIDTH}"
            yield found("max_startups", hosts, logins=logins, limit=limit, said=text, wanted=wanted)


def ssh_lines(context: CheckContext, answers: Answers[Facts]) -> Iterator[Line | Statement]:
    if not answers.first:
        return
    yield Line("login shell", {host: facts["shell"] for host, facts in answers.first.items()})
    took = {host: greeted.connect_s for host, greeted in answers.greeted.items() if host in answers.first}
    if took:
        slowest = max(took, key=lambda host: took[host])
        fields = {"least": f"{min(took.values()):.2g}", "most": f"{took[slowest]:.2g}", "slowest": slowest}
        yield Statement("logins", {**fields, "width": WIDTH})
    yield Line("MaxStartups", {host: _limit(facts, facts["max_startups"]) for host, facts in answers.first.items()})
    yield Line("MaxSessions", {host: _limit(facts, facts["max_sessions"]) for host, facts in answers.first.items()})


def _limit(facts: Facts, value: object) -> str:
    """The limit as text; empty if it is unknown."""
    if value is None:
        return "not known" if facts["limits_from"] or facts["start_up_s"] is not None else ""
    return f"{value} (as the manual has it)" if facts["limits_from"] == "default" else str(value)


TOPIC = Topic("ssh", ssh_questions, ssh_findings, ssh_lines)

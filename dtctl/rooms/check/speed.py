"""Finds slow hosts, and how they differ from the others: all multiply matrices at the same time (`--deep`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.check.records import GpuSpeed, SpeedFacts, SpeedQuestion
from dtctl.model import grouped
from dtctl.operations.findings import Finding
from dtctl.operations.pace import taker
from dtctl.rooms.check import Answers, CheckContext, Line, Topic, found, software

SHARE = 0.8
_SPREADS = 3.0


def least_usual(others: Sequence[float]) -> float:
    """The least usual value: 0.8 of the median, or less where the values vary that much anyway.

    They do on machines that are busy with something else; what counts is how many times they differ, in the middle.
    """
    usual = median(others)
    if usual <= 0.0:
        return 0.0
    spread = median(abs(math.log(max(figure, 1e-9 * usual) / usual)) for figure in others)
    return usual * min(SHARE, math.exp(-_SPREADS * spread))


_WARMER = 10
"""A difference in degrees that is worth showing."""


def slow(facts: Mapping[str, SpeedFacts]) -> Iterator[Finding]:
    """Slow GPUs, compared with the median of the other GPUs of the same model."""
    every = [(host, one) for host, answer in facts.items() for one in answer["gpus"]]
    for host, gpu in every:
        others = [one for _, one in every if one is not gpu and one["name"] == gpu["name"]]
        figures = [one["flops"] for one in others]
        if others and gpu["flops"] < least_usual(figures):
            why = {**_less(gpu, others, "clock_mhz"), **_less(gpu, others, "lanes"), **_warmer(gpu, others)}
            speeds: dict[str, Any] = {"own_flops": gpu["flops"], "usual_flops": median(figures)}
            yield found("gpu_computes_slowly", [host], gpu=gpu["gpu"], model=gpu["name"], **speeds, **why)
    problems = grouped((answer["gpu_problem"], host) for host, answer in facts.items() if answer["gpu_problem"])
    for problem, hosts in problems.items():
        yield found("gpus_not_measured", hosts, said=problem)


def _less(gpu: GpuSpeed, others: Sequence[GpuSpeed], name: str) -> dict[str, Any]:
    own, usual = _figure(gpu, name), _usual(others, name)
    return {name: own, f"usual_{name}": usual} if own is not None and usual is not None and own < 0.9 * usual else {}


def _warmer(gpu: GpuSpeed, others: Sequence[GpuSpeed]) -> dict[str, Any]:
    own, usual = gpu["degrees"], _usual(others, "degrees")
    return {"degrees": own, "usual_degrees": usual} if own and usual and own >= usual + _WARMER else {}


def _usual(others: Sequence[GpuSpeed], name: str) -> int | None:
    known = [figure for one in others if (figure := _figure(one, name)) is not None]
    return round(median(known)) if known else None


def _figure(gpu: GpuSpeed, name: str) -> int | None:
    fields: Mapping[str, Any] = gpu
    figure: int | None = fields[name]
    return figure


SECONDS = 4.0
_STOLEN = 0.05
Facts = SpeedFacts


def speed_questions(context: CheckContext, answers: Answers[Facts]) -> Mapping[str, SpeedQuestion]:
    """Asks in a round of its own: the imports and file scans of the first round load the hosts."""
    if not context.asks_for("host_computes_slowly") or len(answers.rounds) != 1:
        return {}
    pythons = {
        host: question["pythons"][0] for host, question in software.software_questions(context, Answers()).items()
    }
    return {
        host: made(SpeedQuestion, python=python, seconds=SECONDS, framework=_framework(python["modules"]))
        for host, python in pythons.items()
    }


def _framework(modules: Sequence[str]) -> str:
    """A framework that the programs use and that can multiply on the GPUs here."""
    return next((name for name in ("tensorflow", "torch") if name in modules), "")


def speed_findings(context: CheckContext, answers: Answers[Facts]) -> Iterator[Finding]:
    facts = answers.round(1)
    problems = grouped((answer["problem"], host) for host, answer in facts.items() if not answer["kind"])
    for problem, hosts in problems.items():
        yield found("speed_not_measured", hosts, said=problem or "it has no Python")
    for kind in ("numpy", "python"):
        same = {host: answer for host, answer in facts.items() if answer["kind"] == kind}
        for host, answer in same.items():
            yield from _slow(host, answer, [one for other, one in same.items() if other != host])
    yield from slow(facts)


def _slow(host: str, answer: Facts, others: list[Facts]) -> Iterator[Finding]:
    """Findings about a slow host, compared with the median of the other hosts, so that a slow host does not lower
    it.
    """
    if not others:
        return
    flops, copied = (median(one["flops"] for one in others), median(one["copied_bytes"] for one in others))
    if answer["flops"] < least_usual([one["flops"] for one in others]):
        yield found(
            "host_computes_slowly", [host], own_flops=answer["flops"], usual_flops=flops, **_why(answer, others)
        )
    elif answer["copied_bytes"] < least_usual([one["copied_bytes"] for one in others]):
        own: dict[str, Any] = {"own_bytes": answer["copied_bytes"], "usual_bytes": copied}
        yield found("host_copies_slowly", [host], **own, **_why(answer, others))


def _why(answer: Facts, others: list[Facts]) -> dict[str, Any]:
    """How the slow host differs from the others."""
    usual_cpus = median(one["machine"]["cpus"] for one in others)
    why: dict[str, Any] = {}
    if answer["machine"]["cpus"] < usual_cpus:
        why.update(cpus=answer["machine"]["cpus"], usual_cpus=usual_cpus)
    for name in ("model", "governor"):
        own, theirs = _text(answer, name), {_text(one, name) for one in others}
        if own and len(theirs) == 1 and theirs not in ({own}, {""}):
            why.update({name: own, f"usual_{name}": theirs.pop()})
    why.update(taker(answer["busy"]))
    if (answer["machine"]["stolen"] or 0.0) >= _STOLEN:
        why["stolen_share"] = answer["machine"]["stolen"]
    return why


def _text(answer: Facts, name: str) -> str:
    fields: Mapping[str, Any] = answer
    return str(fields[name])


def speed_lines(context: CheckContext, answers: Answers[Facts]) -> Iterator[Line]:
    facts = answers.round(1)
    yield Line("processors are", {host: answer["model"] for host, answer in facts.items()})
    yield Line("multiplies at_flops", {host: answer["flops"] or None for host, answer in facts.items()})
    slowest = {host: min((one["flops"] for one in answer["gpus"]), default=None) for host, answer in facts.items()}
    yield Line("its GPUs multiply at_flops", slowest)  # the other hosts wait for it
    yield Line("copies a second_bytes", {host: answer["copied_bytes"] or None for host, answer in facts.items()})


TOPIC = Topic("speed", speed_questions, speed_findings, speed_lines)

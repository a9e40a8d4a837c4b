"""Which GPU is slower than others of its kind, on its own host or elsewhere, and what is different about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from dtctl.agent.records.checks import GpuSpeed, SpeedFacts
from dtctl.operations.checks import of_speed as rows
from dtctl.operations.checks import outliers
from dtctl.operations.checks.topic import found
from dtctl.operations.diagnosis.signature import Finding

_WARMER = 10
"""Degrees that make a difference worth telling."""


def slow(facts: Mapping[str, SpeedFacts]) -> Iterator[Finding]:
    """Against the middle of the others."""
    every = [(host, one) for host, told in facts.items() for one in told["gpus"]]
    for host, gpu in every:
        others = [one for _, one in every if one is not gpu and one["name"] == gpu["name"]]
        figures = [one["flops"] for one in others]
        if others and gpu["flops"] < outliers.least(figures):
            why = {**_less(gpu, others, "clock_mhz"), **_less(gpu, others, "lanes"), **_warmer(gpu, others)}
            speeds: dict[str, Any] = {"own_flops": gpu["flops"], "usual_flops": median(figures)}
            yield found(rows.SLOW_GPU, [host], gpu=gpu["gpu"], model=gpu["name"], **speeds, **why)
    for problem in dict.fromkeys(told["gpu_problem"] for told in facts.values() if told["gpu_problem"]):
        hosts = [host for host, told in facts.items() if told["gpu_problem"] == problem]
        yield found(rows.GPUS_UNMEASURED, hosts, said=problem)


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


def least(gpus: Sequence[GpuSpeed]) -> float | None:
    """Of a host: the others wait for it."""
    return min((one["flops"] for one in gpus), default=None)

"""Who measures whom, and what the figures mean for a step of training. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dtctl.agent.records.network import Measured

MOST_ROUNDS = 8

Pair = tuple[str, str]


def rounds(sources: Sequence[str], targets: Sequence[str], most: int = MOST_ROUNDS) -> tuple[tuple[Pair, ...], ...]:
    """Pairs of hosts that are measured at the same time: none takes part in two of them.

    Every source measures up to `most` targets, in rotation, so that each target is measured as often as the others.
    """
    wanted = [
        (source, targets[(number + step) % len(targets)])
        for step in range(min(most, len(targets)))
        for number, source in enumerate(sources)
    ]
    left = list(dict.fromkeys(pair for pair in wanted if pair[0] != pair[1]))
    told: list[tuple[Pair, ...]] = []
    while left and len(told) < most:
        busy: set[str] = set()
        now = []
        for pair in left:
            if not busy & set(pair):
                now.append(pair)
                busy.update(pair)
        left = [pair for pair in left if pair not in now]
        told.append(tuple(now))
    return tuple(told)


@dataclass(frozen=True)
class Speed:
    """Of all pairs: the middle, and the slowest of them."""

    pairs: int
    latency_s: float
    bytes_s: float
    slowest: Pair
    slowest_bytes_s: float
    farthest: Pair
    farthest_s: float


def summed(measured: Mapping[Pair, Measured]) -> Speed | None:
    """None where nothing was measured. Of both directions the slower one counts."""
    rates = {
        pair: min(one["sent"], one["received"]) for pair, one in measured.items() if one["sent"] and one["received"]
    }
    delays = {pair: one["latency_s"] for pair, one in measured.items() if one["latency_s"] is not None}
    if not rates or not delays:
        return None
    slowest, farthest = min(rates, key=lambda pair: rates[pair]), max(delays, key=lambda pair: delays[pair])
    return Speed(
        len(rates),
        _middle(delays.values()),
        _middle(rates.values()),
        slowest,
        rates[slowest],
        farthest,
        delays[farthest],
    )


def least_step_s(speed: Speed, moved_bytes: float) -> float:
    """A step fetches variables from a ps and sends as many bytes of gradients back, and each waits for an answer."""
    return 2 * (speed.latency_s + moved_bytes / speed.bytes_s)


def _middle(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]

"""Whose clock is wrong. Each is known to lie within bounds: an answer comes between its question and its arrival."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from dtctl.operations.checks.topic import found
from dtctl.operations.diagnosis.signature import Finding

OFF_S = 5.0
WRONG_S = 60.0
HERE = "this machine"


def judge(clocks: Mapping[str, tuple[float, float]]) -> Iterator[Finding]:
    """Hosts against the middle of all, this machine's clock among them; two that differ leave open who is wrong."""
    if all(abs(apart(interval, 0.0)) < OFF_S for interval in clocks.values()):
        return
    every = {**clocks, HERE: (0.0, 0.0)}
    usual = _middle(every.values()) if len(clocks) > 1 else 0.0
    alike: dict[tuple[str, int], list[str]] = {}
    for host, interval in every.items():
        off = apart(interval, usual)
        if abs(off) >= OFF_S:
            alike.setdefault(("ahead of" if off > 0 else "behind", round(abs(off))), []).append(host)
    for (way, off_s), hosts in alike.items():
        others = [host for host in every if host not in hosts and abs(apart(every[host], usual)) < OFF_S]
        row = "clock_wrong" if off_s >= WRONG_S else "clock_off"
        if hosts == [HERE]:
            row = "clock_wrong_here"
        asked = tuple(host for host in others if host != HERE)
        named = {"others": asked, "here": HERE if HERE in others else ""} if asked else {"others": tuple(others)}
        yield found(row, [host for host in hosts if host != HERE], off_s=off_s, way=way, **named)


def _middle(intervals: Collection[tuple[float, float]]) -> float:
    """With which the most agree, and from which all together are least apart; of several the earliest.

    An answer that took long, as a login does that waits for a passphrase, has wide bounds, whose own middle is no news.
    """

    def worth(time: float) -> tuple[int, float]:
        off = [abs(apart(each, time)) for each in intervals]
        return sum(each >= OFF_S for each in off), round(sum(off), 6)

    worths = {end: worth(end) for interval in intervals for end in interval}
    return min(worths, key=lambda end: (worths[end], end))


def apart(interval: tuple[float, float], usual: float) -> float:
    """By how much it is certain that a clock is off; positive: ahead."""
    least, most = interval
    return least - usual if least > usual else min(0.0, most - usual)


def told(interval: tuple[float, float]) -> str:
    """Against this machine's: what is within the bounds counts as right."""
    off = apart(interval, 0.0)
    if abs(off) < 1.0:
        return "right"
    return f"{abs(off):.0f} s {'ahead' if off > 0 else 'behind'}"

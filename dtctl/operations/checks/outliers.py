"""When a figure of one host stands out among those of the others. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

SHARE = 0.8
_SPREADS = 3.0


def least(others: Sequence[float]) -> float:
    """What is below this stands out: 0.8 of their middle, and less where they differ that much among themselves.

    They do on machines that are busy with something else; what counts is how many times they differ, in the middle.
    """
    usual = median(others)
    if usual <= 0.0:
        return 0.0
    spread = median(abs(math.log(max(figure, 1e-9 * usual) / usual)) for figure in others)
    return usual * min(SHARE, math.exp(-_SPREADS * spread))

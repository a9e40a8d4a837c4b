"""Cases of a test of which some run in `make test`, and all in `make nightly`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def at_night(cases: Iterable[Any], *, but: Collection[Any]) -> list[Any]:
    """Parameters for pytest. `but`: those that run by day, too; each has to be among the cases."""
    every = list(cases)
    assert set(but) <= set(every), set(but) - set(every)
    return [case if case in but else pytest.param(case, marks=pytest.mark.nightly) for case in every]

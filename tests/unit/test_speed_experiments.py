"""Experiments with causes made on purpose (tests/speed): what was measured in them has the expected verdict."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.speed import judging
from tests.speed.cases import CASES
from tests.speed.judging import gain, is_near, is_right, verdicts, wider


@cache
def recorded() -> dict[str, dict[str, Any]]:
    return judging.recorded()


@pytest.mark.parametrize("name", [*recorded()])
def test_what_was_measured_in_an_experiment_has_its_verdict(name: str) -> None:
    found = verdicts(recorded()[name], CASES[name])
    assert is_right(found[0] if found else None, CASES[name]), found


@pytest.mark.parametrize("name", [name for name in recorded() if CASES[name].remedy_of in recorded()])
def test_what_a_remedy_brings_is_as_expected(name: str) -> None:
    first, measured = gain(recorded()[CASES[name].remedy_of], recorded()[name], CASES[CASES[name].remedy_of])
    assert first is not None
    assert first.expected is not None
    assert is_near(first.expected, measured), (first.expected, measured)


@pytest.mark.parametrize("name", [name for name in recorded() if CASES[name].wider_than in recorded()])
def test_what_more_workers_bring_is_as_expected(name: str) -> None:
    expected, measured = wider(recorded()[CASES[name].wider_than], recorded()[name], CASES[name])
    assert expected is not None
    assert is_near(expected, measured), (expected, measured)

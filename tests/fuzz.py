"""How many cases property-based tests try: FUZZ=200000 for many, 200 for each test otherwise."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

CASES = int(os.environ.get("FUZZ", "200"))

cases = settings(
    max_examples=CASES,
    deadline=None,  # the machine may be busy; a test says itself how long is too long
    database=None,  # no directory of findings beside the code
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""A decorator for a test, above `given`."""

few = settings(cases, max_examples=max(CASES // 5, 1))
"""Fewer examples, for tests in which each example is many: all kinds of records, or a whole run."""

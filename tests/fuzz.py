"""How many cases the property tests try: 200 each, or as many as FUZZ says."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

cases = settings(
    max_examples=int(os.environ.get("FUZZ", "200")),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

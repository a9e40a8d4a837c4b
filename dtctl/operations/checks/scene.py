"""From a plan to what is to be checked."""

from __future__ import annotations

import secrets

from dtctl.operations.checks.programs import needs_of
from dtctl.operations.checks.topic import Scene
from dtctl.plan.values import RunPlan


def scene_of(plan: RunPlan, *, brief: bool = False, deep: bool = False, network_speed: bool = False) -> Scene:
    """Reads the programs' text."""
    return Scene(plan, needs_of(plan), brief, deep, network_speed, secrets.token_hex(8))

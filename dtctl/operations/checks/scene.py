"""From a plan to what is to be checked."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from dtctl.model import SshSettings
from dtctl.operations.checks.programs import needs_of
from dtctl.operations.checks.topic import Scene
from dtctl.operations.up.local import local_python
from dtctl.plan.roster import RunPlan


def scene_of(
    plan: RunPlan,
    *,
    brief: bool = False,
    deep: bool = False,
    network_speed: bool = False,
    hostname: Callable[[SshSettings], str] | None = None,
    allowed_here: bool = False,
) -> Scene:
    """Reads the programs' text. `hostname`: the name that SSH would connect to, by its own configuration.

    `allowed_here`: the user lets the file start its programs on this machine.
    """
    reaches = {name: plan.cluster.hosts[name].reach for name in plan.hosts} if hostname is not None else {}
    return Scene(
        plan,
        needs_of(plan),
        brief,
        deep,
        network_speed,
        token=secrets.token_hex(8),
        nonce=secrets.token_hex(16),
        reached_at={name: hostname(reach) for name, reach in reaches.items() if isinstance(reach, SshSettings)}
        if hostname is not None
        else {},
        allowed_here=allowed_here,
        own_python=local_python(os.environ),
    )

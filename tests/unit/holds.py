"""Intents that something holds, as the coordinator and the agents make them."""

from __future__ import annotations

from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, because, read
from dtctl.agent.records.run_state import Hold
from dtctl.agent.run import drains


def hold_of(fact: Fact) -> Hold:
    """The hold that people read as this fact."""
    why = read(fact)
    holder = why["host"] if "host" in why else why["task"]
    return made(Hold, kind=why["kind"], holder=holder, by=why.get("by", ""), count=why.get("count"), why=fact)


def held(*why: Fact) -> dict[str, Any]:
    """The fields of an intent that these hold."""
    holds = [hold_of(one) for one in why]
    return {"want": "hold", "holds": holds, **because(drains.why_held(holds))}

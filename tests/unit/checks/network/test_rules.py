"""Addresses that the rules of a firewall need, and this machine does not know."""

from __future__ import annotations

import pytest

from dtctl.errors import PreflightError
from dtctl.operations.checks.network.firewall import rules_of
from dtctl.plan.run import plan_run
from tests.unit.clusters import cluster


def test_all_names_that_cannot_be_looked_up_are_told_at_once_with_who_may_know_them() -> None:
    value = cluster()
    plan = plan_run(value, {name: name for name in value.hosts}, local_python="python3")

    def look(name: str) -> tuple[str, ...]:
        if name == "a":
            return ("10.0.0.1",)
        raise OSError(-2, "Name or service not known")

    with pytest.raises(PreflightError) as caught:
        rules_of(plan, "iptables", look)
    assert caught.value.summary == "this machine cannot look up b, c, d, so no rule can name those hosts"
    assert caught.value.hint.startswith("dtctl exec @b -- getent hosts b c d    ")

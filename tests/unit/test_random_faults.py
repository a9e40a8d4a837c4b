"""The random faults of a nightly: every kind of fault has its turn, and a seed repeats its faults."""

from __future__ import annotations

import random
import re

from dtctl.agent.coordinate.election import LEASE_S
from tests.faults.cut_and_command import WAYS_OF_CUTTING, plan
from tests.faults.random_faults import PAUSES_S, episode

TASKS = {"ps:0": "gpu-1", "worker:0": "gpu-3", "worker:1": "gpu-4"}


KINDS = (
    r"kill -9 of (ps|worker):\d",
    r"is frozen",
    r"hangs",
    r"exits with 0",
    r"checkpoint is cut short",
    r"dtctl restart",
    r"kill -9 of the agent",
    r"crashes, and is back",
    r"loses its power",
    r"gpu-\d is cut off for",
    r"receives nothing for",
    r"can send nothing for",
    r"receives nothing from gpu-\d for",
    r"the link of gpu-\d flaps",
    r"the agent of gpu-\d is paused",
    r"^gpu-\d is paused",
    r"the home of gpu-\d is full for \d+ s$",
    r"the home of gpu-\d is full for \d+ s, kill -9 of its agent",
)


def names(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [fault.name for _ in range(count) for fault in episode(rng, TASKS, "worker:0")]


def test_every_kind_of_fault_has_its_turn() -> None:
    found = names(1, 300)
    assert [kind for kind in KINDS if not any(re.search(kind, name) for name in found)] == []
    assert min(PAUSES_S) > LEASE_S


def test_seed_repeats_its_faults() -> None:
    assert names(7, 20) == names(7, 20) != names(8, 20)


def test_every_command_is_typed_after_every_way_of_cutting() -> None:
    rng = random.Random(1)
    found = [plan(rng, sorted(TASKS), "worker:0") for _ in range(100)]
    assert {(one.command, one.how) for one in found} == {
        (command, how) for command in ("replace", "down") for how in WAYS_OF_CUTTING
    }
    assert all((one.how == "flapping") == bool(one.flaps) for one in found)
    assert all(sum(map(sum, one.flaps)) >= one.lasts_s for one in found if one.flaps)

"""Named moments of a command: what `-v` tells as it happens, so that a test can break in there and nowhere else."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from tests.waiting import read_until

STEPS_OF_UP = ("asked for up", "prepared after", "asked for start", "started after", "asked for keep", "result after")
"""In their order; each is told once for each host."""


@dataclass(frozen=True)
class Moment:
    step: str
    hosts: int
    """How many have taken the step by then."""

    def __str__(self) -> str:
        return f"{self.step}, on {self.hosts} hosts"

    def wait_for(self, command: subprocess.Popen[str]) -> None:
        """`command` was given -v, and both its streams go to one pipe."""
        read_until(command.stdout, f": {self.step}", self.hosts)


def of_up(number: int, hosts: int) -> Moment:
    """Every step at some number of hosts, each number a different one for as long as there are any."""
    step, turn = number % len(STEPS_OF_UP), number // len(STEPS_OF_UP)
    return Moment(STEPS_OF_UP[step], 1 + (number + turn) % hosts)

"""Machines lost by a run with spares, each case a value: the training, the loss, and what `events` shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from dtctl.config.ranges import expand
from tests.faults.takeover import Takeover
from tests.faults.tensorflow_run import MIRRORED, PS_ASYNC, PS_SYNC, Program
from tests.hosts import faults
from tests.hosts.fleet import Fleet

Strike = Callable[[Takeover], None]
"""Returns when training has continued after the last loss."""


THREE = {"ps": "gpu-1", "worker": "gpu-[3-5]"}
TWO = {"ps": "gpu-1", "worker": "gpu-[3-4]"}


@dataclass(frozen=True)
class Case:
    name: str
    program: Program
    strike: Strike
    events: tuple[str, ...] = ()
    """Each of these expressions must be found in `events`, in this order."""
    jobs: Mapping[str, str] = field(default_factory=lambda: TWO)
    around: Callable[[Fleet], AbstractContextManager[object]] = nullcontext

    @property
    def hosts(self) -> list[str]:
        """The hosts with tasks."""
        return [host for where in self.jobs.values() for host in expand(where)]

    @property
    def id(self) -> str:
        return f"{self.program.template}: {self.name}"


def destroy(*tasks: str) -> Strike:
    """Destroys the hosts of these tasks, one after the other."""

    def strike(run: Takeover) -> None:
        for task in tasks:
            lost = run.host(task)
            with run.measured(f"the host of {task} is destroyed"):
                faults.destroy(run.fleet, lost)
                run.moves(task, away_from=lost)

    return strike


def cut(seconds: float) -> Strike:
    """Cuts off the host of the lead, which coordinates; the controller is on the side of the majority."""

    def strike(run: Takeover) -> None:
        lost = run.host("worker:0")
        with run.measured(f"the coordinator is cut off for {seconds:.0f} s, the controller is not"):
            run.fleet.cut(lost)
            time.sleep(seconds)
            run.fleet.heal(lost)
            run.moves("worker:0", away_from=lost)
        run.becomes_a_spare(lost)

    return strike


def cut_with_controller(seconds: float, *words: str) -> Strike:
    """The same, but the controller reaches only the isolated host, which cannot obey orders."""

    def strike(run: Takeover) -> None:
        lost = run.host("worker:0")
        with run.measured(f"the coordinator and the controller are cut off for {seconds:.0f} s"):
            until = time.monotonic() + seconds
            with faults.split(run.fleet, lost):
                time.sleep(seconds / 2)
                run.command("status", code=None)
                run.command(*words, code=None)
                time.sleep(max(0.0, until - time.monotonic()))
            run.moves("worker:0", away_from=lost)
        run.becomes_a_spare(lost)

    return strike


def spare_dies(run: Takeover) -> None:
    with run.measured("a worker's host is destroyed, and the spare while it takes over"):
        faults.destroy(run.fleet, run.host("worker:1"))
        spare = run.chosen_for("gpu-4")
        faults.destroy(run.fleet, spare)
        run.moves("worker:1", away_from=spare)


def full_disk(run: Takeover) -> None:
    with run.measured("a worker's host is destroyed, and the spare's disk is full"):
        lost = run.host("worker:1")
        with faults.full_disk(run.fleet[SMALL], ".dtctl"):
            faults.destroy(run.fleet, lost)
            run.moves("worker:1", away_from=lost)


def reboot(run: Takeover) -> None:
    """The lead's host boots after it was replaced, becomes a spare, and takes its place again."""
    lost = run.host("worker:0")
    with run.measured("the lead's host reboots after it was replaced"):
        run.fleet.crash(lost)
        there = run.moves("worker:0", away_from=lost)
        run.fleet.boot(lost)
        run.becomes_a_spare(lost)
    with run.measured("the host in the place of the lead's is destroyed"):
        faults.destroy(run.fleet, there)
        run.moves("worker:0", away_from=there)


BEFORE, AFTER = "before", "while"


def by_hand(when: str, *commands: tuple[str, ...], exchange: bool) -> Strike:
    """Runs these commands before a spare takes the place of gpu-4, or while it does.

    `exchange`: before the last of them, the file names a spare in its place.
    """

    def strike(run: Takeover) -> None:
        lost = run.fleet["gpu-4"]
        faults.destroy(run.fleet, lost)
        if when == BEFORE:
            time.sleep(20.0)
        else:
            run.chosen_for("gpu-4")
        for words in commands[:-1]:
            run.command(*words, code=None)
        if exchange:
            run.write_spare_into_file()
        run.command(*commands[-1], code=None)
        run.moves("worker:1", away_from=lost)

    return strike


SMALL = "gpu-2"
"""The first spare."""


def small_disk(fleet: Fleet) -> AbstractContextManager[None]:
    return faults.small_disk(fleet[SMALL], ".dtctl", 16)


LEAD_IS_LOST = (r"gpu-\d coordinates now, in place of gpu-3", r"gpu-3 has been unreachable for .*: gpu-\d takes")

CASES = [
    *(
        Case("the lead, then a ps", program, destroy("worker:0", "ps:0"), LEAD_IS_LOST)
        for program in (PS_ASYNC, PS_SYNC)
    ),
    Case(
        "the lead, then a worker", MIRRORED, destroy("worker:0", "worker:1"), LEAD_IS_LOST, jobs={"worker": "gpu-[3-4]"}
    ),
    *(
        Case("two workers", program, destroy("worker:1", "worker:2"), (r"gpu-4 .* takes", r"gpu-5 .* takes"), jobs=jobs)
        for program, jobs in ((PS_ASYNC, THREE), (PS_SYNC, THREE), (MIRRORED, {"worker": "gpu-[3-5]"}))
    ),
    Case("a spare that dies", PS_ASYNC, spare_dies, (r"gpu-4 .* takes",)),
    Case("reboot", PS_ASYNC, reboot, (*LEAD_IS_LOST, r"gpu-3 is back; its tasks are on gpu-\d now")),
    Case("cut with the majority here", PS_ASYNC, cut(60), LEAD_IS_LOST),
    Case("cut with the minority here", PS_ASYNC, cut_with_controller(60, "stop", "worker:1"), LEAD_IS_LOST),
    Case("full disk", PS_ASYNC, full_disk, (r"gpu-4 .* takes", r"gpu-\d .* takes"), around=small_disk),
    *(
        Case(
            f"{' and '.join(words[0] for words in commands)} {when} a spare takes over",
            PS_ASYNC,
            by_hand(when, *commands, exchange=exchange),
            jobs=TWO,
        )
        for when in (BEFORE, AFTER)
        for commands, exchange in (
            ([("up",)], False),
            ([("replace", "gpu-4", "gpu-5", "--yes")], False),
            ([("stop",), ("up",)], True),
            ([("down", "--yes"), ("up",)], True),
        )
    ),
]

"""The section `recovery`: what is started again, when, and how often."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dtctl.config import values as v
from dtctl.config.sections.base import Section


class RecoveryEntry(Section):
    """When a lost task is started again, and what with it: [recovery.md](recovery.md)."""

    where: ClassVar[str] = "recovery"

    mode: v.RecoveryMode = Field(
        default="auto",
        description="what a lost task restarts: `auto`: what the way of training needs, `task`: it alone, `gang`: "
        "every task, `never`: nothing, the run has failed",
        examples=["gang"],
    )
    max_restarts: v.Count = Field(
        default=10, description="restarts of one task before the run has failed", examples=["3"]
    )
    max_run_restarts: v.Count = Field(
        default=100,
        description="restarts of all tasks before the run has failed; one of the whole gang counts once",
        examples=["20"],
    )
    backoff: v.Backoff = Field(
        default=(1.0, 60.0),
        description="the delay before a restart: none before the first, then it doubles from the shortest up to "
        "the longest",
        examples=["5s..2m"],
    )
    reset_after: v.Duration = Field(
        default=600.0, description="an attempt that lives this long resets the delay and the count", examples=["30m"]
    )
    repeat: v.Count = Field(
        default=3,
        description="how often in a row a task may end with the same error in its log, and no new step, before the "
        "run has failed: what only repeats itself is not worth `max_restarts`; `0`: as often as `max_restarts` allows",
        examples=["0"],
    )
    allow_scratch: v.Flag = Field(
        default=False,
        description="start over from nothing when a `ps` is lost and there is no complete checkpoint, or when the only "
        "one is damaged; `false`: the run has failed",
        examples=["true"],
    )
    retry: list[v.ExitCode] = Field(
        default=[42, 137, 139, 143],
        description="exit codes after which a task may be started again whatever its log says; the death by a signal "
        "counts as 128 and the signal's number",
        examples=["[42, 75]"],
    )
    permanent: list[v.ExitCode] = Field(
        default=[2],
        description="exit codes after which it is not started again; codes in neither list are tried again, unless the "
        "program cannot be run or its log ends with an import error",
        examples=["[2, 64]"],
    )
    stall: v.StallLimit = Field(
        default=None,
        description="how long a task may show no progress (steps, output, checkpoints) before it is taken for hung and "
        "is killed; `auto` learns it from the run, `off` never does it",
        examples=["15m"],
    )
    first_step: v.StallLimit = Field(
        default=None,
        description="how long a task may be silent before its first step; `auto`: ten times what an "
        "earlier attempt or its peers took, at least 5 min or `stall`, and for ever while nobody has told steps; "
        "`off`: for ever",
        examples=["20m"],
    )
    host_timeout: v.DurationOrNever = Field(
        default=None,
        description="how long a host may be out of touch before its tasks are given up for good; it then stops them by "
        "itself, too",
        examples=["30m"],
    )
    reboot: v.RebootRule = Field(
        default="auto",
        description="`auto`: the agents of a host that has been restarted come back by themselves where the host "
        "allows it (systemd user units or `@reboot` of cron); `never`: with the next command that asks for them",
        examples=["never"],
    )

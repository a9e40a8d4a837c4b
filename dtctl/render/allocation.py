"""The machines that an engine lends to a run, in words."""

from __future__ import annotations

import shlex

from dtctl.agent.host.secrets import hide_words
from dtctl.operations.engines import Allocation, JobRequest, Submitted
from dtctl.render.errors import note, show_warning
from dtctl.render.format import count, duration
from dtctl.render.terminal import console


def line(found: Allocation) -> str:
    """One line, as `pending: Resources, position 3 (job 12)`."""
    if found.phase == "pending":
        place = f", position {found.position}" if found.position is not None else ""
        return f"pending: {found.reason or found.state}{place} (job {found.job})"
    if found.phase == "ended":
        return f"job {found.job} has ended" + ("" if found.state == "UNKNOWN" else f": {found.state}")
    left = "" if found.left_s is None else f", {duration(found.left_s)} left"
    return f"job {found.job} on {found.nodes}{left}"


def show_request(job: JobRequest, typed: str) -> None:
    """Shows the job that `up` would submit; a node has the place of a host of the file, by its number.

    `typed`: the command that submits it.
    """
    out = console.out()
    out.print()
    out.prose(f"{typed}    submits a job of {count(job.machines, 'node')} to {job.engine}, with these options:")
    for word in hide_words(job.words):
        out.print(f"  {shlex.quote(word)}")


def show_submitted(queued: Submitted) -> None:
    machines = count(queued.machines, "node")
    console.say(f"submitted job {queued.job}: run {queued.record.run} waits for {machines}")
    if queued.short_of_s:
        least = duration(queued.short_of_s)
        show_warning(
            "the time limit is so short that Slurm may stop the run as soon as it starts",
            hint=f"slurm: {{time: {least}}}    or more; or a shorter grace",
        )
    if queued.log:
        note(f"its output goes to {queued.log}")

"""The end of a program that made a run fail, as both pages begin with it."""

from __future__ import annotations

from dtctl.dataclass import dataclass
from dtctl.model import TaskId
from dtctl.operations import failures
from dtctl.operations.findings import problems_of
from dtctl.render.failure import circumstances, earlier_lines, excerpt, failure_sentence
from dtctl.render.findings import advice
from dtctl.rooms.pages.report import Report


@dataclass(frozen=True)
class ShownFailure:
    """What the terminal says of it: dtctl/render/failure.py."""

    task: TaskId
    sentence: str
    circumstances: str
    excerpt: list[str]
    earlier: list[str]
    """The lines of the log before the excerpt, as far as they are known."""
    advice: list[tuple[str, str]]
    """Each command to type and what it does; "" and a sentence."""


def failure_of(report: Report) -> ShownFailure | None:
    """None for a run that no end of a program has decided."""
    found = failures.failure_of(report.status)
    if found is None:
        return None
    earlier = earlier_lines(found.end.log)
    return ShownFailure(
        found.task.id,
        failure_sentence(found),
        circumstances(found),
        excerpt(found.end.log)[1 if earlier else 0 :],
        earlier,
        [command_in(line) for line in advice(found, problems_of(report.status))],
    )


def command_in(line: str) -> tuple[str, str]:
    """The command in a line, or "", and its explanation."""
    typed, _, does = line.partition("    ")
    return (typed, does.strip()) if typed.startswith("dtctl ") else ("", line)

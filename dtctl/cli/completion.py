"""Words that the shell completes, from the controller's memory alone: no SSH, no slow import."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.operations.memory import Memory


def complete_tasks(incomplete: str) -> list[str]:
    memory = _memory()
    record = memory.current() if memory else None
    if record is None:
        return []
    tasks = [str(task) for task in record.roster]
    jobs = list(dict.fromkeys(task.job for task in record.roster))
    return [word for word in (*tasks, *jobs, *(f"@{host}" for host in record.hosts)) if word.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[str]:
    memory = _memory()
    runs = memory.runs() if memory else ()
    return [record.run for record in runs if record.run and record.run.startswith(incomplete)]


def _memory() -> Memory | None:
    """None where it is not to be trusted: whoever completes a word is told nothing."""
    from dtctl.errors import DtctlError
    from dtctl.operations.memory import Memory

    try:
        return Memory()
    except DtctlError:
        return None

"""Words that the shell completes, from the controller's memory alone: no SSH, no slow import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dtctl.render.terminal.safe import one_line

if TYPE_CHECKING:
    from dtctl.operations.memory.store import Memory


def complete_tasks(incomplete: str) -> list[str]:
    memory = _memory()
    record = memory.current() if memory else None
    if record is None:
        return []
    tasks = [str(task) for task in record.roster]
    jobs = list(dict.fromkeys(task.job for task in record.roster))
    return _offered((*tasks, *jobs, *(f"@{host}" for host in record.hosts)), incomplete)


def complete_clusters(incomplete: str) -> list[str]:
    memory = _memory()
    return _offered(dict.fromkeys(record.cluster for record in (memory.runs() if memory else ())), incomplete)


def complete_runs(incomplete: str) -> list[str]:
    memory = _memory()
    return _offered((record.run for record in (memory.runs() if memory else ()) if record.run), incomplete)


def _offered(words: Iterable[str], incomplete: str) -> list[str]:
    """The shell writes them into the command line as they are."""
    return [word for word in words if word.startswith(incomplete) and one_line(word) == word]


def _memory() -> Memory | None:
    """None if it is not to be trusted: completion shows no errors."""
    from dtctl.errors import DtctlError
    from dtctl.operations.memory.store import Memory

    try:
        return Memory()
    except DtctlError:
        return None

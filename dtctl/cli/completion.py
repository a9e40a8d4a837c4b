"""Words that the shell completes, from the controller's memory alone: no SSH, no slow import."""

from __future__ import annotations


def complete_tasks(incomplete: str) -> list[str]:
    from dtctl.operations.memory import Memory

    record = Memory().current()
    if record is None:
        return []
    tasks = [str(task) for task in record.roster]
    jobs = list(dict.fromkeys(task.job for task in record.roster))
    return [word for word in (*tasks, *jobs, *(f"@{host}" for host in record.hosts)) if word.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[str]:
    from dtctl.operations.memory import Memory

    return [record.run for record in Memory().runs() if record.run and record.run.startswith(incomplete)]

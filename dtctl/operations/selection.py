"""Resolves the tasks and hosts that a command line names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dtctl.config.ranges import expand
from dtctl.errors import UsageError, did_you_mean
from dtctl.model import TaskId
from dtctl.operations.run_record import RunRecord

GRAMMAR = "write worker:1, worker, worker:0-3, @HOST or @HOST[1-4]"

_MOST_NAMED = 8
_INDEXES = re.compile(r"(\d+)(?:-(\d+))?")


def select_tasks(record: RunRecord, selectors: Sequence[str], exclude: Sequence[str] = ()) -> tuple[TaskId, ...]:
    """The tasks meant by words such as `worker:1`, `worker`, `worker:0-3`, `worker:0,2`, `@host`; all without words.

    `exclude`: words for those that are left out. In the order of the cluster file, each once. Raises UsageError for an
    unknown word, and if `exclude` leaves no task.
    """
    chosen = _tasks(record, selectors) if selectors else {*record.roster}
    left = chosen - _tasks(record, exclude)
    if exclude and not left:
        raise _nothing_left("task", exclude, [str(task) for task in record.roster if task in chosen])
    return tuple(task for task in record.roster if task in left)


def select_hosts(record: RunRecord, selectors: Sequence[str], exclude: Sequence[str] = ()) -> tuple[str, ...]:
    """The hosts meant by `@host`, a host's plain name, or the tasks on them; all that have tasks without words.

    `exclude` and errors: as for `select_tasks`.
    """
    chosen = _hosts(record, selectors) if selectors else {*record.task_hosts}
    left = chosen - _hosts(record, exclude)
    if exclude and not left:
        raise _nothing_left("host", exclude, [name for name in record.hosts if name in chosen])
    return tuple(name for name in record.hosts if name in left)


def _tasks(record: RunRecord, selectors: Sequence[str]) -> set[TaskId]:
    return {task for selector in selectors for task in _mean(record, selector)}


def _hosts(record: RunRecord, selectors: Sequence[str]) -> set[str]:
    chosen: set[str] = set()
    for selector in selectors:
        if selector in record.hosts:
            chosen.add(selector)
        elif selector.startswith("@") and selector != "@":
            chosen |= _named_hosts(record, selector[1:])  # also those that have no task
        elif ":" not in selector and selector != "@" and not any(task.job == selector for task in record.roster):
            raise _unknown("host or job", selector, [*record.hosts, *{task.job: None for task in record.roster}])
        else:
            chosen |= {record.roster[task] for task in _mean(record, selector)}
    return chosen


def _mean(record: RunRecord, selector: str) -> list[TaskId]:
    if selector.startswith("@") and selector != "@":
        hosts = _named_hosts(record, selector[1:])
        return [task for task, host in record.roster.items() if host in hosts]
    job, colon, indexes = selector.partition(":")
    if not job or selector == "@":
        raise _no_task(selector)
    tasks = [task for task in record.roster if task.job == job]
    if not tasks and selector in record.hosts:
        raise UsageError(f"{selector!r} is a host, not a task", hint=f"write @{selector} for the tasks on it")
    if not tasks:
        raise _unknown("job", job, sorted({task.job for task in record.roster}))
    if not colon:
        return tasks
    wanted = [_range(part, selector) for part in indexes.split(",")]
    known = {task.index for task in tasks}
    for each in wanted:  # a range may have any length
        if missing := [index for index in (each.start, each.stop - 1) if index not in known]:
            raise UsageError(f"there is no task {job}:{missing[0]}", hint=f"the last one is {job}:{max(known)}")
    return [task for task in tasks if any(task.index in each for each in wanted)]


def _named_hosts(record: RunRecord, text: str) -> set[str]:
    names = expand(text)
    for name in names:
        if name not in record.hosts:
            raise _unknown("host", name, list(record.hosts))
    return set(names)


def _range(part: str, selector: str) -> range:
    match = _INDEXES.fullmatch(part)
    if not match:
        raise _no_task(selector)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise UsageError(f"{selector!r} names no task: {first} is more than {last}", hint=GRAMMAR)
    return range(first, last + 1)


def _nothing_left(kind: str, exclude: Sequence[str], chosen: Sequence[str]) -> UsageError:
    more = ", ..." if len(chosen) > _MOST_NAMED else ""
    return UsageError(
        f"no {kind} is left without {' and '.join(exclude)}",
        hint=f"exclude fewer of {', '.join(chosen[:_MOST_NAMED])}{more}",
    )


def _no_task(selector: str) -> UsageError:
    return UsageError(f"{selector!r} is not a task", hint=GRAMMAR)


def _unknown(kind: str, name: str, known: list[str]) -> UsageError:
    return UsageError(
        f"there is no {kind} {name!r} in this cluster",
        hint=did_you_mean(name, known) or f"{kind}s: {', '.join(known)}; {GRAMMAR}",
    )

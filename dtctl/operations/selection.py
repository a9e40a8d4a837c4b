"""Which tasks and hosts the words of a command line mean."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dtctl.config.ranges import expand
from dtctl.errors import UsageError, did_you_mean
from dtctl.model import TaskId
from dtctl.operations.history.record import RunRecord

GRAMMAR = "write worker:1, worker, worker:0-3, @HOST or @HOST[1-4]"

_INDEXES = re.compile(r"(\d+)(?:-(\d+))?")


def select_tasks(record: RunRecord, words: Sequence[str]) -> tuple[TaskId, ...]:
    """The tasks meant by words such as `worker:1`, `worker`, `worker:0-3`, `worker:0,2`, `@host`; all for no words.

    In the order of the cluster file, each once. Raises UsageError for a word that means nothing here.
    """
    if not words:
        return tuple(record.roster)
    chosen = {task for word in words for task in _mean(record, word)}
    return tuple(task for task in record.roster if task in chosen)


def select_hosts(record: RunRecord, words: Sequence[str]) -> tuple[str, ...]:
    """The hosts meant by `@host`, a host's plain name, or the tasks on them; all of them for no words."""
    if not words:
        return tuple(record.hosts)
    chosen: set[str] = set()
    for word in words:
        if word in record.hosts:
            chosen.add(word)
        elif ":" not in word and not word.startswith("@") and not any(task.job == word for task in record.roster):
            raise _unknown("host or job", word, [*record.hosts, *{task.job: None for task in record.roster}])
        else:
            chosen |= {record.roster[task] for task in _mean(record, word)}
    return tuple(name for name in record.hosts if name in chosen)


def _mean(record: RunRecord, word: str) -> list[TaskId]:
    if word.startswith("@") and word != "@":
        hosts = _named_hosts(record, word[1:])
        return [task for task, host in record.roster.items() if host in hosts]
    job, colon, indexes = word.partition(":")
    if not job or word == "@":
        raise _no_task(word)
    tasks = [task for task in record.roster if task.job == job]
    if not tasks and word in record.hosts:
        raise UsageError(f"{word!r} is a host, and no task", hint=f"write @{word} for the tasks on it")
    if not tasks:
        raise _unknown("job", job, sorted({task.job for task in record.roster}))
    if not colon:
        return tasks
    wanted = [_range(part, word) for part in indexes.split(",")]
    known = {task.index for task in tasks}
    for each in wanted:  # a range may be of any length
        if missing := [index for index in (each.start, each.stop - 1) if index not in known]:
            raise UsageError(f"there is no task {job}:{missing[0]}", hint=f"the last one is {job}:{max(known)}")
    return [task for task in tasks if any(task.index in each for each in wanted)]


def _named_hosts(record: RunRecord, text: str) -> set[str]:
    names = expand(text)
    for name in names:
        if name not in record.hosts:
            raise _unknown("host", name, list(record.hosts))
    return set(names)


def _range(part: str, word: str) -> range:
    match = _INDEXES.fullmatch(part)
    if not match:
        raise _no_task(word)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise UsageError(f"{word!r} names no task: {first} is more than {last}", hint=GRAMMAR)
    return range(first, last + 1)


def _no_task(word: str) -> UsageError:
    return UsageError(f"{word!r} is not a task", hint=GRAMMAR)


def _unknown(kind: str, name: str, known: list[str]) -> UsageError:
    return UsageError(
        f"there is no {kind} {name!r} in this cluster",
        hint=did_you_mean(name, known) or f"{kind}s: {', '.join(known)}; {GRAMMAR}",
    )

"""Which tasks and hosts the words of a command line mean."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dtctl.config.ranges import expand
from dtctl.config.suggest import did_you_mean
from dtctl.errors import UsageError
from dtctl.model import TaskId
from dtctl.operations.memory.record import RunRecord

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
    if word.startswith("@"):
        hosts = _named_hosts(record, word[1:])
        return [task for task, host in record.roster.items() if host in hosts]
    job, colon, indexes = word.partition(":")
    tasks = [task for task in record.roster if task.job == job]
    if not tasks:
        raise _unknown("job", job, sorted({task.job for task in record.roster}))
    if not colon:
        return tasks
    wanted = {index for part in indexes.split(",") for index in _range(part, word)}
    missing = wanted - {task.index for task in tasks}
    if missing:
        last = f"{job}:{len(tasks) - 1}"
        raise UsageError(f"there is no task {job}:{min(missing)}", hint=f"the last one is {last}")
    return [task for task in tasks if task.index in wanted]


def _named_hosts(record: RunRecord, text: str) -> set[str]:
    names = expand(text)
    for name in names:
        if name not in record.hosts:
            raise _unknown("host", name, list(record.hosts))
    return set(names)


def _range(part: str, word: str) -> range:
    match = _INDEXES.fullmatch(part)
    if not match:
        raise UsageError(f"{word!r} is not a task", hint=GRAMMAR)
    first = int(match[1])
    return range(first, int(match[2] or first) + 1)


def _unknown(kind: str, name: str, known: list[str]) -> UsageError:
    return UsageError(
        f"there is no {kind} {name!r} in this cluster",
        hint=did_you_mean(name, known) or f"{kind}s: {', '.join(known)}; {GRAMMAR}",
    )

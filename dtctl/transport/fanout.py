"""The same work for many hosts at once, by a bounded number of threads; every outcome is kept."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dtctl.errors import DtctlError, advice

H = TypeVar("H")
R = TypeVar("R")

HINTS = 3
"""What helps one host helps the next one of its kind."""

WIDTH = 24
"""More threads are slower, and an sshd refuses connections at random from 10 unfinished logins on (MaxStartups)."""


class SomeHostsFailed(DtctlError):
    """Several hosts could not do the same thing; `errors` holds why, by name."""

    def __init__(self, doing: str, errors: Mapping[str, DtctlError], total: int) -> None:
        self.errors = dict(errors)
        first = next(iter(self.errors.values()))
        self.exit_code = first.exit_code
        lines = [line for name, error in self.errors.items() for line in _told(name, error)]
        hints: dict[str, str] = {}
        for error in self.errors.values():
            hints.setdefault(error.hint, advice(error))
        super().__init__(
            f"cannot {doing} on {len(self.errors)} of {total} hosts",
            detail="\n".join(lines),
            hint="\n".join(list(filter(None, hints.values()))[:HINTS]),
        )


def _told(name: str, error: DtctlError) -> list[str]:
    summary = error.summary if name in error.summary else f"{name}: {error.summary}"
    return [summary, *(f"  {line}" for line in error.detail.splitlines())]


@dataclass(frozen=True)
class Outcomes(Generic[R]):
    """What came of each host, by name, in the order asked."""

    results: dict[str, R]
    errors: dict[str, DtctlError]

    def or_raise(self, doing: str) -> dict[str, R]:
        """The results of all hosts; `doing` reads as in "cannot prepare on 2 of 20 hosts"."""
        if len(self.errors) == 1 and not self.results:
            raise next(iter(self.errors.values()))
        if self.errors:
            raise SomeHostsFailed(doing, self.errors, len(self.errors) + len(self.results))
        return self.results


def _own_name(item: Any) -> str:
    return item if isinstance(item, str) else str(item.name)


def fan_out(
    items: Iterable[H],
    work: Callable[[H], R],
    *,
    width: int = WIDTH,
    name: Callable[[H], str] = _own_name,
    cancel: Callable[[], object] | None = None,
) -> Outcomes[R]:
    """Calls `work` for every item, `width` at a time; DtctlErrors are outcomes.

    Anything else that is raised, in a thread or here (KeyboardInterrupt), ends it: nothing more is begun, `cancel` is
    called to make the unfinished work end, and the exception is raised without waiting for that. `name` must be
    different for each item; the default takes the item itself, if it is a string, or its `name`.
    """
    crew = _Crew([(name(item), item) for item in items], work)
    try:
        crew.start(width)
        crew.wait()
    except BaseException:
        crew.dismiss()
        if cancel is not None:
            cancel()
        raise
    return crew.outcomes()


class _Crew(Generic[H, R]):
    """The threads of one `fan_out` and what they have found."""

    def __init__(self, jobs: list[tuple[str, H]], work: Callable[[H], R]) -> None:
        self._order = [name for name, _ in jobs]
        if len(set(self._order)) != len(jobs):
            raise ValueError(f"names are not different: {self._order}")
        self._todo = deque(jobs)
        self._work = work
        self._results: dict[str, R] = {}
        self._errors: dict[str, DtctlError] = {}
        self._bug: BaseException | None = None
        self._changed = threading.Condition()

    def start(self, width: int) -> None:
        # Daemons: an interrupted command must not wait at exit for a connection that is still being tried.
        for number in range(min(width, len(self._order))):
            threading.Thread(target=self._labour, name=f"fan-out-{number}", daemon=True).start()

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._bug or len(self._results) + len(self._errors) == len(self._order))
        if self._bug is not None:
            raise self._bug

    def dismiss(self) -> None:
        with self._changed:
            self._todo.clear()

    def outcomes(self) -> Outcomes[R]:
        return Outcomes(
            {name: self._results[name] for name in self._order if name in self._results},
            {name: self._errors[name] for name in self._order if name in self._errors},
        )

    def _labour(self) -> None:
        while True:
            with self._changed:
                if not self._todo or self._bug is not None:
                    return
                name, item = self._todo.popleft()
            try:
                result = self._work(item)
            except DtctlError as error:
                with self._changed:
                    self._errors[name] = error
                    self._changed.notify_all()
            except BaseException as bug:  # raised by `wait`, in the thread of the command
                with self._changed:
                    self._bug = self._bug or bug
                    self._changed.notify_all()
            else:
                with self._changed:
                    self._results[name] = result
                    self._changed.notify_all()

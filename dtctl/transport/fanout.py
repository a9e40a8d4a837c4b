"""The same work for many hosts at once, by a bounded number of threads; every outcome is kept."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.transport.group_errors import group_errors, lines

MOST_THREADS = 256
"""The most threads, including those that only wait for a host that may be down."""

IDLE_S = 1.0
"""A thread that waits this long for a host's first byte no longer counts in the width. A host that is up has sent it by
then."""

ALONE_S = 5.0
"""The same for a host that has answered: it works by itself, or its login or disk hangs. A busy host needs longer for
its answers, and more requests at once do not help."""

LOOKED_EVERY_S = 0.5
"""The interval at which waiting threads are counted while there are hosts in the queue."""

LAST_WORDS_S = 2.0
"""How long hosts may still report their own failures after one has failed that is needed."""

H = TypeVar("H")
R = TypeVar("R")

WIDTH = 24
"""More threads are slower, and an sshd refuses connections at random from 10 unfinished logins on (MaxStartups)."""


class NotAwaited(TransportError):
    """A host whose answer could no longer matter, because another host had failed."""


class SomeHostsFailed(DtctlError):
    """Several hosts failed to do the same thing. `errors` holds why, by name, without hosts that were not awaited."""

    def __init__(self, doing: str, errors: Mapping[str, DtctlError], total: int) -> None:
        self.errors = failures(errors)
        self.unawaited = tuple(host for host in errors if host not in self.errors)
        first = next(iter(self.errors.values()))
        self.exit_code = first.exit_code
        groups = group_errors(self.errors)
        super().__init__(
            f"cannot {doing} on {len(self.errors)} of {total} hosts",
            detail="\n".join(lines(self.errors)),
            hint=groups[0].next_step if len(groups) == 1 else "",
        )


def failures(errors: Mapping[str, DtctlError]) -> dict[str, DtctlError]:
    """The errors without those of hosts that were not awaited."""
    return {host: error for host, error in errors.items() if not isinstance(error, NotAwaited)}


@dataclass(frozen=True)
class Outcomes(Generic[R]):
    """The result or the error of each host, by name, in the order of the call."""

    results: dict[str, R]
    errors: dict[str, DtctlError]

    def or_raise(self, doing: str) -> dict[str, R]:
        """The results of all hosts; `doing` reads as in "cannot prepare on 2 of 20 hosts"."""
        if len(self.errors) == 1 and not self.results:
            raise next(iter(self.errors.values()))
        if self.errors:
            raise SomeHostsFailed(doing, self.errors, len(self.errors) + len(self.results))
        return self.results


_here = threading.local()


Still = Callable[[float], None]
"""Called when a host that is waited for has answered: the wait continues, and counts from the given time on."""


@contextmanager
def idle(counts_from: float | None = None) -> Iterator[Still]:
    """While it lasts, this thread's work only waits for a host, and needs neither processor nor network.

    Another host is served meanwhile, from `counts_from` on (monotonic; None: in IDLE_S).
    """
    crew: _Crew[Any, Any] | None = getattr(_here, "crew", None)
    if crew is None:
        yield lambda _: None
        return
    thread = getattr(_here, "thread", threading.get_ident())
    crew.idles(thread, time.monotonic() + IDLE_S if counts_from is None else counts_from)
    try:
        yield lambda at: crew.idles(thread, at)  # also from a thread that reads for this one
    finally:
        crew.idles(thread, None)


def on_behalf(work: Callable[[], R]) -> Callable[[], R]:
    """The same work for a thread that does it for this one, which only waits for it: `idle` and `asking` count here."""
    crew, thread = getattr(_here, "crew", None), getattr(_here, "thread", threading.get_ident())

    def working() -> R:
        _here.crew, _here.thread = crew, thread
        return work()

    return working


@contextmanager
def asking() -> Iterator[None]:
    """While it lasts, this thread waits for a person: the failure of another host does not end the command."""
    crew: _Crew[Any, Any] | None = getattr(_here, "crew", None)
    if crew is not None:
        crew.asks(1)
    try:
        yield
    finally:
        if crew is not None:
            crew.asks(-1)


def _own_name(item: Any) -> str:
    return item if isinstance(item, str) else str(item.name)


def fan_out(
    items: Iterable[H],
    work: Callable[[H], R],
    *,
    width: int = WIDTH,
    name: Callable[[H], str] = _own_name,
    cancel: Callable[[], object] | None = None,
    needs_all: bool = False,
) -> Outcomes[R]:
    """Calls `work` for every item, `width` at a time; DtctlErrors are outcomes.

    `needs_all`: one failure makes the rest useless. Soon after it, `cancel` is called, and the items that have not
    finished fail as NotAwaited.

    Any other exception, in a thread or here (KeyboardInterrupt), ends the call: no more items are started, `cancel` is
    called to end the unfinished work, and the exception is raised without waiting for that. `name` must differ for each
    item; the default is the item itself, if it is a string, or its `name`.
    """
    crew = _Crew([(name(item), item) for item in items], work)
    try:
        crew.start(width)
        if crew.wait(LAST_WORDS_S if needs_all else math.inf) and cancel is not None:
            cancel()
    except BaseException as error:
        crew.dismiss()
        if cancel is not None:
            cancel()
        if isinstance(error, RuntimeError) and isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None  # raised as a lock was acquired or released: "release unlocked lock"
        raise
    return crew.outcomes()


def _forget_frames(error: BaseException) -> None:
    """Frees an error's frames, which otherwise keep a connection and its data, for each of hundreds of errors."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__


class _Crew(Generic[H, R]):
    """The threads of one `fan_out` and their outcomes."""

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
        self._width = 0
        self._threads = 0
        self._idle: dict[int, float] = {}
        """Threads that only wait, and when their waits begin to count."""
        self._asking = 0

    def start(self, width: int) -> None:
        self._width = width
        self._hire(min(width, len(self._order)))

    def _hire(self, count: int) -> None:
        # Daemons: an interrupted command must not wait at exit for a connection that is still being tried.
        for _ in range(count):
            threading.Thread(target=self._labour, name=f"fan-out-{self._threads}", daemon=True).start()
            self._threads += 1

    def wait(self, after_failure_s: float) -> bool:
        """Waits for all, or for `after_failure_s` after the first error. Returns whether any were left unfinished."""
        failed, watched = math.inf, after_failure_s < math.inf
        with self._changed:
            while not self._changed.wait_for(self._is_over, LOOKED_EVERY_S if watched or self._todo else None):
                now = time.monotonic()
                failed = math.inf if self._asking else min(failed, now) if self._errors else failed
                if now - failed >= after_failure_s:
                    return self._leave()
                self._replace_idle(now)
        if self._bug is not None:
            raise self._bug
        return False

    def _leave(self) -> bool:
        """Records unfinished items as failed, even if they succeed later."""
        self._todo.clear()
        for name in self._order:
            if name not in self._results and name not in self._errors:
                self._errors[name] = NotAwaited(f"{name} was not waited for, as another host had failed")
        return True

    def _is_over(self) -> bool:
        return self._bug is not None or len(self._results) + len(self._errors) == len(self._order)

    def _replace_idle(self, now: float) -> None:
        """A host that is down takes the whole of its time, in which the others are not to stand in a queue."""
        waiting = sum(now >= counts_from for counts_from in self._idle.values())
        wanted = min(self._width + waiting, MOST_THREADS)
        self._hire(min(wanted - self._threads, len(self._todo)))

    def idles(self, thread: int, counts_from: float | None) -> None:
        """Records that a thread of the crew waits; None: that it works again."""
        with self._changed:
            if counts_from is None:
                self._idle.pop(thread, None)
            else:
                self._idle[thread] = counts_from

    def asks(self, more: int) -> None:
        with self._changed:
            self._asking += more

    def dismiss(self) -> None:
        with self._changed:
            self._todo.clear()

    def outcomes(self) -> Outcomes[R]:
        return Outcomes(
            {name: self._results[name] for name in self._order if name in self._results},
            {name: self._errors[name] for name in self._order if name in self._errors and name not in self._results},
        )

    def _labour(self) -> None:
        _here.crew = self
        while True:
            with self._changed:
                if not self._todo or self._bug is not None:
                    return
                name, item = self._todo.popleft()
            try:
                result = self._work(item)
            except DtctlError as error:
                _forget_frames(error)
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

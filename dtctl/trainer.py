"""Save and exit on SIGTERM, for trainers: imported from here, or from the copy `graceful.py` that `dtctl init` writes.

    stop = Stop()                                   # Stop(strategy) with MultiWorkerMirroredStrategy, Stop(agree=...)
    for step in stop.between(range(first, last)):   # with a TF1 session: hooks=[stop.hook()]
        train_step()
    manager.save()                                  # a TF1 session saves by itself
    stop.exit_if_due()

    serve(server)                                   # ps tasks, instead of server.join()

Standard library, Python 3.8 or later; TensorFlow is imported where it is needed.
"""

from __future__ import annotations

import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Iterable, Iterator, NoReturn, Optional, TypeVar

    T = TypeVar("T")

SAVED = 143
"""Exit code of a trainer that was stopped before its end (128 + SIGTERM): saved, start me again. 0 would be success."""


class Stop:
    """An end between two steps, which SIGTERM or Ctrl-C asks for.

    `strategy`: a MultiWorkerMirroredStrategy. Its workers save together, so they have to stop at the same step: they
    agree on it, before every step or every `every`-th, by a collective of one number.

    `agree`: the same for other frameworks, as a function that every worker calls with its own wish, and that says to
    all of them whether it is the wish of one.
    """

    def __init__(self, strategy: Any = None, *, agree: Optional[Callable[[bool], bool]] = None, every: int = 1) -> None:
        self._asked = False
        self._due = False
        self._agree = agree or (bool if strategy is None else _agreement(strategy))
        self._every = every
        self._calls = 0

    def due(self) -> bool:
        """Whether to stop now, for a loop that asks before each step. Signals do not kill the process from the first
        call on.
        """
        if not self._due and self._calls % self._every == 0:
            self._due = self._agree(self._asked)
        self._calls += 1
        if not self._asked:
            self._listen()
        return self._due

    def between(self, items: Iterable[T]) -> Iterator[T]:
        """The items, as long as no stop is due. One that is asked for during the last item never is."""
        for item in items:
            if self.due():
                return
            yield item

    def hook(self) -> Any:
        """A SessionRunHook that ends a TF1 session, which saves as at its regular end. Last in the list of hooks."""
        import tensorflow.compat.v1 as tf

        hook = tf.train.SessionRunHook()
        hook.after_run = self._after_run
        return hook

    def exit_if_due(self) -> None:
        """Follows the last save. Returns if training has finished by itself."""
        if self._due:
            self._agree(True)  # no task leaves before all have saved: the others would be cut short
            print(f"stopped before the end of training: exit code {SAVED}", file=sys.stderr, flush=True)
            sys.exit(SAVED)

    def _listen(self) -> None:
        # Before every step: a strategy's first collective gives SIGTERM to TensorFlow (preemption_notifier.cc).
        signal.signal(signal.SIGTERM, self._ask)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._ask)

    def _ask(self, number: int, frame: Optional[FrameType]) -> None:
        self._asked = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C interrupts at once

    def _after_run(self, run_context: Any, run_values: Any) -> None:
        if not run_context.stop_requested and self.due():
            run_context.request_stop()


def serve(server: Any) -> NoReturn:
    """Takes the place of `server.join()`, in which Python sees no signal: serves until SIGTERM or Ctrl-C."""
    stop = Stop()
    while not stop.due():
        time.sleep(0.2)
    sys.exit(SAVED)


def _agreement(strategy: Any) -> Callable[[bool], bool]:
    """A function that every worker calls with its own wish; True for all of them if it is the wish of one."""
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]
    def wishes(own: Any) -> Any:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(tf.identity, args=(own,)), axis=None)

    return lambda asked: bool(wishes(tf.constant(int(asked))) > 0)

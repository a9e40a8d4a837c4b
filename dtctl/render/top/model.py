"""What the screen has been told so far, and how old it is by now."""

from __future__ import annotations

from dtctl.operations.client.streams import Away, Back
from dtctl.operations.metrics import Series
from dtctl.operations.status import RunStatus
from dtctl.operations.watching.feed import Feed
from dtctl.operations.watching.loss import Losses
from dtctl.operations.watching.run import Over
from dtctl.render.top.history import Courses
from dtctl.render.top.snapshot import Moment, Problem


class Knowledge:
    """Fed by the streams of the run and of its loss. Times are of the monotonic clock."""

    def __init__(self, run: Feed, loss: Feed) -> None:
        self.courses = Courses()
        self.losses = Losses()
        self._run, self._loss = run, loss
        self._status: RunStatus | None = None
        self._problem: Problem | None = None
        self._told_at = 0.0
        self._over = False
        self._broken: dict[str, Away] = {}

    def look(self, now: float) -> bool:
        """Whether there is news. Raises what has ended the stream of the run."""
        told = self._run.take()
        for one in told:
            self._hear(one, now)
        points = [one for one in self._loss.take() if isinstance(one, Series)]  # its end is no loss to the rest
        for series in points:
            self.losses.add(series)
        return bool(told or points)

    @property
    def status(self) -> RunStatus | None:
        """The last."""
        return self._status

    def moment(self, now: float) -> Moment | None:
        """None before anything is known."""
        if self._status is None:
            return None
        age_s = 0.0 if self._status.verdict.outcome.decided else now - self._told_at
        return Moment(self._status, self._status.time + age_s, self._over, dict(self._broken), self._problem)

    def _hear(self, told: object, now: float) -> None:
        if isinstance(told, BaseException):
            raise told
        if isinstance(told, RunStatus):
            self._status, self._told_at = told, now
            self._problem = Problem(told)
            self._broken = self._broken if told.coordination is None else {}
            self.courses.add(told)
        elif isinstance(told, Away):
            self._broken[told.host] = told
        elif isinstance(told, Back):
            self._broken.pop(told.host, None)
        elif isinstance(told, Over):
            self._over = True

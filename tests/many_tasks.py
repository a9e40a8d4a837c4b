"""A dashboard of a run of many tasks, whose reports are made by hand every 2 s: for pictures and benchmarks."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from dtctl.agent.records.answers import Log
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.whole_run import HistoryEvent, RunView
from dtctl.model import TaskId
from dtctl.operations.client.streams import Feed
from dtctl.operations.events import EventHistory
from dtctl.operations.logs import LogLines
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, Verdict
from dtctl.plan import plan_roster
from dtctl.rooms.metrics.operation import Metrics, Point, Series
from dtctl.rooms.pages import dashboard as board_module
from dtctl.rooms.pages import dashboard_page as page
from dtctl.rooms.pages.log_page import LogTails
from dtctl.rooms.pages.report import SCALARS_EVERY_S, Report, put_together
from dtctl.rooms.pages.webserver import Door, Server, listen
from tests.unit.clusters import cluster, job
from tests.unit.coordinated import entry, state_of, viewed
from tests.unit.tasks import checkpoint, checkpoint_directory

A_HOST = 8
"""Tasks of a host."""
STEPS_A_S = 10.0
TARGET = 20_000


class Training:
    """A run of this many tasks that has trained since some time. Times are of this machine's clock."""

    def __init__(self, tasks: int, began: float) -> None:
        servers = max(1, tasks // 25)
        hosts = [f"gpu-{number:02}" for number in range(1, -(-tasks // A_HOST) + 1)]
        on = [hosts[number % len(hosts)] for number in range(tasks)]
        ports = [2222 + number // len(hosts) for number in range(tasks)]
        jobs = (job("ps", on[:servers], ports[:servers]), job("worker", on[servers:], ports[servers:]))
        self.began = began
        self.record = _record_of(jobs, began)
        self._random = random.Random(1)
        self._read = 0.0
        self._metrics = Metrics(None, ())
        self._paces = {task: self._random.uniform(0.93, 1.0) for task in self.record.roster}

    def report(self, now: float) -> Report:
        """What a dashboard makes of it."""
        step = int((now - self.began) * STEPS_A_S)
        entries = {str(task): self._entry(task, now) for task in self.record.roster}
        hosts = {
            host: {
                "connected": True,
                "heard": now,
                "over": False,
                "state": state_of(host, {str(task): entries[str(task)] for task in self.record.tasks_on(host)}),
            }
            for host in self.record.hosts
        }
        view = checked(RunView, {**viewed(time=now, elapsed_s=now - self.began), "hosts": hosts})
        coordination = Coordination.of(view, self.record.roster)
        count = len(self.record.roster)
        verdict = Verdict(Outcome.RUNNING, (fact("tasks_run", count=count, of=count),))
        saved = checkpoint(f"model.ckpt-{step // 500 * 500}", step // 500 * 500, time=now - 20, size_bytes=3 * 10**8)
        places = (checkpoint_directory(self.record.coordinator, "/data/out", saved),)
        status = RunStatus(self.record, coordination.tasks, verdict, places, now, coordination)
        greeting = {"system": "Linux 6.1", "python": "3.11.2", "cpus": 64, "memory_bytes": 512 * 10**9}
        greetings = dict.fromkeys(self.record.hosts, greeting)
        return put_together(status, self._events(), self._scalars_now(step, now), greetings, {})

    def _entry(self, task: TaskId, now: float) -> dict[str, Any]:
        since = self.began + 1
        if task.job == "ps":
            return entry(since=since)
        pace = STEPS_A_S * self._paces[task] * self._random.uniform(0.99, 1.01)
        step = int((now - since) * pace)
        return entry(since=since, step=step, step_time=now - 0.1, rate=pace, loss=f"{self._loss(step):.4g}")

    def _events(self) -> EventHistory:
        moves = [
            made(
                HistoryEvent, time=self.began + at, kind="task", task=str(task), host=host, attempt=1,
                **{"from": before, "to": after},
            )
            for task, host in self.record.roster.items()
            for at, before, after in ((0.2, "pending", "starting"), (1.0, "starting", "running"))
        ]  # fmt: skip
        return EventHistory((made(HistoryEvent, time=self.began, kind="request", why=[fact("asked_up")]), *moves))

    def _loss(self, step: int) -> float:
        return 6.0 * math.exp(-step / 900) + 0.3 + self._random.uniform(0, 0.05)

    def _scalars_now(self, step: int, now: float) -> Metrics:
        """As they were read last."""
        if now - self._read >= SCALARS_EVERY_S:
            self._metrics, self._read = self._scalars(step), now
        return self._metrics

    def _scalars(self, step: int) -> Metrics:
        steps = [*range(0, step + 1, max(1, step // 400))][-400:]
        named: dict[str, Callable[[int], float]] = {
            "loss": self._loss,
            "accuracy": lambda at: 1 - math.exp(-at / 700),
            "learning_rate": lambda at: 0.1 * 0.999**at,
        }
        series = []
        for tag, value in named.items():
            points = tuple(Point(at, self.began + at / STEPS_A_S, value(at)) for at in steps)
            values = [point.value for point in points]
            host = self.record.coordinator
            series.append(Series(tag, "train", host, "/data/out", points, len(points), min(values), max(values)))
        return Metrics(self.record.run, tuple(series))

    def log(self, task: TaskId) -> Feed:
        """The log of a task: two lines a second."""

        def lines() -> Generator[object, None, None]:
            step = max(0, int((time.time() - self.began) * STEPS_A_S) - 400)
            while True:
                text = f"step {step} loss {self._loss(step):.4f} grad_norm {self._random.uniform(0.5, 2):.3f}\n"
                log = made(Log, task=str(task), attempt=1, offset=step * 40, end=step * 40 + 40, time=time.time())
                yield LogLines(log, text.encode())
                step += 5
                if step > (time.time() - self.began) * STEPS_A_S:
                    time.sleep(0.5)

        return Feed(lines).start()


def _record_of(jobs: Any, began: float) -> RunRecord:
    value = record_of(plan_roster(cluster(*jobs)), "digits-1", began)
    return dataclasses.replace(value, file=None, target_step=TARGET)


@contextmanager
def dashboard(tasks: int, trained_s: float = 400.0) -> Iterator[Callable[[], str]]:
    """Serves the dashboard of such a run, updated every 2 s; gives a new address for each browser."""
    training, board, door, over = (
        Training(tasks, time.time() - trained_s),
        board_module.Board(),
        Door(),
        threading.Event(),
    )

    drawing = page.Drawing()

    def put() -> None:
        board.put({**drawing.parts(training.report(time.time())), **page.unknown(None)})

    def update() -> None:
        took = 0.0
        while not over.wait(max(0.0, board_module.EVERY_S - took)):
            began = time.monotonic()
            put()
            took = time.monotonic() - began

    put()
    logs = LogTails(lambda: training.record.roster, training.log)
    answer = board_module.answering(board, page.whole, page.headers(), logs.follow)
    with listen(0) as here, Server(here, door, page.entrance("dtctl dashboard"), answer) as server:
        thread = threading.Thread(target=update, daemon=True)
        thread.start()
        try:
            yield lambda: server.address
        finally:
            over.set()
            thread.join()
            board.close()

"""All output of dtctl is safe for a screen, whatever its source and the encoding of the stream."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import io
import json
import os
import pkgutil
import pty
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl import render, rooms
from dtctl.agent.records import answers
from dtctl.agent.records import gc as gc_records
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import said
from dtctl.agent.records.vitals import Frame, Stack, Thread
from dtctl.agent.records.whole_run import Alert, HistoryEvent, RunView
from dtctl.agent.rooms.checkpoints.records import Pruned
from dtctl.agent.rooms.checkpoints.records import Verified as VerifiedRecord
from dtctl.agent.rooms.data.records import DataDropped, DataHeld, DataPushResult
from dtctl.agent.rooms.dump.records import Dump, ProcessDump
from dtctl.agent.rooms.metrics.records import MetricsResult
from dtctl.agent.rooms.speed.records import Flow, Parameters, Sample, TaskUse
from dtctl.bundle import Bundle, LeftOut, Manifest
from dtctl.bundle.revision import Inspected
from dtctl.config.cluster import Hook
from dtctl.config.outgoing import Sending
from dtctl.errors import AgentError, ConfigError, DtctlError, Place, Problem
from dtctl.model import Revision, TaskId, TaskState
from dtctl.operations.checkpoints import Found
from dtctl.operations.client import Progress
from dtctl.operations.client.streams import Disconnected, Reconnected
from dtctl.operations.consent import LocalProgram
from dtctl.operations.down import Waiters
from dtctl.operations.drain import Scaled, Scaling
from dtctl.operations.engines import JobRequest, Submitted
from dtctl.operations.events import Attempted, EventHistory
from dtctl.operations.findings import Checked, Facts
from dtctl.operations.follow import Onward
from dtctl.operations.gc import GcResult, Written
from dtctl.operations.local import Exposure
from dtctl.operations.logs import LogLines
from dtctl.operations.logs.reading import SavedLog
from dtctl.operations.replace import Replacement
from dtctl.operations.restart import RestartResult
from dtctl.operations.runs import ForeignRun, KnownRun, KnownRuns
from dtctl.operations.snapshot import Coordination, CoordinatorUnreachable, Outcome, RunStatus, TaskStatus, Verdict
from dtctl.operations.stop import Ending, StopResult, Survivor
from dtctl.operations.up.readying import Left
from dtctl.operations.up.result import FailedStart, UnusedCheckpoint, UpResult
from dtctl.plan.hosts import DataPlace
from dtctl.plan.run import plan_run
from dtctl.render import allocation, checkpoints, errors, logs, result, starting, status
from dtctl.render import checked as checked_screen
from dtctl.render import plan as plans
from dtctl.render.awaiting import OutputPrinter
from dtctl.render.events import Told, show_entry
from dtctl.render.logs import LogPrinter, Narrator, show_onward
from dtctl.render.machine import document
from dtctl.render.machine import status as machine_checks
from dtctl.render.machine import status as machine_status
from dtctl.render.progress import UpProgress
from dtctl.render.starting import show_wanted
from dtctl.render.terminal import console
from dtctl.rooms.check import Line, Statement, found
from dtctl.rooms.check import screen as checks
from dtctl.rooms.check.network.firewall import Rules
from dtctl.rooms.checkpoints import document as checkpoints_document
from dtctl.rooms.checkpoints import screen as checkpoints_screen
from dtctl.rooms.checkpoints.delivery import StoredCheckpoint
from dtctl.rooms.checkpoints.local import OwnCheckpoint, OwnFile
from dtctl.rooms.checkpoints.pull import Pulled
from dtctl.rooms.checkpoints.push import Pushed
from dtctl.rooms.checkpoints.upkeep import Pruning, Verification, Verified
from dtctl.rooms.data import screen as data
from dtctl.rooms.data.operation import DataState, PlaceState
from dtctl.rooms.data.pushing import PushedData
from dtctl.rooms.diagnose import document as diagnose_document
from dtctl.rooms.diagnose import screen as diagnose_screen
from dtctl.rooms.diagnose.operation import Diagnosis, in_short
from dtctl.rooms.dump import screen as dump
from dtctl.rooms.dump.operation import Dumped, Dumps
from dtctl.rooms.metrics import screen as scalars
from dtctl.rooms.metrics.operation import Metrics, Point, Series
from dtctl.rooms.pages import comparing_document as compare_document
from dtctl.rooms.pages import dashboard_page as page
from dtctl.rooms.pages import report_page as report
from dtctl.rooms.pages.comparing import Between, Comparison, compared
from dtctl.rooms.pages.comparing_screen import show_code, show_comparison
from dtctl.rooms.speed import screen as speed
from dtctl.rooms.speed.facts import Minute, merged
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.verdicts import judged
from dtctl.rooms.tensorboard import Location as BoardPlace
from dtctl.rooms.tensorboard import screen as tensorboard
from tests import of_rooms
from tests.fuzz import cases
from tests.unit.agent.poisons import POISONS, left_in
from tests.unit.clusters import cluster
from tests.unit.coordinated import incident, record, viewed
from tests.unit.tasks import checkpoint, checkpoint_directory, log_lines_of, past_attempt, task_status

BAD = "".join(POISONS.values()) + "\x1b[38;5;201mpink\nerror: feigned"
MEANT = ("signature", "scope", "way", "strategy", "dialect", "phase")
"""Words that our own code chooses from, which are not free text."""

BARS = "\x1b\r"
"""Sequences with which rich moves the cursor."""


CHOSEN = {"kind", "type", "phase", "what", "topic"}
"""Fields of records for which a validator allows only a few words."""

RECORDS = {
    *("kind", "held", "port", "freed_bytes", "read_bytes", "unread_bytes", "problem"),
    *("pid", "size_bytes", "since", "why", "connected", "version", "retry", "asked"),
}
"""Records have one of these fields."""


def measured() -> Speed:
    """A run whose busy ps has a thread, and whose unequal ps tasks a variable, with a poisoned name."""
    busy = made(TaskUse, seconds=60.0, cpu_s=60.0, thread_s=59.0, thread=BAD[:100])
    flow = made(Flow, task="ps:0", peer="worker:0", host="a", sent_bytes=1e9, busy_s=50.0)
    idle = made(TaskUse, seconds=60.0, cpu_s=6.0, thread_s=6.0)
    largest = [{"name": f"dense{BAD}", "size_bytes": 9.0, "shard": 0}]
    parameters = made(Parameters, prefix="/x", shards=[{"size_bytes": 10.0, "variables": 2}], largest=largest)

    def minute(**tasks: TaskUse) -> Minute:
        named = {task.replace("_", ":"): use for task, use in tasks.items()}
        sample = made(Sample, time=2e9, seconds=60.0, cpus=4, busy_s=60.0, tasks=named, flows=[flow])
        return Minute({"a": sample}, parameters)

    one, two = minute(ps_0=busy, worker_0=idle), minute(ps_0=busy, ps_1=idle, worker_0=idle)
    verdicts = (*judged([one]), *judged([two]))
    assert [verdict.kind for verdict in verdicts] == ["busy_server", "unbalanced"]
    return Speed("demo-1", verdicts, 1, merged([two]), 1.0, 99.0)


def poisoned(value: Any) -> Any:
    """The value with poison after all of its texts, at any depth."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return value + BAD
    if isinstance(value, Path):
        return Path(f"{value}{BAD}".replace("\0", ""))
    if isinstance(value, DtctlError):
        return AgentError("any", poisoned(value.summary), detail=poisoned(value.detail), hint=poisoned(value.hint))
    if isinstance(value, Mapping) and not RECORDS.isdisjoint(value):  # its fields, and a fact's kind, were validated
        return {key: one if key in CHOSEN else poisoned(one) for key, one in value.items()}
    if isinstance(value, Mapping):
        return {poisoned(key): poisoned(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(poisoned, value))
    if isinstance(value, tuple):
        several = map(poisoned, value)
        return type(value)(*several) if hasattr(value, "_fields") else tuple(several)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            if field.name not in MEANT:
                object.__setattr__(made, field.name, poisoned(getattr(value, field.name)))
        return made
    return value


ERROR = AgentError("refused", "summary", detail="detail", hint="hint")
TASK = TaskId("worker", 0)
SAID = tuple(said("reason"))
CHECKPOINT = checkpoint("model-7", 7)
BROKEN = checkpoint("model-8", 7, complete=False, problem="half")
FOUND = checkpoint_directory("a", "/dir", CHECKPOINT, BROKEN, incomplete=[BROKEN], problem="closed")
_LEFT = [{"pid": 1, "command": "cmd"}]
_SECOND = {"attempt": 2, "restarts": 1, "pid": 9, "since": 1.0, "why": SAID, "left": _LEFT, "left_behind": _LEFT}
FAILED = task_status(str(TASK), "c", "failed", tail="last words", **_SECOND)
WAITS = task_status("ps:0", attempt=1, pid=7, since=1.0, why=SAID, step=3)
LOST = task_status("ps:1", "b", "lost", why=SAID)
TOLD = viewed(
    waits_for={"why": said("ps:1")},
    alerts=[made(Alert, why=said("odd"))],
    incidents=[
        incident(collateral=[{"task": "worker:0", "why": said("lost ps:1")}], given_up={"why": said("gave up")})
    ],
)


CALL: Frame = {"function": f"train{BAD}", "file": f"/x/train.py{BAD}", "line": 7}
STACK: Stack = {
    "thread": "0xff",
    "name": f"MainThread{BAD}",
    "tid": 77,
    "main": True,
    "active": True,
    "gil": True,
    "frames": [CALL],
    "omitted": 1,
}
KERNEL: Thread = {
    "tid": 77,
    "name": f"python{BAD}",
    "state": f"D{BAD}",
    "wchan": f"nfs{BAD}",
    "kernel": [f"[<0>]{BAD}"],
}
PROCESS: ProcessDump = {
    "pid": 77,
    "command": f"python{BAD}",
    "way": None,
    "stacks": [STACK],
    "stacks_omitted": 1,
    "missing": "blocked",
    "said": f"Permission denied{BAD}",
    "threads": [KERNEL],
    "threads_omitted": 1,
}
DUMP: Dump = {"task": "worker:0", "attempt": 1, "state": "running", "processes": [PROCESS], "omitted": 1}
DUMPS = Dumps("demo-1", (Dumped(TASK, "a", DUMP),))

SERIES = Series("loss", "train", "a", "/dir", (Point(1, 10.0, 0.5), Point(2, 11.0, float("nan"))), 2, 0.5, 0.5, 12.0)
METRICS = Metrics(
    "demo-1",
    (SERIES, dataclasses.replace(SERIES, host="b")),
    {
        "a": made(
            MetricsResult,
            run="demo-1",
            time=12.0,
            dirs=["/dir"],
            problems=[{"path": "/dir/file", "problem": "is damaged"}],
            unread_bytes=1 << 20,
            omitted=3,
        )
    },
    without_run=("c",),
)


def run_status() -> RunStatus:
    verdict = Verdict(Outcome.FAILED, SAID, TASK)
    tasks = {task.id: task for task in (FAILED, WAITS, LOST)}
    coordination = Coordination.of(checked(RunView, TOLD), record().roster)
    return RunStatus(record(), tasks, verdict, (FOUND,), 1010.0, coordination, None, {"b": ERROR})


def plan() -> Any:
    planned = plan_run(cluster(), {name: name for name in "abcd"}, local_python="python3")
    return dataclasses.replace(
        planned, tasks=tuple(dataclasses.replace(task, secrets=("S",)) for task in planned.tasks)
    )


_STARTED = dataclasses.replace(run_status(), record=dataclasses.replace(record(), settings={"grace": "1m"}))
COMPARISON = Comparison(
    {"demo-1": compared(run_status(), METRICS), "demo-2": compared(_STARTED, METRICS)}, {"demo-3": ERROR}
)
ENDING = Ending("r-1", (TASK,), ("b",), (TASK,))
IDLE = dataclasses.replace(ENDING, spares=("s",))
STOP = StopResult((TASK,), (), (Survivor("worker:0", "c", 9, "cmd"),), {"b": ERROR}, ("d",), ("b",), unwritten=("c",))
SCALING = Scaling(run_status().record, "worker", 1, 2, 3, (TASK,), (TASK,))
UP = UpResult(
    "run",
    {TASK: FAILED},
    (),
    {"old": STOP},
    FOUND,
    {"a": "no crontab"},
    revival={"b": "cron", "c": "systemd"},
    unsure_revival={"b": "cron is not seen"},
    new_revival={"b": "cron", "c": "systemd"},
    aside={"a": ("/path",)},
    absent={"b": ERROR},
)
SAME = dataclasses.replace(UP, started={}, ended=(TASK,), joined={TASK: FAILED}, drained={TASK: FAILED})
UNREMEMBERED = dataclasses.replace(UP, unremembered=ERROR, unconfirmed={"a": ERROR})
INTERRUPTED = Left("run", kept=False, started=True, unclear=("a",), ended=("old",), unremembered=ERROR)
KEPT = dataclasses.replace(INTERRUPTED, kept=True)
NOTHING = Manifest(files=(), links=(), dirs=())
LEFT_OUT = Bundle(
    Path("/code"),
    NOTHING,
    (LeftOut(f"x{BAD}", f".gitignore:1 {BAD}"),),
    (LeftOut(f".env{BAD}", BAD),),
    twins=(f"copy{BAD}",),
)
FOREIGN = ForeignRun("letters-1", "bob", ("a",))
RUN = KnownRun("run", "cluster", 1.0, False, ("a",), {TASK: TaskState.RUNNING}, Verdict(Outcome.FAILED, SAID, TASK))
WRITTEN = (Written("c", "/path", 1, 2, ("a",)), Written(None, "/path", 1, 2, ("a", "b"), 2))
REMAINS = GcResult(
    {
        "a": made(
            gc_records.GcResult,
            dry_run=True,
            processes=[{"pid": 1, "command": "cmd", "run": "run"}],
            survivors=[],
            runs=[{"run": "run", "cluster": "c", "host": "a", "why": said("why")}],
            bundles=["b"],
            files=["f"],
            freed_bytes=3,
        )
    },
    {},
    WRITTEN,
    WRITTEN,
)
LOST_SIGHT = UnusedCheckpoint("a", "run", "/dir", CHECKPOINT, "b")
PICKED = Found("/dir", CHECKPOINT, ("a", "b"), {0: "a"})
READ = checked(
    VerifiedRecord,
    {
        "dir": "/d",
        "prefix": "m",
        "problems": ["is wrong"],
        "unread": "long",
        "tensors": 1,
        "read_bytes": 2,
        "seconds": 0.1,
    },
)
VERIFIED = Verification((Verified(PICKED, READ),), {"b": ERROR})
PULLED = Pulled(PICKED, (Path("/here/model-7.index"),), 10, 5)
OWN = OwnCheckpoint("model-7", 7, (OwnFile(Path("/here/model-7.index"), "model-7.index", 10, "0" * 64),), "too long")
PUSHED = Pushed(OWN, (StoredCheckpoint("a", "/dir", "model-7", 5, ("b",)), StoredCheckpoint("c", "/dir", "model-7", 0)))
_GONE = {"removed": [CHECKPOINT], "kept": [CHECKPOINT], "freed_bytes": 10, "problem": "no room", "listed": False}
PRUNED = Pruning((("a", made(Pruned, dir="/dir", **_GONE)),), {"b": ERROR})
DATA_PLACE = DataPlace("a", "/data")
DATA_STATES = [
    PlaceState(DATA_PLACE, made(DataHeld, dir="/data", there=True, files=2, missing=1, examples=["x"]), state)
    for state in get_args(DataState)
]
DATA_PUSHED = PushedData(poisoned(DATA_PLACE), 2, made(DataPushResult, bundle="0" * 64, sent_files=1, found_files=1))
AGAIN = RestartResult((FAILED,), {"b": ERROR})
EXCHANGE = Replacement("a", "b", cluster(), (TASK,), True, True)


def happenings() -> list[HistoryEvent]:
    line = {"n": 1, "time": 1.0, "host": "a", "task": "ps:0", "attempt": 2, "from": "running", "to": "failed"}
    usual = checked(HistoryEvent, {**line, "why": list(SAID), "by": "me"})
    others: list[Any] = [{**usual, "kind": kind} for kind in ("condition", "contact", "request", "other")]
    return [usual, *others]


def mistakes() -> ConfigError:
    return ConfigError([Problem(Place("file", 1, 1), "summary", "hint")])


def poisoned_mistakes() -> ConfigError:
    return ConfigError(poisoned(mistakes().problems))


def draw() -> None:
    with status.redrawn() as show:
        show(poisoned(run_status()))


def narrate() -> None:
    told_to = Narrator("a", None)
    error = poisoned(ERROR)
    for event in (Disconnected(f"a{BAD}", error), Reconnected(f"a{BAD}")):
        told_to(event)


def follow_log() -> None:
    log = {**LOG.log, "task": f"worker{BAD}:0", "time": 1e300, "truncated": True}
    LogPrinter((TASK,), prefix=True, timestamps=True).print(LogLines(cast("answers.Log", log), b"text\n"))


FAILED_TASK = task_status("ps:0", state="backoff", history=[past_attempt(1, 1.0, 2.0, 1, cause="no room")])


def failed_start(cause: TaskStatus | None = FAILED_TASK) -> FailedStart:
    coordination = run_status().coordination
    assert coordination is not None
    found: FailedStart = poisoned(FailedStart(coordination, cause))
    return found


DIAGNOSIS = Diagnosis(Facts(run_status()), in_short(run_status()), {"a": ERROR})


FIELDS = {"python": f"/python{BAD}", "said": f"words{BAD}"}
CHECKED = Checked(
    (f"a{BAD}", "b"),
    (found("python_broken", (f"a{BAD}",), (TASK,), **FIELDS),),
    {
        "software": (
            Line("tensorflow", {f"a{BAD}": f"2.21.0{BAD}", "b": "2.19.0"}),
            Statement("not_shared", {"where": f"/d{BAD}", "lead": f"a{BAD}"}),
        )
    },
    1.0,
    {"b": poisoned(ERROR)},
)


def tell_events() -> None:
    for one in happenings():
        show_entry(poisoned(one), Told())
    for state in ("running", "backoff"):
        one_line = Attempted("worker:0", "a", 1, 10.0, 5.0, state, tuple(said("why")))
        show_entry(dataclasses.replace(poisoned(one_line), state=state), Told())


def trust_line() -> None:
    console.say(f"host{BAD}  ssh-ed25519  SHA256:x{BAD}")


SAVED = SavedLog("worker:0", 1, Path("logs"), 10)

INSPECTED = Inspected(Revision("12ab", "main", "url", 1, 1, "note"), "", (), ("pointer",), ("module",))
BETWEEN = Between("demo-1", "demo-2", ("12ab One",), ("34cd Two",), ("train.py",), ("-old", "+new"))

SHOWS: dict[str, Callable[[], object]] = {
    **{name: partial(show, BAD) for name, show in of_rooms.table("SHOWS").items()},
    "show_error": lambda: errors.show_error(poisoned(ERROR)),
    "show_error of a file": lambda: errors.show_error(poisoned_mistakes()),
    "show_host_errors": lambda: errors.show_host_errors(poisoned({"a": ERROR})),
    "show_styled": lambda: errors.show_styled("run ", (BAD, "bold"), BAD),
    "show_strong": lambda: errors.show_strong(f"text{BAD}"),
    "show_contact": lambda: errors.show_contact(Disconnected(f"a{BAD}", poisoned(ERROR))),
    "show_contact back": lambda: errors.show_contact(Reconnected(f"a{BAD}")),
    "show_warning": lambda: errors.show_warning(f"text{BAD}", hint=f"hint{BAD}"),
    "print_table": lambda: console.print_table(console.table(poisoned({"NAME": ["about"]}))),
    "show_plan": lambda: plans.show_plan(poisoned(plan())),
    "show_whole_tasks": lambda: plans.show_whole_tasks(poisoned(plan()), None),
    "show_doubts": lambda: errors.show_doubts(poisoned_mistakes().problems),
    "show_comparison": lambda: show_comparison(poisoned(COMPARISON)),
    "show_runs": lambda: status.show_runs(KnownRuns((poisoned(RUN),), (), {}, (poisoned(FOREIGN),))),
    "show_checkpoints": lambda: checkpoints.show_checkpoints([poisoned(FOUND)], 10.0),
    "show_checkpoints of several": lambda: checkpoints.show_checkpoints(
        [poisoned(dataclasses.replace(FOUND, others=("b",)))], 10.0, lambda place, one: poisoned({0: "b"})
    ),
    "show_verified": lambda: checkpoints_screen.show_verified(poisoned(VERIFIED)),
    "show_pull": lambda: checkpoints_screen.show_pull(poisoned(PICKED), Path(f"a{BAD}")),
    "show_pulled": lambda: checkpoints_screen.show_pulled(dataclasses.replace(PULLED, files=(Path(f"a{BAD}"),))),
    "show_reading": lambda: checkpoints_screen.show_reading(Path(f"a{BAD}")),
    "show_pushed": lambda: checkpoints_screen.show_pushed(poisoned(PUSHED)),
    "show_pruned": lambda: checkpoints_screen.show_pruned(poisoned(PRUNED), dry_run=True),
    "show_submitted": lambda: allocation.show_submitted(
        poisoned(Submitted(record("demo-1"), "12", 2, "/log", short_of_s=60.0))
    ),
    "show_moving_ports": lambda: starting.show_moving_ports(poisoned(ERROR)),
    "show_data_states": lambda: data.show_data_states([poisoned(one) for one in DATA_STATES]),
    "show_data_examples": lambda: data.show_data_examples([poisoned(one) for one in DATA_STATES]),
    "show_data_pushed": lambda: data.show_data_pushed({"a": [DATA_PUSHED]}),
    "show_data_dropped": lambda: data.show_data_dropped(poisoned({"a": [made(DataDropped, dir="/data")]})),
    "show_incomplete": lambda: starting.show_incomplete([poisoned(FOUND)]),
    "show_unseen": lambda: starting.show_unseen(poisoned(LOST_SIGHT)),
    "show_unseen host": lambda: starting.show_unseen(poisoned(dataclasses.replace(LOST_SIGHT, checkpoint=None))),
    "show_remains": lambda: result.show_remains(poisoned(REMAINS), dry_run=True),
    "show_status": lambda: status.show_status(poisoned(run_status())),
    "show_ended": lambda: result.show_ended(poisoned(run_status())),
    "show_started": lambda: starting.show_started(poisoned(UP), poisoned(plan())),
    "show_started again": lambda: starting.show_started(poisoned(SAME), poisoned(plan())),
    "show_restarted": lambda: result.show_restarted(poisoned(AGAIN)),
    "show_replacement": lambda: starting.show_replacement(poisoned(EXCHANGE)),
    "show_kept": lambda: result.show_kept(poisoned(WRITTEN)),
    "show_stop": lambda: result.show_stop(poisoned(STOP)),
    "show_awaited": lambda: result.show_awaited({f"a{BAD}": Waiters((), (f"b{BAD}",))}, [f"c{BAD}"]),
    "show_unknown_end": lambda: starting.show_unknown_end([f"a{BAD}"], f"run{BAD}"),
    "show_draining": lambda: result.show_draining(f"a{BAD}", poisoned(ENDING)),
    "show_draining idle": lambda: result.show_draining(f"a{BAD}", poisoned(IDLE)),
    "show_undraining": lambda: result.show_undraining(f"a{BAD}", poisoned(ENDING)),
    "show_drained": lambda: result.show_drained(f"a{BAD}", poisoned(STOP)),
    "show_scaled": lambda: result.show_scaled(poisoned(SCALING), poisoned(Scaled(2, STOP, AGAIN)), dry_run=False),
    "show_scaled dry": lambda: result.show_scaled(poisoned(SCALING), Scaled(1), dry_run=True),
    "show_left_out": lambda: plans.show_left_out(LEFT_OUT),
    "show_code": lambda: plans.show_code(poisoned(INSPECTED)),
    "show_without_content": lambda: plans.show_without_content(poisoned(INSPECTED)),
    "show_code of several": lambda: show_code([poisoned(BETWEEN)]),
    "show_new_hosts": lambda: plans.show_new_hosts([BAD], BAD),
    "show_request": lambda: allocation.show_request(JobRequest(f"a{BAD}", 2, (f"--x={BAD}",)), f"dtctl up {BAD}"),
    "show_bad_hosts": lambda: plans.show_bad_hosts([BAD], BAD),
    "show_exposure": lambda: plans.show_exposure(poisoned(Exposure(Path("file"), "is open", "close it"))),
    "show_interrupted": lambda: starting.show_interrupted(poisoned(INTERRUPTED), Path(f"a{BAD}")),
    "show_interrupted kept": lambda: starting.show_interrupted(poisoned(KEPT), Path(f"a{BAD}")),
    "show_unasked": lambda: report.show_unasked({f"a{BAD}": ("events",)}),
    "show_start_warnings": lambda: starting.show_start_warnings(poisoned(UNREMEMBERED)),
    "show_without_run": lambda: result.show_without_run(poisoned(record()), (f"a{BAD}",)),
    "show_away": lambda: result.show_away(dataclasses.replace(EventHistory(()), away=away())),
    "show_hooks": lambda: starting.show_hooks([Hook(name=f"a{BAD}", on=("failed",), run=(f"a{BAD}",))]),
    "show_hook_failure": lambda: starting.show_hook_failure(f"a{BAD}", poisoned((*said("why"),))),
    "show_dumps": lambda: dump.show_dumps(DUMPS),
    "show_speed": lambda: speed.show_speed(measured()),
    "say_shown": lambda: tensorboard.say_shown(BoardPlace("a", "one_host"), [f"/dir{BAD}"]),
    "show_url": lambda: page.show_url(f"http://127.0.0.1:1/{BAD}", {}, f"note{BAD}", json=False),
    "show_next_url": lambda: page.show_next_url(f"http://127.0.0.1:1/{BAD}", {}, json=False),
    "show_end": lambda: tensorboard.show_end("a", {"run": "demo-1", "end": "ended", "said": f"x{BAD}"}),
    "show_saved": lambda: logs.show_saved([poisoned(SAVED)], Path(f"a{BAD}"), as_json=False),
    "show_setup_logs": lambda: logs.show_setup_logs(
        {f"a{BAD}": [{"path": f"/x{BAD}", "text": f"line{BAD}"}], f"b{BAD}": []}, None, as_json=False
    ),
    "show_table": lambda: scalars.show_table(poisoned(METRICS)),
    "show_plots": lambda: scalars.show_plots(poisoned(METRICS), log=True),
    "show_rest": lambda: scalars.show_rest(poisoned(METRICS)),
    "show_log_metrics": lambda: scalars.show_log_metrics(poisoned(METRICS), poisoned(run_status()), table_too=True),
    "show_checked": lambda: checks.show_checked(CHECKED),
    "show_findings": lambda: checked_screen.show_findings(CHECKED),
    "show_brief": lambda: checked_screen.show_brief(CHECKED),
    "show_rules": lambda: checks.show_rules(
        [Rules((f"a{BAD}",), (7,), (f"accept{BAD}",), (f"undo{BAD}",))], "ufw", "text"
    ),
    "show_diagnosis": lambda: diagnose_screen.show_diagnosis(poisoned(DIAGNOSIS)),
    "redrawn": draw,
    "narrator": narrate,
    "show_failed_exit": lambda: starting.show_failed_exit(
        poisoned(FAILED_TASK), f"log{BAD}\n".encode(errors="replace")
    ),
    "show_failed_start": lambda: starting.show_failed_start(failed_start(), f"log{BAD}\n".encode(errors="replace")),
    "show_failed_start again": lambda: starting.show_failed_start(failed_start(cause=None), b""),
    "show_onward": lambda: show_onward(poisoned(run_status()), Onward(None)),
    "show_onward again": lambda: show_onward(poisoned(run_status()), Onward(record())),
    "log": follow_log,
    "trust": trust_line,
    "show_wanted": lambda: show_wanted(
        [LocalProgram(Path("x"), f"hook {BAD}", (BAD,), {BAD: BAD}, (f"a{BAD}",))],
        [Sending(Path("x"), f"hooks.{BAD}", BAD, {f"a{BAD}": BAD}, (BAD,), BAD)],
    ),
    "show_entry": tell_events,
}
HARMLESS = {"show_data_source", "show_late", "show_list", "show_next_steps", "show_trace", "show_whatever_comes"}
"""Functions that show nothing from outside, or nothing at all."""


def away() -> CoordinatorUnreachable:
    return CoordinatorUnreachable(f"a{BAD}", poisoned(ERROR))


@pytest.fixture(autouse=True)
def _own_choice() -> Iterator[None]:
    yield
    console.choose_color("auto")


def test_every_function_that_shows_something_is_tried_with_poison() -> None:
    walked = [
        *pkgutil.walk_packages(render.__path__, "dtctl.render."),
        *pkgutil.walk_packages(rooms.__path__, "dtctl.rooms."),
    ]
    modules = [importlib.import_module(one.name) for one in walked if not one.name.endswith(".command")]
    shows = {
        name
        for module in modules
        for name, found in vars(module).items()
        if name.startswith("show_") and inspect.isfunction(found)
    }
    tried = {name.split()[0] for name in SHOWS if name.startswith("show_")}
    assert shows - HARMLESS == tried, "SHOWS has a row for each, with values that hold BAD"


@pytest.mark.parametrize("color", ["auto", "always"])
@pytest.mark.parametrize("name", SHOWS)
def test_shown_output_holds_no_poison(name: str, color: Any, capsys: pytest.CaptureFixture[str]) -> None:
    console.choose_color(color)
    SHOWS[name]()
    written = "".join(capsys.readouterr())
    drawn = set(BARS) if name == "redrawn" and color == "always" else set()
    assert left_in(written) <= drawn
    assert not any(poison in written for name, poison in POISONS.items() if name not in ("cursor up", "cut"))
    assert r"\x1b]0;pwned\x07" in written.replace("\n", "") or name in ("log", "show_error of a file")
    assert r"\x1b" in written
    assert "\x1b[38;5;201m" not in written
    assert "\nerror: feigned" not in written


def test_json_is_valid_whatever_a_host_sends(capsys: pytest.CaptureFixture[str]) -> None:
    bodies: list[Mapping[str, Any]] = [
        machine_status.run_status(poisoned(run_status())),
        compare_document.comparison(poisoned(COMPARISON)),
        document.started(f"c{BAD}", poisoned(UP)),
        diagnose_document.diagnosis(poisoned(DIAGNOSIS)),
        machine_checks.checked(CHECKED),
        machine_checks.checked(CHECKED),
        document.plan(poisoned(plan())),
        document.stop(poisoned(STOP)),
        document.gc(poisoned(REMAINS), dry_run=True),
        document.started(f"c{BAD}", poisoned(dataclasses.replace(UP, unseen=LOST_SIGHT))),
        {"checkpoints": checkpoints_document.directories([poisoned(FOUND)])},
        {"checkpoints": checkpoints_document.verified(poisoned(VERIFIED))},
        {"directories": checkpoints_document.pruned(poisoned(PRUNED))},
        checkpoints_document.pulled(dataclasses.replace(PULLED, files=(Path(f"a{BAD}"),))),
        document.known_run(dataclasses.replace(RUN, created=1e300)),
        document.event(poisoned({**happenings()[0], "time": float("nan")})),
        {"problems": document.problems(poisoned_mistakes().problems)},
        {"nan": float("nan"), "far": [float("inf"), (-float("inf"),)], BAD: "half \ud800 whole \ud83d\ude00"},
    ]
    for body in bodies:
        document.print_json("Anything", body)
        document.print_json_line(body)
    written = capsys.readouterr().out
    assert written.isascii()
    assert not left_in(written)
    decoder, at, found = json.JSONDecoder(parse_constant=pytest.fail), 0, []
    while written[at:].strip():
        one, at = decoder.raw_decode(written, at)
        found.append(one)
        at += len(written[at:]) - len(written[at:].lstrip())
    assert len(found) == 2 * len(bodies)
    json.dumps(found, ensure_ascii=False).encode()  # no lone surrogate
    assert (found[-1]["nan"], found[-1]["far"]) == (None, [None, [None]])
    assert "half \ufffd whole \U0001f600" in found[-1].values()


class Terminal:
    """A terminal in place of stdout and stderr; `shown` is the text written to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._master, self._slave = pty.openpty()
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._stream = io.TextIOWrapper(
            io.FileIO(self._slave, "w", closefd=False), encoding="utf-8", write_through=True
        )
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(f"sys.{name}", self._stream)
        monkeypatch.setenv("TERM", "xterm-256color")
        for name in ("CI", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)

    def shown(self) -> str:
        self._stream.close()
        os.close(self._slave)
        self._reader.join()
        os.close(self._master)
        return self._written.decode().replace("\r\n", "\n")

    def _read(self) -> None:
        try:
            while piece := os.read(self._master, 65536):
                self._written += piece
        except OSError:  # EIO: the other end is closed
            return


def test_bars_show_the_notes_of_hosts_without_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    host = f"[bold]a[/bold]{BAD}"
    with UpProgress([host, f"b{BAD}"]) as progress:
        progress(Progress(host, "setup", text=f"pip{BAD}"))
        progress._bars.refresh()  # type: ignore[union-attr]
    shown = terminal.shown()
    assert "[bold]a[/bold]\\x1b]0;pwned" in shown
    assert not left_in(shown) - set(BARS)
    assert not any(poison in shown for name, poison in POISONS.items() if name not in ("cursor up", "cut"))


@pytest.mark.parametrize(("phase", "line"), [("prepared", "set up in 0 s"), ("failed", "setup failed after 0 s")])
def test_a_setup_off_a_terminal_is_one_line_without_poison(
    capsys: pytest.CaptureFixture[str], phase: str, line: str
) -> None:
    with UpProgress(["a"]) as progress:
        for text in ("Collecting a\n", f"pip\n{BAD}\n"):
            progress(Progress(f"a{BAD}", "setup", text=text))
        progress(Progress(f"a{BAD}", phase))
    written = capsys.readouterr().err
    assert written.endswith(f"pwned: {line} (dtctl logs --setup)\n") or line in written
    assert written.count("\n") == 1
    assert not left_in(written)


LOG = log_lines_of(str(TASK), b"\x1b[31mred\x1b]52;c;eA==\x07\r\nplain\n")


def test_a_log_on_a_terminal_keeps_its_colours_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    LogPrinter((TASK,), prefix=False, timestamps=False).print(LOG)
    assert terminal.shown() == "\x1b[31mred\\x1b]52;c;eA==\\x07\x1b[0m\nplain\n"


def test_a_log_in_a_pipe_has_no_colours_and_is_as_safe(capsys: pytest.CaptureFixture[str]) -> None:
    """`dtctl logs | grep loss` also ends on a terminal."""
    LogPrinter((TASK,), prefix=False, timestamps=False).print(LOG)
    assert capsys.readouterr().out == "red\\x1b]52;c;eA==\\x07\nplain\n"


def test_raw_logs_are_unchanged_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    data = LOG.data + b"\xff\x9b no end"
    LogPrinter((TASK,), prefix=False, timestamps=False, raw=True).print(LOG._replace(data=data))
    assert capfdbinary.readouterr().out == data
    LogPrinter((TASK,), prefix=True, timestamps=False, raw=True).print(LOG._replace(data=b"a\x1bc\n\xff"))
    assert capfdbinary.readouterr().out == b"worker:0 | a\x1bc\nworker:0 | \xff\n"


def test_a_command_on_a_terminal_shows_whole_lines_without_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    printer = OutputPrinter(["a"])
    for piece in (b"\x1b[3", b"1mred\xc3", b"\xbc\x1b]0;t\x07\npro", b"mpt\x1b["):
        printer.print("a", 1, piece)
    printer.finish()
    assert terminal.shown() == "\x1b[31mredü\\x1b]0;t\\x07\x1b[0m\nprompt\\x1b[\n"


@pytest.mark.parametrize("raw", [True, False])
def test_a_command_off_a_terminal_passes_its_bytes(raw: bool, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = OutputPrinter(["a"], raw=raw)
    printer.print("a", 1, b"\x1b]0;t\x07\x00\xff")
    printer.finish()
    assert capfdbinary.readouterr().out == b"\x1b]0;t\x07\x00\xff"


def test_a_raw_command_passes_its_bytes_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    printer = OutputPrinter(["a"], raw=True)
    printer.print("a", 1, b"\x1b]0;t\x07")
    assert terminal.shown() == "\x1b]0;t\x07"


@cases
@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=4), st.sampled_from([["a"], ["a", "b"]]))
def test_output_is_the_same_however_it_is_split(data: bytes, cuts: list[int], places: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dtctl.render.awaiting._LONGEST", 16)
        patch.setattr(console, "on_terminal", lambda **_: True)
        assert _printed(patch, places, [data]) == _printed(patch, places, _pieces(data, sorted(cuts)))


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]


def _printed(patch: pytest.MonkeyPatch, places: list[str], pieces: list[bytes]) -> str:
    shown: list[str] = []
    patch.setattr(console, "put", lambda text, **_: shown.append(text))
    printer = OutputPrinter(places)
    for piece in pieces:
        printer.print("a", 1, piece)
    printer.finish()
    assert not left_in("".join(shown))
    return "".join(shown)

"""Nothing that a genuine agent tells of its tasks is ever refused: every state and event of it holds as a record."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.host import paths, processes
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import Because, fact, said
from dtctl.agent.records.run_state import HISTORY, Ending, Entry, Intent, State
from dtctl.agent.records.spec import Spec
from dtctl.agent.records.values import TaskState
from dtctl.agent.records.whole_run import Event
from dtctl.agent.run import policy
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise import keeper
from dtctl.agent.supervise.attempt import Attempt
from dtctl.agent.supervise.context import TaskContext
from dtctl.agent.supervise.observation import Observation
from dtctl.agent.supervise.task import Task
from tests.fuzz import cases, few
from tests.reasons import reason_of
from tests.unit.agent.supervise import supervised

ANY_TEXT = st.text(max_size=40) | st.sampled_from(["", "x" * 4096, "é" * 4096, "\0", "\x1b[2J", "\ud800", "\udcff" * 9])
LONG_TEXT = ANY_TEXT | st.integers(0, 3_000_000).map(lambda size: "x" * size)
EPOCHS = st.floats(0, 1e12) | st.integers(0, 10**12) | st.just(0)
ENDINGS = st.fixed_dictionaries(
    {},
    optional={
        "code": st.none() | st.integers(0, 255) | st.integers(-1000, 1000),
        "signal": st.none() | st.integers(1, 64) | st.integers(-70, 70),
        "fault": st.none() | st.just("unknown") | LONG_TEXT,
        "why": st.lists(st.fixed_dictionaries({"kind": st.just("said"), "text": LONG_TEXT}), max_size=20),
        "ended": st.none() | EPOCHS | st.floats(),
    },
)
LONG_FAULT = {"fault": "unknown", "why": [fact("said", text="x" * 4096)]}
FILES = st.none() | st.binary(max_size=40) | ENDINGS.map(lambda ending: json.dumps(ending).encode())
LINES = st.sampled_from(
    [
        b"step 999999999999999",
        b"ImportError: " + b"x" * 9000,
        b"\xff\xfe\r",
        b"global_step: 7",
        b"x" * 50_000,
        b"k\n" * 9000,
    ]
)
INTENTS = st.builds(
    lambda **fields: made(Intent, **fields),
    want=st.sampled_from(["run", "hold", "finish", "stop"]),
    generation=st.integers(1, 4) | st.just(2**53),
    version=st.integers(0, 2**53),
    restarts=st.integers(0, 2**53),
    grace_s=st.none() | st.floats(0, 1e9),
    why=st.text(max_size=4096).map(said),
    by=st.sampled_from(["", "coordinator", "ada@laptop"]),
)


@dataclass(frozen=True)
class Moment:
    """What an attempt that is begun then does, what is wanted, and how far the clocks go on."""

    intent: Intent
    start: dict[str, object] | bytes | None
    exit: bytes | None
    log: bytes
    command: bytes
    left: int
    passes_s: float
    wall: float


MOMENTS = st.builds(
    Moment,
    intent=INTENTS,
    start=st.none()
    | st.binary(max_size=20)
    | st.fixed_dictionaries({"started": EPOCHS, "pid": st.none() | st.integers(0, 2**33), "key": ANY_TEXT}),
    exit=FILES,
    log=LINES,
    command=st.binary(max_size=50) | st.just(b"/bin/x\0" * 300_000) | st.just(b"\xff" * 5000),
    left=st.sampled_from([0, 0, 0, 1, 1001]),
    passes_s=st.floats(0, 1e6),
    wall=EPOCHS,
)


class Teller:
    """A task, and everything that is reported of it. Its processes and its keepers are those of the moment."""

    def __init__(self, directory: str, spec: Spec) -> None:
        self.now = 100.0
        self.entry = made(Entry)
        self._directory = directory
        self._spec = spec
        self._begin()

    def _begin(self) -> None:
        around = TaskContext(
            RunFiles(self._directory), self._spec, {"PATH": "/bin"}, {"S": "k"}, self._changed, lambda _: None
        )
        self._task = Task(self._spec["tasks"][0], self.entry, around, self.now, 1.0)

    def pass_through(self, moment: Moment) -> None:
        with self._as_in(moment):
            self.now += moment.passes_s
            self._task.step(moment.intent, self.now, moment.wall)
            if moment.left == 1:
                self._begin()  # the supervisor was killed, and the next one adopts
        state = made(State, run="r", host="h1", tasks={"worker:0": self.entry})
        assert checked(State, json.loads(json.dumps(state)))["tasks"]["worker:0"] == self.entry
        assert len(self.entry["history"]) <= HISTORY

    @contextmanager
    def _as_in(self, moment: Moment) -> Iterator[None]:
        outlived = [processes.Process(pid, b"1 (x) D 1 1 1" + b" 0" * 40) for pid in range(1, moment.left + 1)]

        def launch(what: keeper.AttemptSpec) -> None:
            place = Path(what.directory)
            (place / "log").write_bytes(moment.log)
            if isinstance(moment.start, dict):
                paths.write_json(str(place / "start.json"), moment.start)
            elif moment.start is not None:
                (place / "start.json").write_bytes(moment.start)
            if moment.exit is not None:
                (place / "exit.json").write_bytes(moment.exit)

        with (
            mock.patch.object(keeper, "launch", launch),
            mock.patch.object(processes, "every", dict),
            mock.patch.object(processes, "_read_proc", lambda _, name: moment.command if name == "cmdline" else b""),
            mock.patch.object(Attempt, "left", return_value=outlived),
        ):
            yield

    def _changed(
        self, task: str, before: TaskState, after: TaskState, attempt: int, why: Because, **fields: Any
    ) -> None:
        known = {"time": 1.0, "task": task, "attempt": attempt, "from": before, "to": after, **why}
        event = {**known, "end": fields.get("end"), "asked": fields.get("asked", False)}
        assert checked(Event, json.loads(json.dumps(event))) == event


@few
@given(st.lists(MOMENTS, min_size=1, max_size=12), st.booleans(), st.integers(0, 3) | st.just(2**53))
def test_states_and_events_are_valid_records_for_any_trainer_behaviour(
    moments: list[Moment], own: bool, budget: int
) -> None:
    recovery = supervised.recovery(max_restarts=budget, backoff_min_s=0.0, backoff_max_s=1e9, retry=[2], permanent=[3])
    task = supervised.task("worker:0", own=own, argv=["x" * 100_000])
    with tempfile.TemporaryDirectory() as directory:
        teller = Teller(directory, supervised.spec(task, recovery=recovery))
        for moment in moments:
            teller.pass_through(moment)


NUMBERS = st.sampled_from([b"0", b"1", b"9" * 7, b"9" * 12, b"9" * 15, b"9" * 400]) | st.integers(0, 99).map(
    b"%d".__mod__
)
NAMED = st.builds(
    b"".join,
    st.lists(
        NUMBERS
        | st.binary(max_size=3)
        | st.sampled_from(
            [
                *(
                    b"epoch ",
                    b"Epoch: [",
                    b"][",
                    b"]",
                    b"/",
                    b" of ",
                    b"batch ",
                    b" 9%|##| ",
                    b"step ",
                    b"global_step=",
                    b" ",
                ),
                *(
                    b"total_steps=",
                    b"loss: ",
                    b"nan",
                    b"-1e",
                    b"0.",
                    b"global_step/sec: ",
                    b"saved checkpoint at step ",
                ),
                *(
                    b"step,loss\n",
                    b"| step | loss |\n",
                    b",",
                    b" | ",
                    b"\n",
                    b"\r",
                    b"UNAVAILABLE: ",
                    b"\x1b[1m",
                    b"\b",
                ),
            ]
        ),
        max_size=12,
    ),
)
POSITIONS = st.builds(
    lambda kind, numbers: kind % numbers,
    st.sampled_from(
        [
            *(
                b"Epoch: [%s/%s][%s/%s] loss: %s",
                b"Epoch %s/%s: 9%%|##| %s/%s loss %s",
                b"epoch %s of %s batch %s/%s loss %s",
            ),
            *(b"step %s/%s loss %s, %s %s", b"step,loss\n%s,%s\n%s,%s %s", b"saved checkpoint at step %s %s %s %s %s"),
        ]
    ),
    st.tuples(*[NUMBERS] * 5),
)


@cases
@given(st.lists(st.tuples(NAMED | POSITIONS, st.sampled_from([0.0, 1e-9, 0.5, 1e6])), min_size=1, max_size=6))
def test_what_is_observed_in_a_log_is_a_valid_record_for_any_bytes(pieces: list[tuple[bytes, float]]) -> None:
    """`pieces`: what is written, and the seconds until it is read."""
    task = supervised.task("worker:0")
    context = TaskContext(
        RunFiles("/run"), supervised.spec(task), {"PATH": "/bin"}, {}, lambda *_: None, lambda _: None
    )
    entry, now = made(Entry, state="running", ready=True), 1000.0
    with tempfile.TemporaryDirectory() as directory:
        observation = Observation(context, task, entry, Attempt(directory, now), now)
        for data, seconds in pieces:
            with (Path(directory) / "log").open("ab") as file:
                file.write(data + b"\n")
            now += seconds
            observation.sees_progress(now, 1.0)
            state = made(State, run="r", host="h1", tasks={"worker:0": entry})
            assert checked(State, json.loads(json.dumps(state)))["tasks"]["worker:0"] == entry


def moment(**fields: Any) -> Moment:
    """An attempt that fails at once, unless it is said what it does."""
    start = {"started": 1.0, "pid": 2**22, "start_time": 1, "boot_id": "of an earlier start of the machine"}
    usual: dict[str, Any] = {"intent": supervised.intent("run"), "start": start, "exit": b'{"code": 4}'}
    usual.update(log=b"", command=b"x", left=0, passes_s=100.0, wall=1.0)
    return Moment(**{**usual, **fields})


@pytest.fixture
def teller(tmp_path: Path) -> Teller:
    recovery = supervised.recovery(max_restarts=100, backoff_min_s=0.0, backoff_max_s=0.0)
    return Teller(str(tmp_path), supervised.spec(supervised.task("worker:0"), recovery=recovery))


def test_detail_after_the_longest_reason_is_truncated(teller: Teller) -> None:
    teller.entry["restarts"] = 100
    for _ in range(2):
        teller.pass_through(
            moment(exit=json.dumps({"fault": "unknown", "why": [fact("said", text="x" * 4096)]}).encode())
        )
    assert teller.entry["state"] == "failed"
    assert len(reason_of(teller.entry)) == 4096
    assert reason_of(teller.entry).endswith("x ...")


def test_leftover_processes_are_reported_up_to_the_record_limit(teller: Teller) -> None:
    command = b"/bin/x\0" * 300_000
    for _ in range(2):
        teller.pass_through(moment(exit=None, start=None, left=1001, passes_s=1.0, command=command))
    assert len(teller.entry["left"]) == 1000
    assert {len(left["command"]) for left in teller.entry["left"]} == {4096}


def test_last_attempts_are_reported_when_there_are_many(teller: Teller) -> None:
    for _ in range(140):
        teller.pass_through(moment())
    assert [past["attempt"] for past in teller.entry["history"]][-1] >= 60
    assert len(teller.entry["history"]) == HISTORY


@pytest.mark.parametrize("error", ["x" * 5000, "\ud800", "\0", "é" * 3_000_000], ids=["long", "lone", "nul", "longer"])
def test_exit_written_by_a_keeper_is_a_valid_record(tmp_path: Path, error: str) -> None:
    fault = keeper.Fault.decode(keeper.Fault([fact("said", text=error)], True).encode())
    keeper._record_exit(keeper.AttemptSpec(RunFiles(str(tmp_path)), str(tmp_path), ["x"], {}, "/"), 127 << 8, fault)
    attempt = Attempt(str(tmp_path), 0.0)
    attempt.update(1.0, 1.0)
    assert attempt.exit is not None
    assert attempt.exit["code"] == 127


def test_exit_written_by_a_supervisor_is_a_valid_record(tmp_path: Path) -> None:
    ending = policy.unknown_exit(1.0, "unknown", fact("exit_damaged", text="x" * 100_000))
    assert checked(Ending, ending) == ending


def test_start_of_a_command_of_any_length_is_a_valid_record(tmp_path: Path) -> None:
    argv = ["x" * 3_000_000, *["y"] * 30_000]
    launch = keeper.AttemptSpec(RunFiles(str(tmp_path)), str(tmp_path), argv, {}, "/")
    assert keeper._record_start(launch, os.getpid(), 1.0) is None
    start = Attempt(str(tmp_path), 0.0).start
    assert start is not None
    assert len(start["argv"]) == 1000

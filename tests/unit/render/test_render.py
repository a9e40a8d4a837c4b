"""The display of log lines, numbers, errors, and the tasks in `dtctl status`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.agent.records.run_state import Position
from dtctl.bundle.scanning import scan
from dtctl.errors import AgentError, ConfigError, DtctlError, Place, Problem, TransportError
from dtctl.model import TaskId, TaskState
from dtctl.operations.runs import ForeignRun, KnownRun, KnownRuns
from dtctl.operations.snapshot import CoordinatorUnreachable, Outcome, RunStatus, TaskStatus, Verdict
from dtctl.operations.up.result import UpResult
from dtctl.plan.run import plan_run
from dtctl.render.errors import note, show_error, show_host_errors
from dtctl.render.format import count, duration, iso_utc, size, summarize_hosts
from dtctl.render.logs import LogPrinter
from dtctl.render.roster import rows_of, tasks_table
from dtctl.render.starting import show_started, wheels_lines
from dtctl.render.status import position_of, show_runs, show_status, summary
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import log_lines
from dtctl.transport.fanout import SomeHostsFailed
from tests.unit.agent.coordinate.counting import executed
from tests.unit.clusters import cluster, job
from tests.unit.diagnosing import ended, facts, machine, running
from tests.unit.ended_logs import LOGS
from tests.unit.render.test_safe_output import run_status
from tests.unit.tasks import changed, checkpoint, checkpoint_directory, log_lines_of


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"unfinished", ["unfinished"]),
        (b" 10%\r 50%\r100%\n", ["100%"]),
        (b" 10%\r 50%\r", [" 50%"]),
        (b"windows\r\n", ["windows"]),
        (b"bad \xff\xfe utf-8 \xc3\xbc\n", ["bad \ufffd\ufffd utf-8 ü"]),
        (b"\n\n", ["", ""]),
        (b"", []),
    ],
)
def test_lines_are_left_as_a_terminal_would_leave_them(data: bytes, lines: list[str]) -> None:
    assert log_lines(data, color=False) == lines


def test_each_line_has_the_name_of_its_task_and_a_new_attempt_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = (TaskId("ps", 0), TaskId("worker", 0))
    printer = LogPrinter(tasks, prefix=True, timestamps=False)
    printer.print(log_lines_of("ps:0", b"a\nb\n"))
    printer.print(log_lines_of("worker:0", b"c\n"))
    printer.print(log_lines_of("ps:0", b"d\n", attempt=2))
    assert capsys.readouterr().out == (
        "ps:0     | a\nps:0     | b\nworker:0 | c\nps:0     | --- attempt 2 ---\nps:0     | d\n"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59, "59s"), (75, "1m15s"), (3600, "1h"), (3725, "1h2m"), (90000, "1d1h")]
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.5 kB"), (47_000_000, "47.0 MB")])
def test_a_size_is_short(number: int, text: str) -> None:
    assert size(number) == text


def test_nouns_are_counted() -> None:
    assert [count(1, "task"), count(2, "task"), count(2, "process")] == ["1 task", "2 tasks", "2 processes"]


def test_times_for_machines_are_in_utc() -> None:
    assert iso_utc(0.25) == "1970-01-01T00:00:00.250Z"


def test_an_error_shows_details_and_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(
        DtctlError("cannot log in to gpu-b", detail="offered ~/.ssh/id\nhost accepts publickey", hint="ssh gpu-b true")
    )
    assert capsys.readouterr().err == (
        "error: cannot log in to gpu-b\n       offered ~/.ssh/id\n"
        "       host accepts publickey\n hint: ssh gpu-b true\n"
    )


def test_hosts_with_the_same_error_are_one_entry(capsys: pytest.CaptureFixture[str]) -> None:
    alike = {f"gpu-{n}": TransportError("refused") for n in range(1, 5)}
    show_host_errors({**alike, "ps": AgentError("disk_full", "disk full", hint="df -h")})
    assert capsys.readouterr().err == "error: gpu-[1-4]: refused\nerror: ps: disk full\n hint: df -h\n"


def of_two_reasons() -> dict[str, DtctlError]:
    down = {
        f"gpu-{n}": TransportError(f"gpu-{n} is down", hint="is it up?", shared_summary="no answer") for n in (1, 2)
    }
    shut = {
        f"gpu-{n}": TransportError(f"gpu-{n} refuses", hint=f"ssh gpu-{n} true", shared_summary="the login is refused")
        for n in (3, 4)
    }
    return {**down, **shut}


def test_each_reason_is_a_line_with_its_command_if_that_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = of_two_reasons()
    show_host_errors(failed)
    show_error(SomeHostsFailed("push", failed, 9))
    assert capsys.readouterr().err.splitlines() == [
        "error: gpu-[1-2]: no answer    is it up?",
        "error: gpu-[3-4]: the login is refused    ssh gpu-3 true    and the same for the others",
        "error: cannot push on 4 of 9 hosts",
        "       gpu-[1-2]: no answer    is it up?",
        "       gpu-[3-4]: the login is refused    ssh gpu-3 true    and the same for the others",
    ], "what is no terminal has lines of any length"
    monkeypatch.setattr(console, "fits", lambda line: len(line) <= 60)
    show_host_errors(failed)
    show_error(SomeHostsFailed("push", failed, 9))
    assert capsys.readouterr().err.splitlines() == [
        "error: gpu-[1-2]: no answer    is it up?",
        "error: gpu-[3-4]: the login is refused",
        " hint: ssh gpu-3 true    and the same for the others",
        "error: cannot push on 4 of 9 hosts",
        "       gpu-[1-2]: no answer    is it up?",
        "       gpu-[3-4]: the login is refused",
        "         ssh gpu-3 true    and the same for the others",
    ]


def test_a_start_without_some_hosts_reports_them_by_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    workers = [f"gpu-{number}" for number in range(1, 6)]
    plan = plan_run(
        cluster(job("worker", workers, [2222] * 5)), {name: name for name in workers}, local_python="python"
    )
    down = {
        name: TransportError(f"{name} ({name}:22) does not answer", hint="is it up?", shared_summary="no answer")
        for name in workers[2:4]
    }
    full = AgentError("disk_full", "there is no room", hint="df -h", host="gpu-5")
    started = {
        TaskId("worker", number): TaskStatus(TaskId("worker", number), "", TaskState.RUNNING) for number in (0, 1)
    }
    show_started(UpResult("digits-1", started, (), absent={**down, "gpu-5": full}), plan)
    assert capsys.readouterr().err.splitlines() == [
        "run digits-1 started: 2 tasks on gpu-[1-2]",
        "warning: gpu-[3-4]: no answer    is it up?",
        "warning: gpu-5: there is no room",
        " hint of gpu-5: df -h",
        "warning: the run continues without gpu-[3-5]: worker:[2-4] are not started",
        " hint: dtctl up    adds missing hosts later, and changes nothing else",
    ]
    show_started(
        UpResult(
            "digits-1",
            {},
            (),
            joined={TaskId("worker", 2): TaskStatus(TaskId("worker", 2), "gpu-3", TaskState.RUNNING)},
        ),
        plan,
    )
    assert capsys.readouterr().err.splitlines() == [
        "run digits-1 is already running and has not changed",
        "gpu-3 has joined it: worker:2",
    ]


def test_hosts_that_have_all_wheels_are_not_said_to_be_sent_none(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}-1.0-py3-none-any.whl").write_bytes(b"12345")
    wheels = scan(tmp_path)
    assert list(wheels_lines({"gpu-1": 0, "gpu-2": 1}, wheels)) == [
        "gpu-1: 2 wheels (10 B) already there",
        "gpu-2: 1 of 2 wheels (10 B) sent",
    ]


def test_hint_of_a_host_is_not_shown_as_one_of_dtctl(capsys: pytest.CaptureFixture[str]) -> None:
    """`curl http://... | sh` in the place where dtctl shows the next command."""

    def refused(host: str) -> AgentError:
        return AgentError("internal", f"{host}: no", detail="a\n hint: b", hint="c\n hint: d", host=host)

    show_error(refused("gpu-1"))
    assert capsys.readouterr().err == (
        "error: gpu-1: no\n       a\n        hint: b\n hint of gpu-1: c\n        hint: d\n"
    )
    show_host_errors({host: refused(host) for host in ("gpu-1", "gpu-2")})
    assert " hint of gpu-[1-2]: c\n" in capsys.readouterr().err
    show_error(SomeHostsFailed("start", {host: refused(host) for host in ("gpu-1", "gpu-2")}, 2))
    assert capsys.readouterr().err.endswith("\n hint: gpu-[1-2] says: c hint: d\n")
    show_error(CoordinatorUnreachable("gpu-1", refused("gpu-1")))
    assert capsys.readouterr().err.endswith("\n hint: gpu-1 says: c hint: d\n")


def test_a_mistake_is_shown_in_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("name: x\nhosst: {}\n")
    problem = Problem(Place(str(file), 2, 1), "hosst is not a key here", "did you mean 'hosts'?")
    show_error(ConfigError([problem]))
    assert capsys.readouterr().err == (
        f"{file}:2:1: hosst is not a key here\n    hosst: {{}}\n    ^\n    hint: did you mean 'hosts'?\n"
        f"error: 1 problem in {file}\n"
    )


def test_markup_in_users_text_is_only_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(DtctlError("no [bold]such[/bold] :smile: thing"))
    assert capsys.readouterr().err == "error: no [bold]such[/bold] :smile: thing\n"


@pytest.mark.parametrize("columns", ["60", "200"])
def test_a_table_that_is_piped_is_never_cut(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    host = "a-host-with-quite-a-long-name-in-the-inventory-of-us"
    run = KnownRun(f"run-on-{host}", "c", 0.0, True, (host,), {TaskId("worker", 0): TaskState.RUNNING})
    show_runs(KnownRuns((run,), (), {}, (ForeignRun("letters-1", "bob", ("gpu-1", "gpu-2")),)))
    _, line, foreign = capsys.readouterr().out.splitlines()
    assert line.split()[0] == f"run-on-{host}"
    assert line.split()[-3:] == [host, "1", "running"]
    assert foreign.split() == ["letters-1", "live", "account", "bob", "gpu-[1-2]"]


def test_hosts_are_named_if_the_folded_names_are_short() -> None:
    assert summarize_hosts([f"gpu-{number}" for number in range(1, 301)]) == "gpu-[1-300]"
    assert summarize_hosts([f"gpu-{number}" for number in range(1, 301) if number % 10]) == "270 hosts"


RUNS = Verdict(Outcome.RUNNING, (fact("tasks_run", count=4, of=4),))
STEPS: dict[str, Any] = {"step": 3250, "step_time": 99.0, "rate": 61.0, "loss": "0.041"}


def status(verdict: Verdict = RUNS, now: float = 100.0, **fields: Any) -> RunStatus:
    found = run_status()
    record = dataclasses.replace(found.record, created=18.0, target_step=20000)
    tasks = {
        name: changed(task, state=TaskState.RUNNING, **{"step": None, **fields}) for name, task in found.tasks.items()
    }
    return dataclasses.replace(found, record=record, tasks=tasks, verdict=verdict, checkpoints=(), time=now)


def saved_at(step: int, time: float, found: RunStatus) -> RunStatus:
    (place,) = run_status().checkpoints
    newest = checkpoint("model-7", step, time=time)
    return dataclasses.replace(found, checkpoints=(checkpoint_directory(place.host, "/dir", newest),))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (status(), " 1m22s · 4 of 4 tasks run"),
        (status(**STEPS), " 1m22s · step 3250/20000 · 61 steps/s · done in 4m34s · loss 0.041"),
        (
            saved_at(3300, 99.5, status(**STEPS)),
            " 1m22s · step 3300/20000 · 61 steps/s · done in 4m33s · loss 0.041 · checkpoint 0s ago",
        ),
        (
            saved_at(3300, 98.5, status(**STEPS)),
            " 1m22s · step 3250/20000 · 61 steps/s · done in 4m34s · loss 0.041 · checkpoint 1s ago",
        ),
        (status(now=200.0, **STEPS), " 3m2s · step 3250/20000 · last step 1m41s ago · loss 0.041"),
        (
            status(Verdict(Outcome.SUCCEEDED, (fact("workers_finished"),)), **STEPS),
            " · every worker finished · step 3250/20000 · loss 0.041",
        ),
        (
            status(Verdict(Outcome.RESTARTING, (fact("exited", code=1),)), **{**STEPS, "rate": None}),
            " · exit code 1 · 1m22s since the start · step 3250/20000 · loss 0.041",
        ),
    ],
    ids=["without steps", "training", "saved since", "saved before", "silent", "done", "restarting"],
)
def test_the_summary_is_one_line(found: RunStatus, expected: str) -> None:
    assert str(summary(found)) == f"{found.record.run}: {found.verdict.outcome.value}{expected}"


def workers(number: int) -> list[TaskStatus]:
    return [
        running(
            f"worker:{n}", f"gpu-{n // 2}", step=3250 + n % 12, step_time=999.0, rate=61.0, cpu=1.9, memory_bytes=10**9
        )
        for n in range(number)
    ]


def of(*tasks: TaskStatus) -> RunStatus:
    return facts(*tasks).status


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A terminal of 120 columns and 30 lines."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setenv("TERM", "xterm")
    console.choose_color("always")
    monkeypatch.setenv("NO_COLOR", "1")
    yield monkeypatch
    console.choose_color("auto")


def shown(capsys: pytest.CaptureFixture[str], status: RunStatus, *, every: bool = False) -> list[str]:
    show_status(status, every=every)
    return capsys.readouterr().out.splitlines()


BAD = ended("worker:7", LOGS["argparse"], "gpu-3", code=2)


def two_hundred() -> list[TaskStatus]:
    tasks = workers(200)
    tasks[7] = BAD
    tasks[90] = changed(tasks[90], rate=11.0)
    return tasks


def test_200_tasks_fit_on_30_lines(screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, of(*two_hundred()))
    assert len(lines) <= 30
    rows = [line.split() for line in lines if line.startswith("worker:")]
    assert [row[:3] for row in rows] == [
        ["worker:7", "gpu-3", "failed"],
        ["worker:90", "gpu-45", "running"],
        ["worker:[0-6,8-89,91-199]", "gpu-[0-99]", "running"],
    ]
    assert "3250..3261" in rows[2]
    assert "61/s" in rows[2]
    assert lines[1].startswith("problem: worker:7 on gpu-3 exited 2 at ")
    assert "straggler: its peers make 61/s" in " ".join(rows[1])


def test_rows_of_four_times_as_many_tasks_are_four_times_as_much_work() -> None:
    few, many = of(*workers(50)), of(*workers(200))
    assert executed(lambda: rows_of(many)) <= 4.2 * executed(lambda: rows_of(few))


def test_a_pipe_and_all_show_every_task(screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status = of(*two_hundred())
    assert sum(line.startswith("worker:") for line in shown(capsys, status, every=True)) == 200
    console.choose_color("auto")
    assert sum(line.startswith("worker:") for line in shown(capsys, status)) == 200


def test_tasks_that_fit_are_not_folded() -> None:
    status = of(*workers(10))
    assert [len(row.tasks) for row in rows_of(status, 10)] == [1] * 10
    assert [len(row.tasks) for row in rows_of(status, 9)] == [10]


def test_tasks_that_failed_in_different_ways_are_not_folded() -> None:
    tasks = workers(20)
    tasks[3], tasks[4] = ended("worker:3", LOGS["argparse"], code=2), ended("worker:4", "MemoryError\n")
    tasks[5] = ended("worker:5", LOGS["argparse"], code=2)
    rows = rows_of(of(*tasks), 10)
    assert [[str(task.id) for task in row.tasks] for row in rows[:2]] == [["worker:3", "worker:5"], ["worker:4"]]
    assert len(rows) == 3


@pytest.mark.parametrize("width", [120, 80, 60, 44])
def test_a_narrow_terminal_drops_columns_but_no_reason(
    screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    screen.setenv("COLUMNS", str(width))
    lines = shown(capsys, of(BAD, *workers(3)))
    assert all(len(line) <= width for line in lines if not line.startswith(("problem", " ")))
    text = " ".join(" ".join(lines).split())
    assert all(word in text for word in ("exit code 2", "unrecognized", "--step_s=0.2", "failed", "worker:7"))
    head = next(line for line in lines if line.startswith("TASK")).split()
    assert {"TASK", "STATE", "NOTE"} <= set(head)
    assert ("PID" in head) == (width == 120)


def test_empty_columns_are_left_out() -> None:
    status = of(running("ps:0", progress=None))
    names = tasks_table(rows_of(status), status).names
    assert not {"STEP", "RATE", "OUTPUT", "CPU", "MEMORY"} & set(names)


@pytest.mark.parametrize(
    ("task", "note"),
    [
        (running("worker:0", step=10, step_time=960.0), "last step 40s ago"),
        (running("worker:0", step=10, step_time=990.0), ""),
        (dataclasses.replace(running("worker:0", step=10, step_time=900.0), state=TaskState.PENDING), ""),
    ],
)
def test_a_task_without_a_new_step_shows_the_age_of_the_last_one(task: TaskStatus, note: str) -> None:
    assert rows_of(of(task))[0].note == note


def test_the_problem_is_shown_above_the_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, of(BAD, *workers(2)))
    assert lines[1].startswith("problem: worker:7 on gpu-3 exited 2 at ")
    assert lines[1].endswith(": unrecognized arguments: --step_s=0.2")
    assert lines[3] == "  dtctl plan worker:7    shows the command line"
    assert lines[5].startswith("TASK")


def test_load_on_most_hosts_is_not_reported() -> None:
    status = facts(*workers(4), machines={"gpu-0": machine(load=40.0), "gpu-1": machine(load=40.0)}).status
    assert [row.note for row in rows_of(status)] == [""] * 4


def test_a_note_that_is_wider_than_the_terminal_is_broken_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "on_terminal", lambda **_: True)
    for name, value in (("COLUMNS", "80"), ("FORCE_COLOR", "1"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    note(f"gpu-1: added crontab entries {'that restart the agent ' * 4}after a reboot", "dtctl status")
    assert [len(line) <= 80 for line in capsys.readouterr().err.splitlines()] == [True, True, True]


@pytest.mark.parametrize(
    ("epoch", "epochs", "batch", "batches", "text"),
    [
        (4, None, 710, 1251, "epoch 4, 710/1251"),
        (4, 90, 710, 1251, "epoch 4/90, 710/1251"),
        (None, None, 710, 1251, "710/1251"),
        (4, None, 710, None, "epoch 4, batch 710"),
        (4, 90, None, None, "epoch 4/90"),
    ],
)
def test_a_position_shows_what_is_known_of_it(
    epoch: int | None, epochs: int | None, batch: int | None, batches: int | None, text: str
) -> None:
    known: Position = {"epoch": epoch, "epochs": epochs, "batch": batch, "batches": batches, "first_epoch": 1}
    assert position_of(known) == text

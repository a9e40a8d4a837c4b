"""`profile`: which hosts are asked, which lines are the user's, and what is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.profile.records import Profile
from dtctl.errors import TransportError
from dtctl.model import TaskId
from dtctl.rooms.profile.document import profiles as as_document
from dtctl.rooms.profile.operation import Profiled, Profiles, profile
from dtctl.rooms.profile.screen import show_profiles
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport

TREE = "/home/ada/.dtctl/work/digits/tree/"
LIBRARY = "/home/ada/venv/lib/python3.11/site-packages/tensorflow/python/client/session.py"
SESSION = "2026_11_30_13_49_09"
FILE = {"path": f"/out/plugins/profile/{SESSION}/a_worker-0.xplane.pb", "size_bytes": 4_400_000}


def call(function: str, file: str, line: int | None = 7) -> dict[str, Any]:
    return {"function": function, "file": file, "line": line}


def stack(samples: int, *frames: dict[str, Any], omitted: int = 0) -> dict[str, Any]:
    return {"samples": samples, "frames": [*frames], "omitted": omitted}


MAIN = call("<module>", TREE + "train.py", 60)
READS = call("read_batch", TREE + "data/input.py", 31)
TRAINS = call("train", TREE + "train.py", 44)
STACKS = [
    stack(22, call("read", "/usr/lib/python3.11/gzip.py", 300), READS, TRAINS, MAIN),
    stack(10, call("run", LIBRARY, 977), call("run", LIBRARY, 12), TRAINS, MAIN),
    stack(8, READS, TRAINS, MAIN),
]
SAMPLED: dict[str, Any] = {
    "pid": 77,
    "command": "/opt/venv/bin/python train.py",
    "way": "faulthandler",
    "sampled_s": 10.0,
}


def profiled(task: str = "worker:0", host: str = "a", **fields: Any) -> Profiled:
    answer = made(Profile, task=task, attempt=1, state="running", **fields)
    return Profiled(TaskId.parse(task), host, answer)


def shown(capsys: pytest.CaptureFixture[str], *tasks: Profiled) -> tuple[str, str]:
    show_profiles(Profiles("digits-1", 10, SESSION, tasks))
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_samples_count_for_the_innermost_line_of_the_users_own_code() -> None:
    one = profiled(**SAMPLED, samples=48, stacks=STACKS)
    assert [(place.frame["function"], place.samples) for place in one.places] == [("read_batch", 30), ("train", 10)]


def test_a_stack_of_libraries_alone_counts_for_its_innermost_line() -> None:
    one = profiled(**SAMPLED, samples=3, stacks=[stack(3, call("wait", "/usr/lib/python3.11/threading.py", 327))])
    assert [place.frame["function"] for place in one.places] == ["wait"]


def test_the_screen_has_the_shares_the_stack_and_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(capsys, profiled(**SAMPLED, samples=50, stacks=STACKS, file=FILE))
    assert out.splitlines() == [
        "worker:0 on a, attempt 1, running",
        "  50 samples of its main thread in 10 s (by faulthandler):",
        "     60 %  data/input.py:31 in read_batch",
        "     20 %  train.py:44 in train",
        "     20 %  elsewhere",
        "  the most frequent stack (44 %), the innermost call first:",
        "    read (gzip.py:300)",
        "    read_batch (data/input.py:31)",
        "    train (train.py:44)",
        "    <module> (train.py:60)",
        "  TensorFlow's profile of 10 s, 4.4 MB:",
        f"    a:{FILE['path']}",
    ]
    assert "dtctl exec worker:0 -- /opt/venv/bin/python -m pip install tensorboard-plugin-profile" in err
    assert "  dtctl tensorboard\n" in err


def test_rows_of_library_calls_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    frames = [call("_run", LIBRARY, 1), call("run", LIBRARY, 2), call("call", LIBRARY, 3), TRAINS, MAIN]
    out, _ = shown(capsys, profiled(**SAMPLED, samples=4, stacks=[stack(4, *frames)]))
    assert out.splitlines()[4:] == [
        "    _run (session.py:1)",
        "    [... 2 frames of tensorflow]",
        "    train (train.py:44)",
        "    <module> (train.py:60)",
    ]


def test_a_deep_stack_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    calls = [call(f"f{number}", TREE + "train.py", number) for number in range(40)]
    out, _ = shown(capsys, profiled(**SAMPLED, samples=4, stacks=[stack(4, *calls)]))
    assert out.splitlines()[-2:] == ["    f11 (train.py:11)", "    ... and calls outside of these"]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "worker:0 on a, attempt 1, running: no process of it is there"),
        ({"missing": "not_python"}, "  no Python stacks: it is no Python program"),
        ({"missing": "young", "pid": 7}, "  no Python stacks: it began just now, or is about to run another program"),
        (
            {"missing": "not_python", "no_file": "failed", "file_said": "ImportError: no"},
            "  no profile of TensorFlow's: the program that requests it has failed: ImportError: no",
        ),
        (
            {"missing": "not_python", "no_file": "contained"},
            "  no profile of TensorFlow's: the trainer runs in a container",
        ),
    ],
)
def test_what_is_lacking_is_said(fields: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = shown(capsys, profiled(**fields))
    assert out.splitlines()[-1] == line


def test_a_program_without_tensorflow_is_not_said_to_lack_its_profile(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(capsys, profiled(**SAMPLED, samples=40, stacks=STACKS, no_file="no_tensorflow"))
    assert "TensorFlow" not in out + err


def test_py_spy_is_named_where_it_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert "pip install py-spy" in shown(capsys, profiled(pid=7, missing="replaced"))[1]


def test_a_command_that_is_no_python_is_not_typed(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("$(reboot) train.py", "/bin/python;reboot", ""):
        _, err = shown(capsys, profiled(**{**SAMPLED, "command": command}, file=FILE))
        assert "dtctl exec worker:0 -- python -m pip" in err


def test_every_line_fits_eighty_columns_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("COLUMNS", "80"), ("FORCE_COLOR", "1"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    long = call("a_function_with_a_long_name" * 3, TREE + "a/deep/package/of/the/user/" * 2 + "module.py", 12345)
    tasks = (
        profiled(**SAMPLED, samples=50, stacks=[stack(40, long, TRAINS, MAIN)], file=FILE),
        profiled("worker:1", "b", pid=7, missing="no_handler", no_file="no_port"),
    )
    out, _ = shown(capsys, *tasks)
    assert all(len(line) <= 80 for line in out.splitlines() if " " in line.strip()), out


def test_the_document_has_everything() -> None:
    found = as_document(Profiles("digits-1", 10, SESSION, (profiled(**SAMPLED, samples=50, stacks=STACKS, file=FILE),)))
    assert (found["run"], found["seconds"], found["session"]) == ("digits-1", 10, SESSION)
    (task,) = found["tasks"]
    assert (task["task"], task["host"], task["stacksBy"], task["samples"]) == ("worker:0", "a", "faulthandler", 50)
    assert task["places"][0] == {"samples": 30, "function": "read_batch", "file": READS["file"], "line": 31}
    assert [one["samples"] for one in task["stacks"]] == [22, 10, 8]
    assert task["file"] == {"path": FILE["path"], "sizeBytes": 4_400_000}
    assert (task["noFile"], task["missing"]) == (None, None)


def _says(**fields: Any) -> Any:
    def says(session: FakeSession, asked: Mapping[str, Any]) -> list[Any]:
        if asked["type"] != "profile":
            return []
        frames = []
        for task in asked["tasks"]:
            path = f"/out/plugins/profile/{asked['session']}/{session.host.name}.xplane.pb"
            file = {"path": path, "size_bytes": 7}
            frames.append({"type": "profile", "task": task, "attempt": 1, "state": "running", "file": file, **fields})
        began = {"type": "profiling", "tasks": list(asked["tasks"])}
        return [began, *frames, {"type": "result", "run": "digits-1"}]

    return says


def test_only_the_hosts_of_the_named_tasks_are_asked() -> None:
    run = record()
    tasks = [TaskId("worker", 0), TaskId("worker", 1)]
    transport = FakeTransport(_says())
    found = profile(run, transport, tasks, 5)
    assert [one.task for one in found.tasks] == tasks
    assert set(transport.opened) == {run.roster[task] for task in tasks}
    assert (found.run, found.errors, found.has_any) == ("digits-1", {}, True)


def test_a_host_that_is_away_is_an_error_and_the_others_answer() -> None:
    run = record()
    tasks = list(run.roster)
    gone = run.roster[tasks[0]]
    found = profile(run, FakeTransport(_says(), {gone: TransportError("away")}), tasks, 5)
    assert list(found.errors) == [gone]
    assert {one.host for one in found.tasks} == set(run.roster.values()) - {gone}


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "ps:77"},
        {"file": {"path": "/etc/passwd", "size_bytes": 7}},
        {"file": {"path": f"/out/{SESSION}/x.xplane.pb", "size_bytes": 7}},
        {"samples": 1, "stacks": [stack(2, MAIN)], "way": "py-spy"},
        {"samples": 1},
    ],
)
def test_what_a_host_makes_up_is_refused(fields: dict[str, Any]) -> None:
    run = record()
    task = TaskId("worker", 0)
    found = profile(run, FakeTransport(_says(**fields)), [task], 5)
    assert found.tasks == ()
    assert "sent an invalid `profile`" in str(found.errors[run.roster[task]])
    assert not found.has_any

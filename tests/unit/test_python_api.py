"""`import dtctl`: what it offers, what it takes, and what it says of a value that it cannot use."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dtctl
from dtctl import api, errors
from dtctl.api.run import _check
from dtctl.errors import AgentError, ConfigError, DtctlError, ExitCode, Place, Problem, TransportError
from dtctl.model import TaskId
from dtctl.operations.stop import StopResult, Survivor
from tests.unit.test_shown_passwords import PASSWORDS, written

ROOT = Path(__file__).resolve().parents[2]


def test_every_name_is_there_and_no_other() -> None:
    assert {name: getattr(dtctl, name) for name in dtctl.__all__}.keys() <= set(dir(dtctl))
    offered = {name for name, value in vars(api).items() if not (name.startswith("_") or inspect.ismodule(value))}
    assert offered | {"errors"} == set(dtctl.__all__)
    assert dtctl.__all__ == sorted(dtctl.__all__)
    with pytest.raises(AttributeError, match="module 'dtctl' has no attribute 'start'"):
        dtctl.start  # noqa: B018


def test_import_dtctl_imports_nothing_else() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); old = {*sys.modules}; import dtctl; print(*{*sys.modules} - old)"
    )
    command = [sys.executable, "-IS", "-c", script, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["dtctl"]


FILE = """\
name: demo
hosts: {gpu-1: 10.0.0.1}
jobs: {worker: {hosts: gpu-1}}
trainer: {command: [python, train.py], args: {rate: 0.1}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_text(FILE)
    return tmp_path / "cluster.yaml"


@pytest.mark.parametrize(
    ("path", "value", "given"),
    [
        ("trainer.args.rate", 0.5, ("--rate=0.5",)),
        ("trainer.args.rate", 1e-05, ("--rate=1e-05",)),
        ("trainer.args.name", "no", ("--rate=0.1", "--name=no")),
        ("trainer.args", {"out": Path("/tmp/é"), "sizes": [1, 2]}, ("--out=/tmp/é", "--sizes=1,2")),
        ("trainer.args.fast", True, ("--rate=0.1", "--fast")),
    ],
)
def test_overrides_have_the_values_of_python(file: Path, path: str, value: Any, given: tuple[str, ...]) -> None:
    args = dtctl.load(file, {path: value}).checked.cluster.jobs["worker"].launch.args
    assert args == given


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_an_override_that_no_file_can_hold_is_refused(file: Path, value: Any) -> None:
    with pytest.raises(errors.UsageError, match=r"the override of trainer\.args\.rate is .*, which no cluster file"):
        dtctl.load(file, {"trainer.args.rate": value})


def test_a_file_that_is_loaded_can_be_reviewed_again(file: Path) -> None:
    """What a review finds stays with it: a secret that is set afterwards is no mistake any more."""
    (file.parent / "train.py").touch()
    file.write_text(FILE + "ssh: {identity_file: /none}\n")
    cluster = dtctl.load(file)
    from dtctl.api.starting import _reviewed

    config = cluster.checked.cluster
    once, again = (_reviewed(cluster, config, local=True, force=False) for _ in range(2))
    assert once == again


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DtctlError("it is down", detail="tried 22", hint="start it"), "it is down\ntried 22\nstart it"),
        (DtctlError("\x1b[2J\u202eon"), "\\x1b[2J\\u202eon"),
        (AgentError("locked", "is locked", hint="rm -rf /", host="gpu-1"), "is locked\ngpu-1 says: rm -rf /"),
        (
            ConfigError([Problem(Place("c.yaml", 4, 1), "no key", "did you mean 'a'?"), Problem(Place("c.yaml"), "x")]),
            "2 problems in c.yaml\nc.yaml: x\nc.yaml:4:1: no key (did you mean 'a'?)",
        ),
    ],
)
def test_an_error_as_text_says_all_and_moves_no_cursor(error: DtctlError, text: str) -> None:
    assert str(error) == text


WORKER = TaskId("worker", 0)


@pytest.mark.parametrize(
    ("result", "code", "said"),
    [
        (
            StopResult((WORKER,), survivors=(Survivor("worker:0", "a", 7, "python"),)),
            ExitCode.SURVIVORS,
            "process 7 is",
        ),
        (StopResult((WORKER,), errors={"b": TransportError("b is down")}), ExitCode.PARTIAL, "b: b is down"),
        (StopResult(errors={"b": TransportError("b is down")}), ExitCode.UNREACHABLE, "0 tasks stopped"),
    ],
)
def test_what_was_not_stopped_is_an_error_with_the_commands_exit_code(
    result: StopResult, code: ExitCode, said: str
) -> None:
    with pytest.raises(DtctlError, match=said) as raised:
        _check(result)
    assert raised.value.exit_code is code
    _check(StopResult((WORKER,)))


def test_a_plan_shows_no_password_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written("ssh: 127.0.0.1")
    assert [one for one in PASSWORDS if one in repr(dtctl.load("cluster.yaml").plan())] == []

"""What dtctl writes goes through one module; and no stream, however poor or short-lived, makes it raise."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.agent.poisons import left_in
from tests.unit.test_structure import MODULES, PACKAGE

ELSEWHERE = ("agent", "trainer.py")
"""They run on the hosts, and what they write comes through a seam."""
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
WRITERS = {"print", "echo", "secho", "confirm", "prompt", "StreamHandler"}


def writes_in(path: Path) -> set[str]:
    """Names by which the module could reach a screen."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in STREAMS and ast.unparse(node.value) == "sys":
            found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and node.module == "sys":
            found |= {alias.name for alias in node.names} & STREAMS
        elif isinstance(node, ast.Call):
            called, _, name = ast.unparse(node.func).rpartition(".")
            if name in WRITERS and called in ("", "typer", "click", "logging", "builtins"):
                found.add(ast.unparse(node.func))
    return found


def test_only_the_console_touches_the_streams_and_the_line_that_stays_below() -> None:
    paths = [path for path in MODULES.values() if path.relative_to(PACKAGE).parts[0] not in ELSEWHERE]
    writers = {str(path.relative_to(PACKAGE)): writes_in(path) for path in paths if writes_in(path)}
    assert set(writers) == {"render/terminal/console.py", "render/terminal/moving.py"}, writers


def test_only_the_safe_console_makes_text_of_rich() -> None:
    makers = {
        str(path.relative_to(PACKAGE))
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[0] in ("Text", "Console", "TextColumn")
    }
    assert makers == {"render/terminal/rich_console.py"}


def test_text_that_counts_as_safe_comes_from_few_places() -> None:
    users = {str(path.relative_to(PACKAGE)) for path in MODULES.values() if "console.put(" in path.read_text()}
    assert users == {
        *("render/logs.py", "render/machine/document.py", "render/metrics.py"),
        "render/report/page.py",
        "cli/completion.py",  # words that it has looked at
    }
    users = {str(path.relative_to(PACKAGE)) for path in MODULES.values() if "console.pass_on(" in path.read_text()}
    assert users == {"render/logs.py"}


CLUSTER = """\
name: digits
hosts:
  a: {address: 127.0.0.1}
jobs:
  worker: {hosts: [a]}
trainer:
  command: [python, train.py, "größer \\u202e \\e]0;pwned\\a"]
  setup: "echo ü\\n\\e[2J"
  env: {MARK: "–\\u009b2J"}
"""
POOR = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"LC_ALL": "POSIX"},
]


def known_to(project: Path, **env: str) -> dict[str, str]:
    """The environment of a user whose home is not the project."""
    return {"PATH": os.environ["PATH"], "HOME": str(project.parent), "PYTHONPATH": str(PACKAGE.parent), **env}


def dtctl(*words: str | bytes, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "dtctl", *words]
    return subprocess.run(
        argv, cwd=cwd, env=known_to(cwd, **env), capture_output=True, stdin=subprocess.DEVNULL, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    (made / "train.py").touch()
    return made


@pytest.mark.parametrize("env", POOR, ids=str)
@pytest.mark.parametrize("words", [["plan"], ["--color", "always", "plan"]], ids=" ".join)
def test_a_stream_that_cannot_show_a_character_shows_a_mark(
    words: list[str], env: dict[str, str], project: Path
) -> None:
    done = dtctl(*words, cwd=project, **env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not left_in(done.stdout.decode("latin-1" if "latin-1" in env.values() else "utf-8"))
    assert rb"\u202e" in done.stdout


@pytest.mark.parametrize("env", POOR, ids=str)
@pytest.mark.parametrize(
    "words", [[b"n\xff\xc3\xbc"], [b"--n\xff=\xc3\xbc"], [b"logs", b"w\xff\xe2\x80\xae:0"]], ids=str
)
def test_a_command_line_that_cannot_be_shown_is_a_usage_error(
    words: list[bytes], env: dict[str, str], project: Path
) -> None:
    done = dtctl(*words, cwd=project, **env)
    assert done.returncode == 2, done
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["schema"], ["plan"], ["plan", "-o", "json"], ["--version"]], ids=" ".join)
def test_a_reader_that_goes_away_ends_the_command_quietly(words: list[str], project: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "dtctl", *words]
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            argv, cwd=project, env=known_to(project), stdout=gone, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_work_goes_on_when_nobody_reads_what_is_told_of_it(project: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "dtctl", "init", "--template", "hello", "made"]
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(argv, cwd=project, env=known_to(project), stderr=gone, check=False)
    assert done.returncode == 0
    assert (project / "made" / "cluster.yaml").is_file()


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_stream_that_was_closed_at_the_start_is_no_mistake(closed: str, project: Path) -> None:
    script = f'exec "{sys.executable}" -m dtctl plan {closed}>&-'
    done = subprocess.run(["sh", "-c", script], cwd=project, env=known_to(project), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")

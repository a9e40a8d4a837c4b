"""A cloned directory starts no program here and writes nothing outside of itself, whatever is typed in it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from dtctl.cli.app import app
from tests.desk import Desk, desk
from tests.hostile import cloned
from tests.hostile.bench import COLOURS, CONTROLS
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.xdist_group("a cloned directory")
"""One directory, in which everything is typed."""

SAYS_YES = {"allow": "by it a user says yes", "up --local": "the command line says what is to run here"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk(tmp_path_factory.mktemp("cloned") / "home", elsewhere=lambda: False) as made:
        cloned.furnish(made)
        cloned.benign(made)
        made.dtctl("up", "-q")
        made.dtctl("wait")
        cloned.plant(made)
        yield made


def test_every_command_is_typed_in_the_directory() -> None:
    named = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    typed = {words.split()[0] for words in (*cloned.COMMANDS, *SAYS_YES)}
    assert typed == named


@pytest.mark.parametrize("words", cloned.COMMANDS)
def test_nothing_of_the_directory_runs_and_nothing_outside_of_it_changes(home: Desk, words: str) -> None:
    before = cloned.snapshot(home.home)
    shown = typed(home, words)
    assert cloned.snapshot(home.home) == before
    assert "Traceback" not in shown or "/dtctl/cli/" not in shown  # TensorBoard may show one of its own
    assert not CONTROLS.search(COLOURS.sub("", shown))
    if words == "push":
        assert not [file for file in (home.home / ".dtctl").rglob("*") if holds_secret(file)]


def typed(home: Desk, words: str) -> str:
    """What the command shows. One without an end is interrupted when it has shown something."""
    if words not in cloned.ENDLESS:
        done = home.run(*words.split())
        return done.stdout + done.stderr
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("dtctl")), *words.split()],  # `python -m` imports from this directory
        cwd=home.project,
        env={name: value for name, value in home.env.items() if name != "PYTHONWARNINGS"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    return first + process.communicate(timeout=PATIENCE_S)[0]


def holds_secret(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and cloned.SECRET.encode() in file.read_bytes()


@pytest.mark.parametrize("way", cloned.WAYS_TO_A_PYTHON)
def test_check_starts_no_python_that_the_file_has_chosen(home: Desk, way: str) -> None:
    cloned.write_file(home, way)
    before = cloned.snapshot(home.home)
    done = home.run("check", "--deep")
    assert cloned.snapshot(home.home) == before, done.stdout + done.stderr
    assert "trap checked in" in done.stdout
    if way != "by its variables":
        assert "you have not allowed it" in done.stdout
        assert "dtctl allow    shows what cluster.yaml would start here" in done.stdout


def test_a_refusal_names_the_programs_and_the_command_that_allows_them(home: Desk) -> None:
    cloned.write_file(home, "of the host")
    done = home.run("up")
    assert done.returncode == 5
    assert "python: ~/project/python" in done.stderr
    assert f": > {home.home}/ran/setup" in done.stderr
    assert f"dtctl allow {home.project}/cluster.yaml" in done.stderr


def test_a_hook_that_is_not_allowed_is_named_in_one_line_and_runs_when_it_is(tmp_path: Path) -> None:
    with desk(tmp_path / "home", elsewhere=lambda: False) as made:
        cloned.furnish(made)
        cloned.benign(made)
        file = made.project / "cluster.yaml"
        file.write_text(f"{cloned.BENIGN}hooks: {{script: {{run: [./notify.sh], on: [succeeded]}}}}\n")
        script = made.project / "notify.sh"
        script.write_text("#!/bin/sh\ntouch ~/ran/hook\n")
        script.chmod(0o755)
        made.dtctl("up", "-q")
        line = f"hook script will not run here, as you have not allowed it: dtctl allow {file}"
        for words in ("wait", "logs -f", "up -f"):
            done = made.run(*words.split())
            assert done.stderr.count(line) == 1
        assert not (made.home / "ran/hook").exists()
        assert "hook script: ./notify.sh" in made.run("allow").stderr
        made.dtctl("wait")
        eventually((made.home / "ran/hook").exists, what="the hook to run")
        (made.home / "ran/hook").unlink()
        script.write_text("#!/bin/sh\ntouch ~/ran/other\n")  # what a `git pull` may bring
        assert "hook script will not run here" in made.run("wait").stderr
        assert not (made.home / "ran/other").exists()

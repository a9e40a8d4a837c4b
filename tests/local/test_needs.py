"""A Python that cannot run the trainer is told before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.desk import Desk

FILE = """\
name: demo
hosts: {{node-1: }}
jobs: {{worker: {{hosts: node-1}}}}
trainer: {{command: [python, train.py], dialect: none{more}}}
"""


def write(home: Desk, text: str, more: str = "") -> None:
    (home.project / "cluster.yaml").write_text(FILE.format(more=more))
    (home.project / "train.py").write_text(text)


@pytest.mark.parametrize("command", ["[python, train.py]", "[python, -u, train.py]"])
def test_missing_modules_are_named_with_the_command_that_installs_them(home: Desk, command: str) -> None:
    write(home, "import json\nimport no_such_thing\nimport yaml\n")
    file = home.project / "cluster.yaml"
    file.write_text(file.read_text().replace("[python, train.py]", command))
    done = home.run("up", "--local")
    assert done.returncode == 5
    assert f"imports no_such_thing (train.py:2), which {sys.executable} does not have\n" in done.stderr
    assert f"{sys.executable} -m pip install no_such_thing\n" in done.stderr
    assert "trainer.python" in done.stderr
    assert not home.processes()


def test_force_starts_what_lacks_a_module(home: Desk) -> None:
    write(home, "import no_such_thing\n")
    done = home.run("up", "--local", "--force")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stdout + done.stderr


def test_force_starts_with_a_python_that_is_not_there(home: Desk) -> None:
    write(home, "print(1)\n", ", python: /no/such/python")
    assert home.run("up", "--local").returncode == 3
    done = home.run("up", "--local", "--force")
    assert done.returncode == 1
    assert "failed to start" in done.stderr


def test_a_setup_may_install_what_is_missing(home: Desk) -> None:
    write(home, "import no_such_thing\n", ", setup: echo 'print(1)' > no_such_thing.py")
    home.dtctl("up", "--local", "-f")


def test_modules_beside_the_program_and_on_its_path_are_there(home: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "afar.py").touch()
    (home.project / "near.py").touch()
    write(home, "import near\nimport afar\n", f", env: {{PYTHONPATH: {tmp_path}/elsewhere}}")
    home.dtctl("up", "--local", "-f")


def test_the_active_environment_trains(home: Desk, tmp_path: Path) -> None:
    active = tmp_path / "active"
    (active / "bin").mkdir(parents=True)
    (active / "bin" / "python").write_text(f'#!/bin/sh\nexport SHOWS_WHO=active\nexec {sys.executable} "$@"\n')
    (active / "bin" / "python").chmod(0o755)
    home.env["VIRTUAL_ENV"] = str(active)
    write(home, "import os\nprint('trained by', os.environ['SHOWS_WHO'])\n")
    home.dtctl("up", "--local", "-f")
    assert "trained by active" in home.dtctl("logs", "-n", "all")


def test_a_syntax_error_stops_up_with_its_line_unless_it_is_forced(home: Desk) -> None:
    write(home, "print(1)\nif True\n    pass\n")
    done = home.run("up", "--local")
    assert done.returncode == 5, done.stderr
    assert "worker:0 will fail on node-1: train.py:2: expected ':'" in done.stderr
    assert "dtctl up --force" in done.stderr
    assert not home.processes()
    assert home.run("up", "--local", "--force", "-f").returncode == 1  # as it fails then


def test_what_may_be_missing_does_not_stop_up(home: Desk) -> None:
    (home.project / "src").mkdir()
    (home.project / "src" / "mine.py").touch()
    text = "try:\n    import no_such_thing\nexcept ImportError:\n    pass\nimport mine\n"
    write(home, text, ", env: {PYTHONPATH: src}")
    home.dtctl("up", "--local", "-f")

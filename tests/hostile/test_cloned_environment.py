"""Files of a cloned directory that pip and uv read: no command builds or runs here what they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.desk import Desk
from tests.fleet import conftest, test_wheels
from tests.hosts.fleet import Fleet
from tests.nights import at_night

pytestmark = pytest.mark.fleet

CLUSTER = test_wheels.CLUSTER
user, project = conftest.user, test_wheels.project

EVIL = """\
import os
open(os.path.expanduser("~/built"), "w").close()
raise SystemExit("built")
"""
FORMS = {
    "of a file that was not there yet": "--pre -r hidden.txt\n",
    "abbreviated": "--requirem=hidden.txt\n",
    "the second of a line": "-r other.txt -r hidden.txt\n",
    "by a variable": "-r ${PWD}/hidden.txt\n",
    "in utf-7": "# -*- coding: utf-7 -*-\n+AC0-r hidden.txt\n",
    "the directory itself": "--pre\n./evil\n",
}


BY_DAY = ["the directory itself"]
"""tests/agent/requests/test_environments.py has all forms on one host."""


@pytest.mark.parametrize("form", at_night(FORMS, but=BY_DAY))
def test_what_a_cloned_directory_names_is_neither_built_nor_run_here(
    user: Desk, fleet: Fleet, project: Path, form: str
) -> None:
    """The user says yes to all that it asks for; then a `git pull` changes what the allowed file includes."""
    (project / "code/evil").mkdir()
    (project / "code/requirements.txt").write_text(FORMS[form])
    for name in ("hidden.txt", "other.txt"):
        (project / "code" / name).write_text("probe\n")
    (project / "code/evil/setup.py").write_text("")
    user.run("allow")
    for name in ("hidden.txt", "other.txt"):
        (project / "code" / name).write_text("./evil\n")
    (project / "code/evil/setup.py").write_text(EVIL)
    done = user.run("up", "--no-check")
    assert not (user.home / "built").exists()
    assert done.returncode == 5
    assert "only the files named in trainer.environment are there" in done.stderr
    for words in ("plan", "check", "validate"):
        user.run(words)
    assert not (user.home / "built").exists()
    assert not list(fleet["gpu-1"].home.glob("built")), "the files are not there on the hosts either"


def test_uv_and_its_lock_are_read_on_the_hosts_alone(user: Desk, fleet: Fleet, project: Path) -> None:
    """A lock may name a directory in a form that a simple parser does not recognise."""
    cluster = CLUSTER.replace("requirements: requirements.txt", "uv: true")
    (project / "cluster.yaml").write_text(cluster)
    (project / "code/pyproject.toml").write_text('[project]\nname = "app"\nversion = "1"\n')
    (project / "code/uv.lock").write_text(
        'version = 1\nrequires-python = ">=3.8"\n[[package]]\n'
        'source = {directory = "evil"}\nname = "evil"\nversion = "1"\n'
    )
    (project / "code/evil").mkdir()
    (project / "code/evil/setup.py").write_text(EVIL)
    stand_in = user.home / "bin/uv"
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\ntouch ~/built\n")
    stand_in.chmod(0o755)
    user.env["PATH"] = f"{stand_in.parent}:{user.env['PATH']}"
    done = user.run("up")
    assert done.returncode == 5
    assert "this host has no uv" in done.stderr
    assert not (user.home / "built").exists()
    assert not list(fleet["gpu-1"].home.glob("built"))

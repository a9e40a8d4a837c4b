"""Files that another user has made before dtctl runs, where its own directories belong, or in the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.hostile.neighbour import NOBODY
from tests.hostile.neighbourhood import ROOT, doing, open_home

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user"),
    pytest.mark.xdist_group("this machine"),
]

OWN = [".dtctl", ".local/state/dtctl"]
IMPORTED = [
    *("yaml", "typer", "rich", "fabric", "paramiko", "json", "site", "sitecustomize", "usercustomize"),
    *("dtctl", "dtctl_agent", "socket", "ssl", "encodings"),
]
"""Modules that some part of dtctl imports, or Python itself at its start."""


@pytest.fixture
def home() -> Iterator[Desk]:
    with open_home() as place:
        made = Desk(place / "home")
        made.env["PYTHONPATH"] = str(ROOT)
        made.write_cluster()
        try:
            yield made
        finally:
            made.remove()


def refused(home: Desk, own: Path) -> str:
    """The error of `up`, which starts nothing and puts nothing there."""
    before = sorted(own.rglob("*"))
    done = home.run("up", "--local")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert sorted(own.rglob("*")) == before
    assert home.processes() == {}
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("name", OWN)
def test_a_directory_of_dtctl_made_by_another_user_is_refused(home: Desk, name: str) -> None:
    own = home.home / name
    own.parent.mkdir(parents=True, exist_ok=True)
    own.parent.chmod(0o1777)
    with doing("make a directory", directory=str(own)) as deed:
        deed.hear()
        deed.end()
    said = refused(home, own)
    assert str(own) in said
    assert "belongs to" in said
    assert "hint:" in said


@pytest.mark.parametrize("name", OWN)
def test_an_own_directory_that_others_may_write_to_is_refused_until_repaired(home: Desk, name: str) -> None:
    own = home.home / name
    own.mkdir(parents=True)
    os.chown(own, -1, NOBODY)
    own.chmod(0o770)
    said = refused(home, own)
    [remedy] = [words for words in (f"chmod go-w {own}", f"chmod 700 {own}") if words in said]
    subprocess.run(remedy.split(), check=True)
    home.dtctl("up", "--local")
    home.dtctl("down", "--yes", "--grace", "1s")
    assert home.processes() == {}


def test_modules_in_the_working_directory_are_not_imported(home: Desk) -> None:
    """By the installed command, an agent, or a trainer of a bundle. `python -m` always searches there first."""
    shared = home.home.parent / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with doing("leave modules", directory=str(shared), names=IMPORTED) as deed:
        deed.hear()
        deed.end()

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=shared, env=home.env, capture_output=True, text=True, timeout=60, check=False)

    command = str(Path(sys.executable).with_name("dtctl"))
    file = str(home.project / "cluster.yaml")
    for words in (["up", "--local", file], ["status", "-c", file], ["down", "--yes", "--grace", "1s", "-c", file]):
        done = typed(command, *words)
        assert "imported" not in done.stdout + done.stderr
        assert done.returncode == 0, f"{words}: {done.stderr}"
    assert {path.name for path in shared.iterdir()} == {f"{name}.py" for name in IMPORTED}
    assert "imported dtctl" in typed(sys.executable, "-m", "dtctl", "--version").stderr

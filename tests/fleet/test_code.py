"""`dtctl code` on separate hosts: the exact tree of a run comes back, and none that a host has changed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.hosts.fleet import Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]

CLUSTER = """\
name: demo
hosts:
  gpu-[1-2]:
jobs: {worker: {hosts: "gpu-[1-2]", command: "python3 train.py"}}
trainer: {code: src}
"""


def git(place: Path, *words: str) -> None:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    own = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *words]
    subprocess.run(own, cwd=place, env=environ, check=True, capture_output=True)


def tree(place: Path) -> dict[str, tuple[bool, bytes | str]]:
    """Path -> whether it can be executed, and its content, or where it leads."""
    found: dict[str, tuple[bool, bytes | str]] = {}
    for path in place.rglob("*"):
        name = path.relative_to(place).as_posix()
        if path.is_symlink():
            found[name] = (False, str(path.readlink()))
        elif path.is_file() and ".git" not in path.parts:
            found[name] = (bool(path.stat().st_mode & stat.S_IXUSR), path.read_bytes())
    return found


def write(code: Path) -> None:
    """A committed program with uncommitted changes, a file that was removed, and files that git does not know."""
    (code / "layers").mkdir(parents=True)
    (code / "train.py").write_text("import time\n")
    (code / "layers/one.py").write_text("size = 1\n")
    (code / "gone.py").write_text("")
    git(code, "init", "-q")
    git(code, "add", "-A")
    git(code, "commit", "-q", "-m", "First")
    (code / "train.py").write_text("import time\ntime.sleep(1000)\n")
    (code / "gone.py").unlink()
    (code / "layers/two.bin").write_bytes(bytes(range(256)) * 50)
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o755)
    (code / "latest.py").symlink_to("layers/one.py")
    (code / "naïve name.txt").write_text("ü\n")


def test_the_exact_tree_of_a_run_comes_back_and_none_that_a_host_has_changed(user: Desk, fleet: Fleet) -> None:
    code = user.project / "src"
    write(code)
    (user.project / "cluster.yaml").write_text(CLUSTER)
    user.dtctl("up")
    run, sent = user.status()["run"], tree(code)
    for path in ("train.py", "layers/two.bin"):
        (code / path).write_bytes(b"edited afterwards\n")
    user.dtctl("code", run, "back")
    assert tree(user.project / "back") == sent

    change = "find .dtctl -path '*layers/one.py' -exec sh -c 'chmod u+w {}; echo evil=1 >> {}' ';'"
    fleet["gpu-1"].exec("sh", "-c", change)
    user.dtctl("code", run, "again")
    assert tree(user.project / "again") == sent, "the other host has it as it was sent"
    fleet["gpu-2"].exec("sh", "-c", change)
    refused = user.run("code", run, "evil")
    assert refused.returncode not in (0, 2)
    assert "gpu-" in refused.stderr
    assert not (user.project / "evil").exists()
    user.dtctl("down", "--yes")

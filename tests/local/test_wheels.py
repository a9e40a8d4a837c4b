"""Environments from wheels alone, by the real pip and the real uv, on a host of this machine."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.environments import environment
from tests.wheels import make_wheel

PAGE = (Path(__file__).parents[2] / "docs/python-environments.md").read_text()
CLUSTER = """\
name: demo
hosts: {near: {transport: local}}
jobs: {worker: {hosts: near}}
trainer:
  code: code
  command: [python, -c, "import probe, sys; print(probe.VERSION, sys.prefix)"]
  dialect: none
  env: {UV_OFFLINE: 1}
  environment: {ENVIRONMENT, wheels: wheels}
ports: auto
grace: 1s
"""
LOCK = """\
version = 1
revision = 1
requires-python = ">=3.8"

[[package]]
name = "app"
version = "0.1"
source = { virtual = "." }
dependencies = [{ name = "member" }, { name = "probe" }]

[manifest]
members = ["app", "member"]

[[package]]
name = "member"
version = "0.1"
source = { editable = "packages/member" }

[[package]]
name = "probe"
version = "1.0"
source = { registry = "https://pypi.org/simple" }
wheels = [{ url = "http://127.0.0.1:1/probe-1.0-py3-none-any.whl", hash = "sha256:HASH" }]
"""
PROJECT = """\
[project]
name = "app"
version = "0.1"
requires-python = ">=3.8"
dependencies = ["probe", "member"]
[tool.uv.sources]
member = {workspace = true}
[tool.uv.workspace]
members = ["packages/member"]
"""


def write(home: Desk, said: str) -> Path:
    """The wheel of the project."""
    home.env["PYTHONWARNINGS"] = ""
    (home.project / "code").mkdir(exist_ok=True)
    (home.project / "code/requirements.txt").write_text("probe\n")
    (home.project / "cluster.yaml").write_text(CLUSTER.replace("ENVIRONMENT", said))
    return make_wheel(home.project / "wheels", "probe")


def test_a_local_host_installs_the_wheels_when_just_these_are_allowed(home: Desk) -> None:
    wheel = write(home, "requirements: requirements.txt")
    refused = home.run("up")
    assert refused.returncode == 5
    assert "environment on near: pip install --no-index --find-links wheels -r requirements.txt" in refused.stderr
    assert "environment.wheels: sha256 " in refused.stderr
    home.allow()
    home.dtctl("up", "-q")
    home.dtctl("wait")
    assert "1.0 /" in home.dtctl("logs", "-n", "all")
    make_wheel(wheel.parent, "probe", text="raise SystemExit('another one')")
    assert "you have not allowed it" in home.run("up", "--replace").stderr


def uv(home: Desk) -> Path:
    """The real uv, where hosts look for it."""
    program = home.home / ".local/bin/uv"
    program.parent.mkdir(parents=True)
    program.symlink_to(environment("uv").with_name("uv"))
    return program


@pytest.mark.parametrize("matches", [True, False], ids=["right", "wrong"])
def test_uv_installs_the_wheels_of_its_lock_if_their_hashes_match(home: Desk, matches: bool) -> None:
    wheel = write(home, "uv: true")
    uv(home)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest() if matches else "0" * 64
    (home.project / "code/pyproject.toml").write_text(PROJECT)
    (home.project / "code/uv.lock").write_text(LOCK.replace("HASH", digest))
    home.allow()
    started = home.run("up", "-q")
    if matches:
        assert started.returncode == 0, started.stderr
        home.dtctl("wait")
        assert "1.0 /" in home.dtctl("logs", "-n", "all")
    else:
        assert started.returncode == 5
        assert "Hash mismatch for `probe==1.0`" in started.stderr, "uv's own sentence"


def test_what_the_page_shows_fills_the_directory(tmp_path: Path) -> None:
    """By the real pip and uv; the index is a directory."""
    index, section = tmp_path / "index", PAGE.partition("\n## Hosts without access")[2].partition("\n## ")[0]
    make_wheel(index, "probe")
    make_wheel(index, "older")
    for tag in ("cp39-cp39-manylinux_2_28_x86_64", "cp39-cp39-manylinux_2_35_x86_64"):
        make_wheel(index, "fast").rename(index / f"fast-1.0-{tag}.whl")
    (tmp_path / "requirements.txt").write_text('probe\nolder; python_version < "3.10"\n')
    (tmp_path / "pyproject.toml").write_text(PROJECT.replace(', "member"]', "]").partition("[tool")[0])
    (tmp_path / "uv.toml").write_text(f"no-index = true\nfind-links = [{json.dumps(str(index))}]\n")
    uv = environment("uv").parent
    env = {
        "PATH": f"{uv}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "UV_OFFLINE": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }

    def wheels() -> list[str]:
        found = sorted(one.name.partition("-")[0] for one in (tmp_path / "wheels").iterdir())
        shutil.rmtree(tmp_path / "wheels")
        return found

    def typed(command: str) -> None:
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.M | re.S)
    commands = "".join(text for language, text in blocks if not language)
    alike, resolve, other, export, locked, *builds = commands.splitlines()
    typed(alike)
    assert wheels() == ["probe"] if sys.version_info >= (3, 10) else ["older", "probe"]
    (tmp_path / "requirements.txt").write_text('probe\nolder; python_version < "3.10"\nfast\n')
    typed(resolve)
    typed(other)
    assert (tmp_path / "wheels/fast-1.0-cp39-cp39-manylinux_2_28_x86_64.whl").exists(), "for the older C library"
    assert wheels() == ["fast", "older", "probe"], "for the other Python"
    typed("uv lock")
    typed(export)
    typed(locked)
    assert wheels() == ["probe"]
    assert builds == ["pip wheel --no-deps --wheel-dir wheels PACKAGE"]
    (tmp_path / "built").mkdir()
    (tmp_path / "built/pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (tmp_path / "built/backend.py").write_text(
        "import shutil\ndef build_wheel(directory, *args, **kwargs):\n"
        f"    return shutil.copy({str(index / 'probe-1.0-py3-none-any.whl')!r}, directory).rpartition('/')[2]\n"
    )
    typed(builds[0].replace("PACKAGE", "./built"))
    assert wheels() == ["probe"]


def test_uv_without_wheels_gets_packages_from_the_sources_of_its_lock(home: Desk) -> None:
    write(home, "uv: true")
    program = uv(home)
    (home.project / "cluster.yaml").write_text(CLUSTER.replace("ENVIRONMENT, wheels: wheels", "uv: true"))
    (home.project / "code/pyproject.toml").write_text(PROJECT.replace(', "member"]', "]").partition("[tool")[0])
    links = json.dumps(str(home.project / "wheels"))
    with (home.project / "code/pyproject.toml").open("a") as file:
        file.write(f"[tool.uv]\nno-index = true\nfind-links = [{links}]\n")
    subprocess.run([program, "lock", "--quiet"], cwd=home.project / "code", env=home.env, check=True)
    home.allow()
    home.dtctl("up", "-q")
    home.dtctl("wait")
    assert "1.0 /" in home.dtctl("logs", "-n", "all")


def test_a_directory_that_a_lock_names_is_not_there_for_uv(home: Desk) -> None:
    """In a form that a simple parser of locks does not recognise: `source` before `name`."""
    write(home, "uv: true")
    uv(home)
    code = home.project / "code"
    (home.project / "cluster.yaml").write_text(CLUSTER.replace("ENVIRONMENT, wheels: wheels", "uv: true"))
    (code / "evil").mkdir()
    (code / "evil/pyproject.toml").write_text(
        '[project]\nname = "evil"\nversion = "1"\n'
        '[build-system]\nrequires = []\nbuild-backend = "made"\nbackend-path = ["."]\n'
    )
    (code / "evil/made.py").write_text(f"open({str(home.home / 'built')!r}, 'w')\n")
    (code / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "0.1"\nrequires-python = ">=3.8"\ndependencies = ["evil"]\n'
        '[tool.uv.sources]\nevil = {path = "evil"}\n'
    )
    (code / "uv.lock").write_text(
        LOCK.partition("[[package]]\nname")[0]
        + '[[package]]\nname = "app"\nversion = "0.1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "evil" }]\n\n'
        '[[package]]\nsource = { directory = "evil" }\nname = "evil"\nversion = "1"\n'
    )
    home.allow()
    started = home.run("up", "-q")
    assert not (home.home / "built").exists()
    assert started.returncode == 5
    assert "files/evil" in started.stderr, "uv's own sentence"
    assert "only the files named in trainer.environment are there" in started.stderr

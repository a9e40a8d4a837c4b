"""The findings of `up` and `check` before a start: missing modules, other versions, files that look like secrets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text


def write(home: Desk, text: str, more: str = "") -> None:
    trainer = f"command: [python, train.py], dialect: none{more}"
    home.write_cluster(cluster_text(jobs="{worker: {hosts: node-1}}", trainer=trainer), hosts="hosts: {node-1: }")
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


def test_force_starts_despite_a_missing_python(home: Desk) -> None:
    write(home, "print(1)\n", ", python: /no/such/python")
    assert home.run("up", "--local").returncode == 3
    done = home.run("up", "--local", "--force")
    assert done.returncode == 1
    assert "failed to start" in done.stderr


def test_modules_next_to_the_program_and_on_its_path_are_found(home: Desk, tmp_path: Path) -> None:
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
    assert home.run("up", "--local", "--force", "-f").returncode == 1  # because it fails then


LINE = "not pushed: .env, keys/id_rsa [id_rsa*] (a line such as !.env in .dtctlignore pushes one)"


def with_secrets(home: Desk) -> None:
    home.write_cluster()
    (home.project / ".env").write_text("API_KEY=very-secret\n")
    (home.project / "keys").mkdir()
    (home.project / "keys" / "id_rsa").write_text("very-secret\n")


def pushed(home: Desk) -> list[str]:
    files = [path for path in (home.home / ".dtctl").glob("bundles/*/tree/**/*") if path.is_file()]
    return [path.name for path in files if b"very-secret" in path.read_bytes()]


def test_secrets_are_not_pushed_and_every_command_reports_them(home: Desk) -> None:
    with_secrets(home)
    for command in (["plan"], ["up", "--local", "--dry-run"], ["push", "--local"], ["up", "--local"]):
        assert LINE in home.run(*command).stderr.splitlines()
    assert pushed(home) == []
    home.dtctl("stop")
    plan = json.loads(home.run("plan", "-o", "json").stdout)
    assert plan["notPushed"] == [".env", "keys/id_rsa"]


def test_a_home_directory_is_refused_as_code(home: Desk) -> None:
    text = home.write_cluster().read_text()
    (home.home / "cluster.yaml").write_text(text)
    for command in (["validate"], ["plan"], ["push"], ["up", "--local"]):
        done = home.run(*command, cwd=home.home)
        assert (done.returncode, "a home directory" in done.stderr) == (3, True)


TWO_HOSTS = """\
name: demo
hosts:
  node-1: {{transport: local, python: {one}}}
  node-2: {{transport: local, python: {two}}}
jobs: {{worker: {{hosts: "node-[1-2]"}}}}
ports: auto
trainer: {{command: [python, train.py], dialect: none}}
dirs: {{output: ~/saved}}
"""
DIFFERS = "tensorflow is not the same everywhere: 2.19.0 on node-2, 2.21.0 on node-1"


@pytest.fixture
def two_versions(home: Desk) -> Desk:
    """Each host of the cluster has its own Python, with an apparent TensorFlow of its own."""
    pythons = [make_environment(home.home / version, version) for version in ("2.21.0", "2.19.0")]
    (home.project / "cluster.yaml").write_text(TWO_HOSTS.format(one=pythons[0], two=pythons[1]))
    (home.project / "train.py").write_text("print('trained')\n")
    home.allow()
    return home


def make_environment(place: Path, version: str) -> Path:
    packages = place / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
    (packages / f"tensorflow-{version}.dist-info").mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\n"
    (packages / f"tensorflow-{version}.dist-info" / "METADATA").write_text(metadata)
    (place / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    return place / "bin" / "python"


def test_up_warns_and_starts(two_versions: Desk) -> None:
    done = two_versions.run("up")
    assert done.returncode == 0, done.stderr
    assert f"warning: {DIFFERS}" in done.stderr
    assert "dtctl check    also tests for exposed ports" in done.stderr
    two_versions.dtctl("down", "--yes")
    done = two_versions.run("up", "--no-check", "-o", "json")
    assert "not the same" not in done.stderr
    assert json.loads(done.stdout)["checked"] is None

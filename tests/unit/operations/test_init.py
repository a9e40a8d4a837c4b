"""`init` names a cluster after its directory, so that two projects share nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtctl.config.load import load_cluster
from dtctl.errors import UsageError
from dtctl.rooms.init.operation import cluster_name, template_names, write_template
from tests.unit.conftest import Typed

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("digits", "digits"),
        ("My Project (2)", "My-Project-2-"),
        (".hidden", "hidden"),
        ("größer", "gr-er"),
        ("2024", "2024"),
        ("...", "training"),
        ("é", "training"),
        ("x" * 100, "x" * 63),
        ("true", "true"),
        ("Null", "Null"),
    ],
)
def test_a_cluster_is_named_after_its_directory(directory: str, name: str, tmp_path: Path) -> None:
    place = tmp_path / directory
    assert cluster_name(place, None) == name
    write_template("hello", place, name)
    assert load_cluster(place / "cluster.yaml").name == name


def test_this_directory_has_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert cluster_name(Path(), None) == "here"


def test_another_name_may_be_said_if_a_cluster_can_have_it(tmp_path: Path) -> None:
    assert cluster_name(tmp_path, "other") == "other"
    with pytest.raises(UsageError, match="'a b' cannot be the name of a cluster"):
        cluster_name(tmp_path, "a b")


@pytest.mark.parametrize("template", template_names())
def test_what_a_template_says_of_its_directories_has_the_name_too(template: str, tmp_path: Path) -> None:
    write_template(template, tmp_path / "made", "mine")
    text = (tmp_path / "made" / "cluster.yaml").read_text()
    assert load_cluster(tmp_path / "made" / "cluster.yaml").name == "mine"
    assert f"~/dtctl/{template}" not in text
    assert "~/dtctl/mine" in text


@pytest.mark.parametrize("name", ["cluster.yaml", "train.py", "graceful.py", ".dtctlignore"])
def test_a_link_in_the_place_of_a_file_is_there_already_also_where_it_leads_nowhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / name).symlink_to(tmp_path / "authorized_keys")
    with pytest.raises(UsageError, match="already exists"):
        write_template("hello", tmp_path / "clone", "clone")
    assert [path.name for path in tmp_path.iterdir()] == ["clone"]
    assert [path.name for path in (tmp_path / "clone").iterdir()] == [name]


def test_closed_stderr_does_not_stop_init(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "dtctl", "init", "--template", "hello", "made"]
    env = {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(argv, cwd=tmp_path, env=env, stderr=gone, check=False)
    assert done.returncode == 0
    assert (tmp_path / "made" / "cluster.yaml").is_file()


def test_what_init_wrote_and_its_templates_are_one_document_each(typed: Typed) -> None:
    for command, kind in (("init x -o json", "Init"), ("init --list -o json", "Templates")):
        code, out, _ = typed(command)
        assert code == 0
        assert json.loads(out)["kind"] == kind
    assert (Path("x") / "cluster.yaml").is_file()

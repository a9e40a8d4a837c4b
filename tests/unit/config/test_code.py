"""Code that is a home directory, or that lies around one or around the cluster file, is pushed by a word only."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

import pytest

from dtctl.config import load_cluster
from dtctl.errors import ConfigError

TEXT = "name: digits\nhosts: {a: 10.0.0.1}\njobs: {worker: {hosts: [a]}}\ntrainer:\n  command: [python, train.py]\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home" / "me"
    (home / "project" / "conf").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


def load(file: Path, code: str, also: str = "") -> Path:
    file.write_text(TEXT + f"  code: {code}\n{also}")
    return load_cluster(file).trainer.code


def refused(file: Path, code: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(file, code)
    [problem] = error.value.problems
    assert (problem.place.line, problem.place.column) == (6, 9)
    assert "code_anywhere: true" in problem.hint
    return problem.summary


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("~/", "which is a home directory"),
        ('"~"', "which is a home directory"),
        ("HOME", "which is a home directory"),
        ("~/..", "which is above the home directory"),
        ("/", "which is above the home directory"),
        ("..", "which is a home directory"),
        ("./../project/..", "which is a home directory"),
        ("link", "which is a home directory"),
        ("link/..", "which is above the home directory"),
    ],
)
def test_a_home_directory_is_refused_by_whatever_way_it_is_named(home: Path, code: str, words: str) -> None:
    (home / "project" / "link").symlink_to(home)
    summary = refused(home / "project" / "cluster.yaml", code.replace("HOME", str(home)))
    assert words in summary
    assert "all of it would be pushed" in summary


def test_a_directory_above_the_cluster_file_is_refused(home: Path) -> None:
    summary = refused(home / "project" / "conf" / "cluster.yaml", "..")
    assert f"which is above the directory of this file, {home}/project/conf" in summary


def test_a_cluster_file_in_a_home_directory_does_not_push_it(home: Path) -> None:
    assert "a home directory" in refused(home / "cluster.yaml", ".")
    (home / "cluster.yaml").write_text(TEXT)  # `.` if left out
    with pytest.raises(ConfigError, match="1 problem"):
        load_cluster(home / "cluster.yaml")


@pytest.mark.parametrize("code", [".", "conf", "../other", "~/other"])
def test_a_directory_of_a_project_is_fine(home: Path, code: str) -> None:
    (home / "other").mkdir()
    assert load(home / "project" / "cluster.yaml", code).is_dir()


@pytest.mark.parametrize("code", ["~/", "..", "/"])
def test_code_anywhere_allows_it(home: Path, code: str) -> None:
    load(home / "project" / "cluster.yaml", code, "  code_anywhere: true\n")
    with pytest.raises(ConfigError):
        load(home / "project" / "cluster.yaml", code, "  code_anywhere: false\n")


def test_an_override_on_the_command_line_is_refused_too(home: Path) -> None:
    (home / "project" / "cluster.yaml").write_text(TEXT)
    with pytest.raises(ConfigError) as error:
        load_cluster(home / "project" / "cluster.yaml", overrides=["trainer.code=~/"])
    assert "a home directory" in error.value.problems[0].summary


def test_the_home_of_the_system_counts_when_the_environment_names_another(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = list(pwd.getpwuid(os.geteuid()))
    monkeypatch.setattr(pwd, "getpwuid", lambda user: pwd.struct_passwd([*entry[:5], str(home), entry[6]]))
    for elsewhere in ("/nonexistent", "", "relative"):
        monkeypatch.setenv("HOME", elsewhere)
        assert "a home directory" in refused(home / "project" / "cluster.yaml", "..")


def test_a_user_without_an_entry_has_no_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    assert load(home / "project" / "cluster.yaml", "conf") == home / "project" / "conf"


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EIO])
def test_an_unreadable_directory_is_not_reported_as_absent(
    home: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    look = Path.stat

    def refuse(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.name == "closed":
            raise OSError(reason, os.strerror(reason), os.fspath(path))
        return look(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(ConfigError) as error:
        load(home / "project" / "cluster.yaml", "closed")
    place = home / "project" / "closed"
    assert [problem.summary for problem in error.value.problems] == [
        f"trainer.code is 'closed', but {place} cannot be looked at: {os.strerror(reason)}"
    ]


def test_a_loop_of_links_is_no_directory(home: Path) -> None:
    (home / "project" / "loop").symlink_to("loop")
    with pytest.raises(ConfigError) as error:
        load(home / "project" / "cluster.yaml", "loop")
    assert "but there is no directory" in error.value.problems[0].summary


@pytest.mark.parametrize(
    "place", [".aws", ".ssh", ".config/gcloud", ".kube", ".gnupg/private-keys-v1.d", "keys/.AWS/x"]
)
def test_a_directory_of_secrets_is_refused_as_code(home: Path, place: str) -> None:
    (home / place).mkdir(parents=True)
    (home / "project" / "link").symlink_to(home / place)
    for code in (f"~/{place}", "link"):
        assert "where secrets usually are" in refused(home / "project" / "cluster.yaml", code)
    load(home / "project" / "cluster.yaml", f"~/{place}", "  code_anywhere: true\n")

"""Whole places of secrets are sent by no key of a cluster file, by whatever path they are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.config.load import load_cluster
from dtctl.config.outgoing import why_refused
from dtctl.errors import ConfigError

AROUND = """\
name: digits
hosts: {a: 10.0.0.1}
jobs: {worker: {hosts: [a]}}
dirs: {data: /data}
"""
KEYS = {
    "trainer.code": "trainer: {command: [python, train.py], code: PLACE}\n",
    "trainer.env_file": "trainer: {command: [python, train.py], env_file: PLACE/file}\n",
    "data.from": "trainer: {command: [python, train.py]}\ndata: {from: PLACE}\n",
}
OF_KEYS = (
    ".aws",
    ".ssh",
    ".kube",
    ".azure",
    ".config/gcloud",
    ".gnupg/private-keys-v1.d",
    "keys/.AWS/x",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home" / "me"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


def problems(home: Path, key: str, place: str, also: str = "", overrides: tuple[str, ...] = ()) -> list[str]:
    file = home / "project" / "cluster.yaml"
    file.write_text(AROUND + KEYS[key].replace("PLACE", place) + also)
    try:
        load_cluster(file, overrides=overrides)
    except ConfigError as error:
        return [f"{one.summary} {one.hint}" for one in error.problems]
    return []


@pytest.mark.parametrize("key", ["trainer.code", "data.from"])
@pytest.mark.parametrize(
    "place", ['"~"', "~/", "..", "HOME", "link", "link/..", "./../project/..", "/", "/etc", "/etc/ssl", "/proc"]
)
def test_homes_and_directories_of_the_system_are_refused_for_every_key(home: Path, key: str, place: str) -> None:
    (home / "project" / "link").symlink_to(home)
    [problem] = problems(home, key, place.replace("HOME", str(home)))
    assert problem.startswith(f"{key} is '/")
    assert "home directory" in problem or "directory of the system" in problem
    assert "send_anywhere: true" in problem
    assert problems(home, key, place.replace("HOME", str(home)), "send_anywhere: true\n") == []


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("place", OF_KEYS)
def test_directories_of_keys_are_refused_for_every_key(home: Path, key: str, place: str) -> None:
    (home / place).mkdir(parents=True)
    (home / place / "file").write_text("A=b\n")
    (home / "project" / "link").symlink_to(home / place)
    for name in (f"~/{place}", "link"):
        [problem] = problems(home, key, name)
        assert "secrets usually are" in problem or "home directory" in problem
        assert problems(home, key, name, "send_anywhere: true\n") == []


@pytest.mark.parametrize("above", [".config", ".cache", ".cargo", ".docker", ".config/sops"])
def test_directory_above_secrets_is_refused(home: Path, above: str) -> None:
    (home / above).mkdir(parents=True)
    [problem] = problems(home, "data.from", f"~/{above}")
    assert "where secrets usually are" in problem


def test_copy_of_a_home_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "backup" / ".ssh").mkdir(parents=True)
    [problem] = problems(home, "data.from", str(tmp_path / "backup"))
    assert "it holds .ssh" in problem


def test_an_override_on_the_command_line_is_refused_too_and_may_allow_it(home: Path) -> None:
    assert "a home directory" in problems(home, "data.from", "data", overrides=("data.from=~/",))[0]
    assert problems(home, "data.from", "data", overrides=("data.from=~/", "send_anywhere=true")) == []


def test_the_earlier_key_allows_code_alone(home: Path) -> None:
    text = "trainer: {command: [python, train.py], code: PLACE, code_anywhere: true}\n"
    (home / "project" / "cluster.yaml").write_text(AROUND + text.replace("PLACE", "~") + "data: {from: ~/}\n")
    with pytest.raises(ConfigError) as error:
        load_cluster(home / "project" / "cluster.yaml")
    assert [one.summary.partition(" ")[0] for one in error.value.problems] == ["data.from"]


@pytest.mark.parametrize(
    "place", ["data", "~/datasets", "~/.cache/huggingface/hub", "~/.keras/datasets", "/dev/shm/digits"]
)
def test_directories_of_data_may_be_sent(home: Path, place: str) -> None:
    assert problems(home, "data.from", place) == []


def test_a_file_beside_a_home_is_judged_by_its_directory_alone(home: Path) -> None:
    (home / "wandb.env").write_text("A=b\n")
    assert why_refused(home / "wandb.env", home / "project") is None

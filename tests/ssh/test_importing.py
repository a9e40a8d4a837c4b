"""`dtctl import` of an ssh_config: `ssh -G` says what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.config.load import load_cluster
from dtctl.errors import ConfigError
from dtctl.model import SshSettings
from dtctl.rooms.importing.operation import make, write

CONFIG = """\
Host gpu-1 gpu-2
  User train
  HostName %h.example.com
  ProxyJump gate
Host gate
  HostName gate.example.com
  User ops
Host github.com
  User git
Host *
  Port 2200
"""


def test_hosts_of_an_ssh_config_are_reached_as_ssh_says(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(CONFIG)
    project = tmp_path / "project"
    project.mkdir()
    made = make(str(tmp_path / "conf"), project, kind=None, name="made", jobs=())
    write(made, force=False)
    hosts = load_cluster(made.file).hosts
    assert list(hosts) == ["gpu-1", "gpu-2"]
    reach = hosts["gpu-2"].reach
    assert isinstance(reach, SshSettings)
    assert (reach.target, reach.user, reach.port) == ("gpu-2.example.com", "train", 2200)
    assert reach.jump == "ops@gate.example.com:2200"
    assert "github.com: its user is git" in made.text


@pytest.mark.parametrize(
    "line",
    [
        'Match exec "touch here"',
        'Match ex"ec" "touch here"',
        '"Match"exec "touch here"',
        'match host a exec="touch here"',
        "Include other",
        '"Include"other',
    ],
)
def test_a_file_of_others_runs_nothing_here(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").write_text(f"Host a\n{line}\n")
    (tmp_path / "other").write_text('Match exec "touch here"\n')
    with pytest.raises(ConfigError):
        make(str(tmp_path / "conf"), tmp_path, kind="ssh_config", name="made", jobs=())
    assert not (tmp_path / "here").exists()

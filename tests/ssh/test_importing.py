"""`dtctl import` of an ssh_config: `ssh -G` says what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.config.load import load_cluster
from dtctl.errors import ConfigError, TransportError
from dtctl.model import SshSettings
from dtctl.rooms.importing import operation
from dtctl.rooms.importing.found import Source
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
        '=Match exec "touch here"',
        '""Ma"tch" exec "touch here"',
        "= Include other",
    ],
)
def test_a_file_of_others_runs_nothing_here(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").write_text(f"Host a\n{line}\n")
    (tmp_path / "other").write_text('Match exec "touch here"\n')
    with pytest.raises(ConfigError):
        make(str(tmp_path / "conf"), tmp_path, kind="ssh_config", name="made", jobs=())
    assert not (tmp_path / "here").exists()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.mark.parametrize("line", ['"Host"gpu-1', 'Ho"st" gpu-1', "=Host gpu-1", "HOST = 'gpu-1' # gpu-2"])
def test_a_host_is_found_however_its_keyword_is_written(line: str, tmp_path: Path, project: Path) -> None:
    (tmp_path / "conf").write_text(f"{line}\n  HostName 10.0.0.7\n")
    (machine,) = make(str(tmp_path / "conf"), project, kind="ssh_config", name="made", jobs=()).found.machines
    assert (machine.name, machine.target) == ("gpu-1", "10.0.0.7")


def test_ssh_reads_the_file_that_was_checked(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "conf"
    file.write_text("Host gpu-1\n  HostName 10.0.0.7\n")
    read = operation.read_source

    def swapped(source: str) -> tuple[Source, Path | None]:
        found = read(source)
        file.write_text(f'Match exec "touch {tmp_path}/here"\n  HostName 10.6.6.6\nHost gpu-1\n  Port 9\n')
        return found

    monkeypatch.setattr(operation, "read_source", swapped)
    made = make(str(file), project, kind="ssh_config", name="made", jobs=())
    assert made.found.machines[0].target == "10.0.0.7"
    assert not (tmp_path / "here").exists()


def test_what_ssh_refuses_is_reported_with_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("Host gpu-1\n  Prot 22\n  Port 7\n")
    with pytest.raises(TransportError, match="cannot read its configuration") as caught:
        make(str(tmp_path / "conf"), tmp_path, kind="ssh_config", name="made", jobs=())
    assert f"{tmp_path}/conf: line 2: Bad configuration option: prot" in caught.value.detail


PUBLISHED = {
    "two names, ControlMaster": (
        "Host *\n     ServerAliveInterval 300\n\nHost vinci vinci.lab.example\n    ForwardAgent yes\n"
        "    ControlPath ~/.ssh/%r-%h-cm\n    ControlMaster auto\n",
        ["vinci", "vinci.lab.example"],
    ),
    "two names of one machine": ("Host v vinci\n  HostName 10.0.0.5\n", ["v"]),
    "names with domains, a user": (
        "Host eva.fit.example\n    User x08\n\nHost merlin.fit.example\n    User x08\n\n"
        "Host minerva\n  HostName minerva1.fit.example\n",
        ["eva.fit.example", "merlin.fit.example", "minerva"],
    ),
    "keyword=value, capitals": ("HOST=gpu-1\n  HOSTNAME=10.0.0.8\n  User = train\n", ["gpu-1"]),
    "a jump host and a wildcard": (
        "Host gate\n  HostName gate.example.com\nHost node-*\n  ProxyJump gate\nHost node-1 node-2\n  User me\n",
        ["node-1", "node-2"],
    ),
    "ProxyCommand with -W": (
        "Host bastion\n  HostName 1.2.3.4\nHost gpu\n  HostName 10.0.0.9\n  ProxyCommand ssh -W %h:%p bastion\n",
        ["bastion", "gpu"],
    ),
    "repositories beside machines": (
        "Host github.com gitlab.com\n  User git\n  IdentityFile ~/.ssh/git\nHost gpu\n  HostName 10.0.0.9\n",
        ["gpu"],
    ),
    "tabs, comments, several keys": (
        "# lab\nHost\tlab-1\n\tHostName\t10.1.1.1\t# rack 3\n\tIdentityFile\t~/.ssh/a\n\tIdentityFile\t~/.ssh/b\n",
        ["lab-1"],
    ),
    "ports and local forwards": (
        "Host lab\n  HostName lab.example.com\n  Port 2222\n  LocalForward 8888 localhost:8888\n"
        "Host lab-2\n  HostName lab.example.com\n  Port 2223\n",
        ["lab", "lab-2"],
    ),
    "host keys off, as for machines of a cloud": (
        "Host worker-a worker-b\n  User root\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n",
        ["worker-a", "worker-b"],
    ),
    "a negation and quoted names": ('Host "n-1" !n-2 n-3\n  User me\n', ["n-1", "n-3"]),
}


@pytest.mark.parametrize("title", PUBLISHED)
def test_a_published_configuration_becomes_its_machines(title: str, tmp_path: Path, project: Path) -> None:
    text, names = PUBLISHED[title]
    (tmp_path / "conf").write_text(text)
    made = make(str(tmp_path / "conf"), project, kind=None, name="made", jobs=())
    write(made, force=False)
    assert (made.format, list(load_cluster(made.file).hosts)) == ("ssh_config", names)


def test_patterns_alone_name_no_machine(tmp_path: Path, project: Path) -> None:
    (tmp_path / "conf").write_text("Host *amazonaws.com\n  IdentityFile ~/.ssh/key.pem\n  User root\n")
    with pytest.raises(ConfigError, match="is the name of one machine"):
        make(str(tmp_path / "conf"), project, kind=None, name="made", jobs=())

"""Directories that are there already: nothing is kept or run where another user may put something."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dtctl.agent import bootstrap
from dtctl.agent.host import keeping, paths
from tests.agent.host import AgentHost, AgentRefused

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what is another user's")
NOBODY = 65534


def refused(host: AgentHost) -> dict[str, str]:
    before = sorted(host.root.rglob("*"))
    with pytest.raises(AgentRefused) as error:
        host.open()
    assert error.value.code == "permission_denied"
    assert sorted(host.root.rglob("*")) == before
    return error.value.frame


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_root_that_others_may_write_to_is_refused_before_anything_is_kept_there(host: AgentHost, mode: int) -> None:
    host.root.mkdir()
    host.root.chmod(mode)
    frame = refused(host)
    assert frame["summary"] == f"others may write to {host.root} on this host"
    assert frame["detail"] == f"its owner is user {os.geteuid()} and its mode {mode:04o}; this is user {os.geteuid()}"
    assert frame["hint"] == f"chmod go-w {host.root}"
    host.root.chmod(stat.S_IMODE(host.root.stat().st_mode) & ~0o022)  # what the hint says
    with host.open():
        pass


@pytest.mark.parametrize("name", ["agent", "bundles", "runs", "clusters", "program", "compiled", "site"])
def test_so_is_one_with_such_a_directory_in_it(host: AgentHost, name: str) -> None:
    with host.open():
        pass
    [program] = [path for path in (host.root / "agent").iterdir() if len(path.name) == 64]
    inside = {"program": program, "compiled": program / "__pycache__", "site": program / "dtctl_agent/dump/site"}
    path = inside.get(name, host.root / name)
    path.mkdir(exist_ok=True)
    path.chmod(0o777)
    assert refused(host)["summary"] == f"others may write to {path} on this host"


@ROOT
@pytest.mark.parametrize("name", ["", "agent", "runs"])
def test_root_of_another_user_is_refused(host: AgentHost, name: str) -> None:
    (host.root / name).mkdir(parents=True)
    os.chown(host.root / name, NOBODY, NOBODY)
    frame = refused(host)
    path = host.root / name if name else host.root
    assert frame["summary"] == f"{path} on this host belongs to another user"
    assert frame["hint"].endswith(f"mv {path} {path}.old")


@ROOT
def test_a_link_is_followed_when_its_user_has_made_it(host: AgentHost, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir(mode=0o700)
    host.root.symlink_to(tmp_path / "scratch")
    with host.open():
        assert (tmp_path / "scratch" / "agent").is_dir()
    os.lchown(host.root, NOBODY, NOBODY)
    assert refused(host)["summary"] == f"{host.root} on this host belongs to another user"


@ROOT
def test_owners_that_a_file_server_maps_are_reported_by_a_trial(tmp_path: Path) -> None:
    assert bootstrap.maps_owners(str(tmp_path), os.geteuid())
    assert not bootstrap.maps_owners(str(tmp_path), NOBODY)
    assert list(tmp_path.iterdir()) == []


def test_a_root_on_a_file_server_that_maps_owners_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)  # what is made here is not of the user that we are
    tmp_path.chmod(0o700)
    bootstrap.refuse_unsafe(str(tmp_path), str(tmp_path / "agent" / "x"))


@pytest.mark.parametrize("make", [paths.make_directory, keeping.make_directory])
def test_directories_are_made_private_and_never_loosened(tmp_path: Path, make: object) -> None:
    assert callable(make)
    (tmp_path / "closed").mkdir(mode=0o500)
    before = os.umask(0)
    try:
        make(str(tmp_path / "closed"))
        make(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("closed", "a", "a/b")] == [0o500, 0o700, 0o700]

"""Where the sockets of kept connections lie, whatever other users have made in /tmp."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dtctl.errors import TransportError
from dtctl.transport.ssh import openssh
from dtctl.transport.ssh.openssh import LONGEST_DIRECTORY, socket_directory


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in the place of /tmp, with a path as short."""
    made = Path(f"/tmp/s-{os.urandom(4).hex()}")
    made.mkdir(0o777)
    made.chmod(0o1777)
    monkeypatch.setattr(openssh, "_SHARED", str(made))
    socket_directory.cache_clear()
    yield made
    for entry in made.iterdir():
        entry.rmdir() if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    made.rmdir()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / ("long" * 15)


def own(shared: Path) -> Path:
    return shared / f"dtctl-{os.geteuid()}"


def a_link_of_another(place: Path) -> None:
    place.symlink_to("/")
    os.lchown(place, 65534, 65534)


def a_directory_of_another(place: Path) -> None:
    place.mkdir()
    os.chown(place, 65534, 65534)


def a_file_of_another(place: Path) -> None:
    place.touch()
    os.chown(place, 65534, 65534)


def open_to_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def test_a_directory_in_tmp_is_made_where_the_cache_has_a_long_path(shared: Path, cache: Path) -> None:
    assert socket_directory(cache, "") == own(shared)
    assert own(shared).stat().st_mode & 0o777 == 0o700


def test_the_runtime_directory_comes_before_tmp(shared: Path, cache: Path) -> None:
    runtime = shared / "run"
    runtime.mkdir(0o700)
    assert socket_directory(cache, str(runtime)) == runtime / "dtctl"
    (runtime / "dtctl").rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")
@pytest.mark.parametrize("taken", [a_link_of_another, a_directory_of_another, a_file_of_another, open_to_all])
def test_what_another_user_has_put_there_is_not_used(shared: Path, cache: Path, taken: Callable[[Path], None]) -> None:
    taken(own(shared))
    found = socket_directory(cache, "")
    assert found.parent == shared
    assert found != own(shared)
    socket_directory.cache_clear()
    assert socket_directory(cache, "") == found, "the next command finds it again"
    assert found.stat().st_mode & 0o777 == 0o700


def test_without_any_directory_the_error_names_each(shared: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openssh, "_SHARED", f"/tmp/{'x' * LONGEST_DIRECTORY}")
    with pytest.raises(TransportError) as raised:
        socket_directory(cache, "")
    assert len(raised.value.detail.splitlines()) == 3
    assert "export XDG_RUNTIME_DIR=" in raised.value.hint

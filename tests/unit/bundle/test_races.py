"""What another user does to the code directory while it is scanned and sent: nobody waits, and nothing else travels."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtctl.bundle import scan
from dtctl.bundle.scanning import _Found
from dtctl.bundle.sender import Chunks
from dtctl.errors import PreflightError

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "x.py").write_text("hunter2")
    code = tmp_path / "code"
    (code / "sub").mkdir(parents=True)
    (code / "sub" / "x.py").write_text("mine")
    return code


def link_elsewhere(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.parent.parent.parent / "private" / "x.py")


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def endless(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def gone(file: Path) -> None:
    file.unlink()


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


EXCHANGES = [link_elsewhere, fifo, endless, gone, directory]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_file_that_is_exchanged_between_the_look_and_the_reading_is_refused(
    code: Path, monkeypatch: pytest.MonkeyPatch, exchange: Callable[[Path], None]
) -> None:
    really = _Found._read

    def late(self: _Found, parent: int, path: str) -> Any:
        exchange(code / path)
        return really(self, parent, path)

    monkeypatch.setattr(_Found, "_read", late)
    with pytest.raises(PreflightError, match=r"cannot read .*sub/x\.py"):
        scan(code)


def test_a_directory_that_is_exchanged_for_a_link_leads_nowhere_else(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.open

    def late(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if path == "sub":
            (code / "sub").rename(code / "moved")
            (code / "sub").symlink_to(code.parent / "private")
        return really(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(PreflightError, match=r"sub is not a directory|cannot list .*sub"):
        scan(code)


def test_a_directory_that_is_exchanged_while_it_is_read_is_still_the_one_that_was_opened(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = _Found._read

    def late(self: _Found, parent: int, path: str) -> Any:
        (code / "sub").rename(code / "moved")
        (code / "sub").symlink_to(code.parent / "private")
        return really(self, parent, path)

    monkeypatch.setattr(_Found, "_read", late)
    bundle = scan(code)
    assert [file.size for file in bundle.manifest.files] == [len("mine")]
    with pytest.raises(PreflightError, match="changed while it was being sent"):
        Chunks(bundle).of(0)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_file_that_is_exchanged_before_it_is_sent_is_not_sent(code: Path, exchange: Callable[[Path], None]) -> None:
    chunks = Chunks(scan(code))
    exchange(code / "sub" / "x.py")
    with pytest.raises(PreflightError, match="changed while it was being sent"):
        chunks.of(0)


def test_a_file_that_grows_without_end_is_given_up(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "read", lambda descriptor, size: bytes(size))
    with pytest.raises(PreflightError, match="changed while it was read"):
        scan(code)


def test_a_file_of_holes_is_refused_before_it_is_read(code: Path) -> None:
    with (code / "big").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(PreflightError, match="big is a sparse file") as refused:
        scan(code)
    assert ".dtctlignore" in refused.value.hint


@pytest.mark.parametrize("name", [".gitignore", ".dtctlignore"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "endless"])
def test_nobody_waits_for_an_ignore_file(code: Path, name: str, make: Callable[[Path], None]) -> None:
    make(code / name)
    with pytest.raises(PreflightError, match=f"cannot read .*{name}"):
        scan(code)

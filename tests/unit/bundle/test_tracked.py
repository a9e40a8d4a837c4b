"""Files that git tracks travel, whatever a `.gitignore` says of them; nothing of the repository runs for that."""

from __future__ import annotations

import subprocess
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.bundle import scan
from dtctl.bundle.ignore import TrackedFiles, _parsed
from tests.fuzz import cases


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def git(top: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    subprocess.run(["git", "-C", str(top), *who, *words], check=True, capture_output=True)


def write(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """`data/` is ignored; x.csv and deep/y.csv in it are tracked."""
    top = tmp_path / "repository"
    write(top, "train.py", "data/x.csv", "data/deep/y.csv", "data/large.bin", "data/deep/z.bin", "other/big", "run.log")
    (top / ".gitignore").write_text("data/\nother/\n*.log\n")
    git(top, "init", "-q")
    git(top, "add", "-f", "train.py", ".gitignore", "data/x.csv", "data/deep/y.csv")
    return top


def sent(code: Path) -> set[str]:
    return {file.path for file in scan(code).manifest.files}


TRACKED = {"train.py", ".gitignore", "data/x.csv", "data/deep/y.csv"}


def test_a_tracked_file_in_an_ignored_directory_travels(top: Path) -> None:
    bundle = scan(top)
    assert {file.path for file in bundle.manifest.files} == TRACKED
    assert bundle.skipped == (
        ("data/deep/z.bin", ".gitignore:1 data/"),
        ("data/large.bin", ".gitignore:1 data/"),
        ("other/", ".gitignore:2 other/"),
        ("run.log", ".gitignore:3 *.log"),
    )


def test_it_travels_from_a_directory_of_the_repository(top: Path) -> None:
    write(top, "src/main.py", "src/data/a.csv", "src/data/b.csv")
    git(top, "add", "-f", "src/data/a.csv")
    bundle = scan(top / "src")
    assert {file.path for file in bundle.manifest.files} == {"main.py", "data/a.csv"}
    assert bundle.skipped == (("data/b.csv", "../.gitignore:1 data/"),)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_version_of_the_index_is_read(top: Path, version: int) -> None:
    write(top, *(f"data/deep/file{number}" for number in range(300)))
    git(top, "add", "-f", *(f"data/deep/file{number}" for number in range(0, 300, 3)))
    if version == 3:  # by an entry with more flags
        write(top, "new")
        git(top, "add", "-N", "new")
    else:
        git(top, "update-index", "--index-version", str(version))
    names = subprocess.run(["git", "-C", str(top), "ls-files", "-z"], check=True, capture_output=True).stdout
    assert _parsed((top / ".git/index").read_bytes()) == ({*names.split(b"\0")} - {b""}, "")
    assert {f"data/deep/file{number}" for number in range(0, 300, 3)} < sent(top)


def test_the_index_of_a_worktree_is_read(top: Path, tmp_path: Path) -> None:
    git(top, "commit", "-qm", "x")
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert sent(tmp_path / "tree") == TRACKED


def test_a_split_index_is_read(top: Path) -> None:
    git(top, "update-index", "--split-index")
    write(top, "data/later")
    git(top, "add", "-f", "data/later")
    assert sent(top) == {*TRACKED, "data/later"}


def test_the_index_of_a_repository_with_sha256_is_read(tmp_path: Path) -> None:
    write(tmp_path, "code/train.py", "code/data/x.csv")
    (tmp_path / "code/.gitignore").write_text("data/\n")
    git(tmp_path / "code", "init", "-q", "--object-format=sha256")
    git(tmp_path / "code", "add", "-f", "data/x.csv", "train.py")
    assert "data/x.csv" in sent(tmp_path / "code")


def test_a_dtctlignore_has_the_last_word(top: Path) -> None:
    (top / ".dtctlignore").write_text("!/data/large.bin\n")
    assert sent(top) == {*TRACKED, ".dtctlignore", "data/large.bin"}
    (top / ".dtctlignore").write_text("!/data/deep/\n")
    assert sent(top) == {*TRACKED, ".dtctlignore", "data/deep/z.bin"}
    (top / ".dtctlignore").write_text("!/data/\n")
    assert sent(top) == {*TRACKED, ".dtctlignore", "data/large.bin", "data/deep/z.bin"}
    (top / ".dtctlignore").write_text("data/\nother/\n")
    assert sent(top) == {"train.py", ".gitignore", ".dtctlignore", "run.log"}


def test_a_tracked_secret_stays_at_home(top: Path) -> None:
    write(top, "data/.env")
    git(top, "add", "-f", "data/.env")
    assert scan(top).withheld == (("data/.env", ".env"),)


def test_nothing_of_the_repository_runs(top: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.editor", "alias.ls-files", "filter.x.clean", "core.sshCommand"):
        git(top, "config", key, str(script))
    git(top, "config", "core.hooksPath", str(tmp_path))
    assert sent(top) == TRACKED
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"DIRC", b"DIRC\0\0\0\2\xff\xff\xff\xff", b"gitdir: /nowhere", b"\0" * 200])
def test_an_index_that_cannot_be_read_tracks_nothing(top: Path, content: bytes) -> None:
    (top / ".git/index").write_bytes(content)
    assert sent(top) == {"train.py", ".gitignore"}


def _small_index_of_long_names() -> bytes:
    """Version 4 says of each name only in what it differs from the one before."""
    entry = b"\0" * 62 + b"\x08%08d\0"
    first = b"\0" * 63 + b"a" * 4080 + b"%08d\0" % 0
    return b"DIRC" + (4).to_bytes(4, "big") + (40_000).to_bytes(4, "big") + first + b"".join(
        entry % number for number in range(1, 40_000)
    )  # fmt: skip


def test_a_small_index_that_stands_for_much_tracks_nothing(top: Path) -> None:
    content = _small_index_of_long_names()
    (top / ".git/index").write_bytes(content)
    tracemalloc.start()
    try:
        assert sent(top) == {"train.py", ".gitignore"}
        assert tracemalloc.get_traced_memory()[1] < 120 * 2**20
    finally:
        tracemalloc.stop()


def test_an_index_of_many_deep_directories_tracks_nothing(top: Path) -> None:
    names = [b"%05d/" % number + b"a/" * 2000 + b"f" for number in range(100)]
    entries = b"".join(entry + b"\0" * (8 - len(entry) % 8) for entry in (b"\0" * 62 + name for name in names))
    (top / ".git/index").write_bytes(b"DIRC" + (2).to_bytes(4, "big") + len(names).to_bytes(4, "big") + entries)
    assert sent(top) == {"train.py", ".gitignore"}
    assert not TrackedFiles(top).have("00000", True)


def test_an_index_that_is_a_fifo_or_a_link_to_nowhere_tracks_nothing(top: Path) -> None:
    import os

    (top / ".git/index").unlink()
    os.mkfifo(top / ".git/index")
    assert sent(top) == {"train.py", ".gitignore"}
    (top / ".git/index").unlink()
    (top / ".git/index").symlink_to("nowhere")
    assert sent(top) == {"train.py", ".gitignore"}


@cases
@given(st.binary(max_size=300), st.sampled_from([2, 3, 4]), st.integers(0, 2**32 - 1))
def test_any_bytes_are_an_index_or_none(content: bytes, version: int, count: int) -> None:
    import struct

    try:
        names, base = _parsed(struct.pack(">4sII", b"DIRC", version, count) + content)
    except (ValueError, struct.error):
        return
    assert all(names)
    assert isinstance(base, str)


def test_a_path_that_was_left_out_has_its_rule(top: Path) -> None:
    write(top, ".env")
    bundle = scan(top)
    other = ("other/", ".gitignore:2 other/")
    assert bundle.left_out("data/deep/z.bin") == ("data/deep/z.bin", ".gitignore:1 data/")
    assert bundle.left_out("other/big") == bundle.left_out("other") == other
    assert bundle.left_out(".env") == (".env", ".env")
    for path in ("data/x.csv", "train.py", "nowhere", "other/nowhere", "data", "", "/etc/passwd", "../x"):
        assert bundle.left_out(path) is None, path


def test_without_a_repository_nothing_is_tracked() -> None:
    assert not TrackedFiles(None).have("x", is_directory=False)

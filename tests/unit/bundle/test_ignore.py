"""Which rules apply to which files. Their meaning is compared with git itself in tests/agent/."""

from __future__ import annotations

import subprocess
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from dtctl.bundle.ignore import TrackedFiles, _parse, _parsed
from dtctl.bundle.scanning import scan
from dtctl.errors import PreflightError
from dtctl.operations.up.launch import run_id
from tests.fuzz import cases
from tests.unit.bundle.trees import sent, write


def test_git_and_compiled_python_are_never_sent(tmp_path: Path) -> None:
    files = {"sub/.git": "gitdir: x", ".dtctlignore": "!.git\n"}
    code = write(tmp_path / "code", files, ".git/HEAD", "a/__pycache__/x.pyc", "a/x.py")
    assert sent(code) == {"a/x.py", ".dtctlignore"}
    assert scan(code).skipped == ()


def test_a_report_of_a_run_does_not_change_the_code(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"train.py": "", "report.html": ""})
    before = scan(code).manifest
    for form in ("html", "md"):
        write(code, {f"{run_id('digits', 1.8e9)}.{form}": "a page"})
    assert scan(code).manifest == before


def test_gitignore_files_apply_at_every_level(tmp_path: Path) -> None:
    rules = {".gitignore": "*.ckpt\n/data/\n", "sub/.gitignore": "!keep.ckpt\nlocal\n"}
    others = ("sub/keep.ckpt", "sub/other.ckpt", "sub/local", "sub/data/small")
    code = write(tmp_path / "code", rules, "train.py", "old.ckpt", "data/big", *others)
    assert sent(code) == {".gitignore", "train.py", "sub/.gitignore", "sub/keep.ckpt", "sub/data/small"}
    assert tuple(one.path for one in scan(code).skipped) == ("data/", "old.ckpt", "sub/local", "sub/other.ckpt")


def test_a_dtctlignore_replaces_all_gitignores(tmp_path: Path) -> None:
    counting = {".dtctlignore": "logs\n", "sub/.dtctlignore": "scratch\n"}
    others = {".gitignore": "generated.py\n", "sub/.gitignore": "*\n"}
    code = write(tmp_path / "code", {**counting, **others}, "generated.py", "logs/1", "sub/x.py", "sub/scratch")
    assert sent(code) == {*counting, *others, "generated.py", "sub/x.py"}


def test_rules_above_the_code_directory_apply_up_to_the_repository(tmp_path: Path) -> None:
    rules = {".gitignore": "train.py\n", "repo/.gitignore": "*.ckpt\n/training/code/here\n/code\n/training/\n"}
    names = ("train.py", "x.ckpt", "here", "code")
    write(tmp_path, rules, "repo/.git/HEAD", *(f"repo/training/code/{name}" for name in names))
    assert sent(tmp_path / "repo" / "training" / "code") == {"train.py", "code"}


def test_without_a_repository_no_rule_above_applies(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*\n", "code/train.py": ""})
    assert sent(tmp_path / "code") == {"train.py"}


def test_line_ends_and_marks_of_other_systems_are_understood(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"train.py": "", "a": "", "b/c": ""})
    (code / ".gitignore").write_bytes(b"\xef\xbb\xbfa\r\nb/\r\n")
    assert sent(code) == {"train.py", ".gitignore"}


def test_an_invalid_pattern_is_reported_with_its_line(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"train.py": "", ".gitignore": "fine\n***\n!\n"})
    with pytest.raises(PreflightError, match=r"\.gitignore:3: not a valid ignore pattern"):
        scan(code)


def test_dozens_of_stars_take_no_longer_than_one(tmp_path: Path) -> None:
    """Tried one after the other at each place, they would practically never end."""
    name = "a" * 120
    write(tmp_path, {name: "", f"{name}b": "", f"d/{name}c": "", ".dtctlignore": f"{'*a' * 30}*b\n{'?*' * 30}c\n"})
    assert sent(tmp_path) == {name, ".dtctlignore"}


def test_a_pattern_of_more_deep_stars_than_paths_have_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a": "", ".dtctlignore": f"x\n{'**/a/' * 17}b\n"})
    with pytest.raises(PreflightError, match=":2: not a valid ignore pattern") as caught:
        scan(tmp_path)
    assert "more than 16 `**`" in caught.value.detail


@given(
    pattern=st.text("ab*?/", min_size=1, max_size=12).filter(lambda text: not text.endswith("/")),
    path=st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3).map("/".join),
)
@cases
def test_a_bounded_pattern_matches_the_same_paths(pattern: str, path: str) -> None:
    try:
        (meant,) = GitIgnoreSpec.from_lines([pattern]).patterns
    except ValueError:
        return
    if meant.include is None:
        return
    found = meant.match_file(path)
    (rule,) = _parse(pattern, "x", "x")
    assert rule.decides(path) is (found is not None and not any(found.match.groups()))


def git(top: Path, *args: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    subprocess.run(["git", "-C", str(top), *who, *args], check=True, capture_output=True)


def write_tracked(top: Path, *names: str) -> None:
    write(top, {name: name for name in names})


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A repository in which `data/` is ignored, and x.csv and deep/y.csv in it are tracked."""
    top = tmp_path / "repository"
    write_tracked(
        top, "train.py", "data/x.csv", "data/deep/y.csv", "data/large.bin", "data/deep/z.bin", "other/big", "run.log"
    )
    (top / ".gitignore").write_text("data/\nother/\n*.log\n")
    git(top, "init", "-q")
    git(top, "add", "-f", "train.py", ".gitignore", "data/x.csv", "data/deep/y.csv")
    return top


TRACKED = {"train.py", ".gitignore", "data/x.csv", "data/deep/y.csv"}


def test_a_tracked_file_in_an_ignored_directory_is_sent(top: Path) -> None:
    bundle = scan(top)
    assert {file.path for file in bundle.manifest.files} == TRACKED
    assert bundle.skipped == (
        ("data/deep/z.bin", ".gitignore:1 data/"),
        ("data/large.bin", ".gitignore:1 data/"),
        ("other/", ".gitignore:2 other/"),
        ("run.log", ".gitignore:3 *.log"),
    )


def test_tracked_files_of_a_subdirectory_of_the_repository_are_sent(top: Path) -> None:
    write_tracked(top, "src/main.py", "src/data/a.csv", "src/data/b.csv")
    git(top, "add", "-f", "src/data/a.csv")
    bundle = scan(top / "src")
    assert {file.path for file in bundle.manifest.files} == {"main.py", "data/a.csv"}
    assert bundle.skipped == (("data/b.csv", "../.gitignore:1 data/"),)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_version_of_the_index_is_read(top: Path, version: int) -> None:
    write_tracked(top, *(f"data/deep/file{number}" for number in range(300)))
    git(top, "add", "-f", *(f"data/deep/file{number}" for number in range(0, 300, 3)))
    if version == 3:  # an entry with more flags
        write_tracked(top, "new")
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
    write_tracked(top, "data/later")
    git(top, "add", "-f", "data/later")
    assert sent(top) == {*TRACKED, "data/later"}


def test_the_index_of_a_repository_with_sha256_is_read(tmp_path: Path) -> None:
    write_tracked(tmp_path, "code/train.py", "code/data/x.csv")
    (tmp_path / "code/.gitignore").write_text("data/\n")
    git(tmp_path / "code", "init", "-q", "--object-format=sha256")
    git(tmp_path / "code", "add", "-f", "data/x.csv", "train.py")
    assert "data/x.csv" in sent(tmp_path / "code")


def test_dtctlignore_overrides_gitignore(top: Path) -> None:
    (top / ".dtctlignore").write_text("!/data/large.bin\n")
    assert sent(top) == {*TRACKED, ".dtctlignore", "data/large.bin"}
    (top / ".dtctlignore").write_text("!/data/deep/\n")
    assert sent(top) == {*TRACKED, ".dtctlignore", "data/deep/z.bin"}
    (top / ".dtctlignore").write_text("!/data/\n")
    assert sent(top) == {*TRACKED, ".dtctlignore", "data/large.bin", "data/deep/z.bin"}
    (top / ".dtctlignore").write_text("data/\nother/\n")
    assert sent(top) == {"train.py", ".gitignore", ".dtctlignore", "run.log"}


def test_excludes_of_the_repository_and_of_the_user_apply_below_gitignore(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (home / ".gitconfig").write_text("[core]\n  excludesFile = ~/mine\n")
    (home / "mine").write_text("*.swp\n*.tmp\n")
    (top / ".git" / "info").mkdir(exist_ok=True)
    (top / ".git" / "info" / "exclude").write_text("/scratch/\n!kept.tmp\n")
    code = write(top / "code", {}, "a.py", "a.swp", "a.tmp", "kept.tmp", "scratch/b.py")
    write(top, {}, "scratch/c.py")
    assert sent(code) == {"a.py", "kept.tmp", "scratch/b.py"}
    assert "scratch/c.py" not in sent(top)
    assert ("scratch/", ".git/info/exclude:1 /scratch/") in scan(top).skipped
    (code / ".gitignore").write_text("!a.swp\n")
    assert "a.swp" in sent(code)


def test_excludes_of_a_worktree_are_those_of_its_repository(top: Path, tmp_path: Path) -> None:
    git(top, "commit", "-qm", "x", "--allow-empty")
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"))
    (top / ".git" / "info" / "exclude").write_text("*.bak\n")
    write(tmp_path / "tree", {}, "a.py", "a.bak")
    assert "a.bak" not in sent(tmp_path / "tree")


def test_a_tracked_secret_is_not_sent(top: Path) -> None:
    write_tracked(top, "data/.env")
    git(top, "add", "-f", "data/.env")
    assert scan(top).withheld == (("data/.env", ".env"),)


def test_git_hooks_and_filters_of_the_repository_do_not_run(top: Path, tmp_path: Path) -> None:
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
    """An index of version 4, which stores only the difference of each name from the one before."""
    entry = b"\0" * 62 + b"\x08%08d\0"
    first = b"\0" * 63 + b"a" * 4080 + b"%08d\0" % 0
    return b"DIRC" + (4).to_bytes(4, "big") + (40_000).to_bytes(4, "big") + first + b"".join(
        entry % number for number in range(1, 40_000)
    )  # fmt: skip


def test_a_small_index_of_long_names_tracks_nothing(top: Path) -> None:
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


def test_a_skipped_path_has_its_rule(top: Path) -> None:
    write_tracked(top, ".env")
    bundle = scan(top)
    other = ("other/", ".gitignore:2 other/")
    assert bundle.left_out("data/deep/z.bin") == ("data/deep/z.bin", ".gitignore:1 data/")
    assert bundle.left_out("other/big") == bundle.left_out("other") == other
    assert bundle.left_out(".env") == (".env", ".env")
    for path in ("data/x.csv", "train.py", "nowhere", "other/nowhere", "data", "", "/nowhere/passwd", "../x"):
        assert bundle.left_out(path) is None, path


def test_without_a_repository_nothing_is_tracked() -> None:
    assert not TrackedFiles(None).have("x", is_directory=False)

"""Which rules apply to which files; that they mean what git means is compared with git itself in tests/agent/."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from dtctl.bundle import scan
from dtctl.bundle.ignore import TrackedFiles, _parse
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


def test_gitignore_files_rule_at_every_level(tmp_path: Path) -> None:
    rules = {".gitignore": "*.ckpt\n/data/\n", "sub/.gitignore": "!keep.ckpt\nlocal\n"}
    others = ("sub/keep.ckpt", "sub/other.ckpt", "sub/local", "sub/data/small")
    code = write(tmp_path / "code", rules, "train.py", "old.ckpt", "data/big", *others)
    assert sent(code) == {".gitignore", "train.py", "sub/.gitignore", "sub/keep.ckpt", "sub/data/small"}
    assert tuple(one.path for one in scan(code).skipped) == ("data/", "old.ckpt", "sub/local", "sub/other.ckpt")


def test_a_dtctlignore_takes_the_place_of_all_gitignores(tmp_path: Path) -> None:
    counting = {".dtctlignore": "logs\n", "sub/.dtctlignore": "scratch\n"}
    others = {".gitignore": "generated.py\n", "sub/.gitignore": "*\n"}
    code = write(tmp_path / "code", {**counting, **others}, "generated.py", "logs/1", "sub/x.py", "sub/scratch")
    assert sent(code) == {*counting, *others, "generated.py", "sub/x.py"}


def test_rules_above_the_code_directory_count_up_to_the_repository(tmp_path: Path) -> None:
    rules = {".gitignore": "train.py\n", "repo/.gitignore": "*.ckpt\n/training/code/here\n/code\n/training/\n"}
    names = ("train.py", "x.ckpt", "here", "code")
    write(tmp_path, rules, "repo/.git/HEAD", *(f"repo/training/code/{name}" for name in names))
    assert sent(tmp_path / "repo" / "training" / "code") == {"train.py", "code"}


def test_without_a_repository_nothing_above_counts(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*\n", "code/train.py": ""})
    assert sent(tmp_path / "code") == {"train.py"}


def test_line_ends_and_marks_of_other_systems_are_understood(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"train.py": "", "a": "", "b/c": ""})
    (code / ".gitignore").write_bytes(b"\xef\xbb\xbfa\r\nb/\r\n")
    assert sent(code) == {"train.py", ".gitignore"}


def test_a_line_that_is_no_pattern_is_named(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"train.py": "", ".gitignore": "fine\n***\n!\n"})
    with pytest.raises(PreflightError, match=r"\.gitignore:3: not a valid ignore pattern"):
        scan(code)


def test_dozens_of_stars_take_no_longer_than_one(tmp_path: Path) -> None:
    """Tried one after the other at each place, they would take until the end of the world."""
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
def test_a_bounded_pattern_means_what_it_meant(pattern: str, path: str) -> None:
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
    """`data/` is ignored; x.csv and deep/y.csv in it are tracked."""
    top = tmp_path / "repository"
    write_tracked(
        top, "train.py", "data/x.csv", "data/deep/y.csv", "data/large.bin", "data/deep/z.bin", "other/big", "run.log"
    )
    (top / ".gitignore").write_text("data/\nother/\n*.log\n")
    git(top, "init", "-q")
    git(top, "add", "-f", "train.py", ".gitignore", "data/x.csv", "data/deep/y.csv")
    return top


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
    write_tracked(top, "src/main.py", "src/data/a.csv", "src/data/b.csv")
    git(top, "add", "-f", "src/data/a.csv")
    bundle = scan(top / "src")
    assert {file.path for file in bundle.manifest.files} == {"main.py", "data/a.csv"}
    assert bundle.skipped == (("data/b.csv", "../.gitignore:1 data/"),)


def test_a_worktree_has_tracked_files_too(top: Path, tmp_path: Path) -> None:
    git(top, "commit", "-qm", "x")
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert sent(tmp_path / "tree") == TRACKED


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
    write_tracked(top, "data/.env")
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


@pytest.mark.parametrize("program", ["", "exit 128"])
def test_without_git_and_where_it_cannot_read_the_repository_nothing_is_tracked(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if program:
        (programs / "git").write_text(f"#!/bin/sh\n{program}\n")
        (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    assert sent(top) == {"train.py", ".gitignore"}


def test_a_path_that_was_left_out_has_its_rule(top: Path) -> None:
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

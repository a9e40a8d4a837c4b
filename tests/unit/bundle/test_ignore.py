"""Which rules apply; that they mean what git means is compared with git itself in tests/agent/."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from dtctl.bundle import scan
from dtctl.bundle.ignore import _parse
from dtctl.errors import PreflightError
from dtctl.operations.up.launch import run_id
from tests.fuzz import cases


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(code: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    return code


def sent(code: Path) -> set[str]:
    return {file.path for file in scan(code).manifest.files}


def test_git_and_compiled_python_are_never_sent(tmp_path: Path) -> None:
    files = {
        ".git/HEAD": "",
        "sub/.git": "gitdir: x",
        "a/__pycache__/x.pyc": "",
        "a/x.py": "",
        ".dtctlignore": "!.git\n",
    }
    code = write(tmp_path / "code", files)
    assert sent(code) == {"a/x.py", ".dtctlignore"}
    assert scan(code).skipped == ()


def test_a_report_of_a_run_does_not_change_the_code(tmp_path: Path) -> None:
    code = write(tmp_path / "code", {"train.py": "", "report.html": ""})
    before = scan(code).manifest
    for form in ("html", "md"):
        write(code, {f"{run_id('digits', 1.8e9)}.{form}": "a page"})
    assert scan(code).manifest == before


def test_gitignore_files_rule_at_every_level(tmp_path: Path) -> None:
    code = write(
        tmp_path / "code",
        {
            ".gitignore": "*.ckpt\n/data/\n",
            "train.py": "",
            "old.ckpt": "",
            "data/big": "",
            "sub/.gitignore": "!keep.ckpt\nlocal\n",
            "sub/keep.ckpt": "",
            "sub/other.ckpt": "",
            "sub/local": "",
            "sub/data/small": "",
        },
    )
    assert sent(code) == {".gitignore", "train.py", "sub/.gitignore", "sub/keep.ckpt", "sub/data/small"}
    assert scan(code).skipped == ("data/", "old.ckpt", "sub/local", "sub/other.ckpt")


def test_a_dtctlignore_takes_the_place_of_all_gitignores(tmp_path: Path) -> None:
    code = write(
        tmp_path / "code",
        {
            ".dtctlignore": "logs\n",
            ".gitignore": "generated.py\n",
            "generated.py": "",
            "logs/1": "",
            "sub/.gitignore": "*\n",
            "sub/.dtctlignore": "scratch\n",
            "sub/x.py": "",
            "sub/scratch": "",
        },
    )
    assert sent(code) == {
        ".dtctlignore",
        ".gitignore",
        "generated.py",
        "sub/.gitignore",
        "sub/.dtctlignore",
        "sub/x.py",
    }


def test_rules_above_the_code_directory_count_up_to_the_repository(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "train.py\n",
            "repo/.git/HEAD": "",
            "repo/.gitignore": "*.ckpt\n/training/code/here\n/code\n/training/\n",
            "repo/training/code/train.py": "",
            "repo/training/code/x.ckpt": "",
            "repo/training/code/here": "",
            "repo/training/code/code": "",
        },
    )
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
    (rule,) = _parse(pattern, "x")
    assert rule.decides(path) is (found is not None and not any(found.match.groups()))

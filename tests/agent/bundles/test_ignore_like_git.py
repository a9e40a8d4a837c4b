"""The ignore rules mean what they mean to git: random trees and rules, compared with what git itself lists."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from dtctl.bundle.scanning import scan
from dtctl.errors import PreflightError

WORDS = ["a", "b", "*", "**", "*.py", "k.txt", "?", "[ab]", "\\a"]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def make_tree(choose: random.Random, directory: Path, depth: int = 0) -> None:
    directory.mkdir()
    for name in choose.sample(["a", "b", "c.py", "k.txt"], 3):
        if depth < 3 and "." not in name and choose.random() < 0.5:
            make_tree(choose, directory / name, depth + 1)
        else:
            (directory / name).write_text("")
    if depth == 0 or choose.random() < 0.3:
        (directory / ".gitignore").write_text("".join(pattern(choose) + "\n" for _ in range(choose.randint(1, 4))))


def pattern(choose: random.Random) -> str:
    path = "/".join(choose.choice(WORDS) for _ in range(choose.randint(1, 3)))
    negated, anchored, directory = (choose.random() < chance for chance in (0.35, 0.25, 0.3))
    return "!" * negated + "/" * anchored + path + "/" * directory


def listed_by_git(directory: Path) -> set[str]:
    command = ["git", "-C", str(directory), "ls-files", "-z", "-o", "--exclude-per-directory=.gitignore"]
    done = subprocess.run(command, capture_output=True, check=True)
    return set(done.stdout.decode().split("\0")) - {""}


def sent(directory: Path) -> set[str]:
    try:
        return {file.path for file in scan(directory).manifest.files}
    except PreflightError:  # there is no file to send
        return set()


def test_sent_files_are_those_that_git_would_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    subprocess.run(["git", "init", "-q", str(tmp_path / "repository")], check=True)
    seen: set[int] = set()
    for seed in range(60):
        directory = tmp_path / "repository" / f"code-{seed}"
        make_tree(random.Random(seed), directory)
        expected = listed_by_git(directory)
        assert sent(directory) == expected, f"seed {seed}"
        seen.add(len(expected))
    assert len(seen) > 5, "the trees differ"


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ("# comment\n\n\\#real\n", ["#real", "x"]),
        ("trailing \nkept\\ \n", ["trailing", "kept ", "kept"]),
        ("*\n!*/\n!*.py\n", ["a.py", "a.txt", "sub/a.py", "sub/a.txt"]),
        ("data/*\n!data/.keep\n", ["data/.keep", "data/x", "data/sub/y"]),
        ("build/\n", ["build/x", "src/build/y", "src/x"]),
        ("*.ckpt*\n!best.ckpt\n", ["model.ckpt-1", "best.ckpt"]),
        ("**/logs/**/*.txt\n", ["logs/a/b.txt", "x/logs/c.txt", "logs.txt"]),
        ("A\n", ["a", "A"]),
        ("ä*\n", ["ärger", "x"]),
        ("!x\n\\!y\n", ["x", "!y"]),
    ],
)
def test_common_idioms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: str, names: list[str]) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = tmp_path / "code"
    code.mkdir()
    subprocess.run(["git", "init", "-q", str(code)], check=True)
    (code / ".gitignore").write_text(rules)
    for name in names:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("")
    assert sent(code) == listed_by_git(code)

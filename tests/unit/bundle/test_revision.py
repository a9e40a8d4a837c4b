"""The commit of the code, and its differences, as git itself would report them."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time
import zlib
from pathlib import Path

import pytest

from dtctl.bundle.git_objects import Objects, Unreadable
from dtctl.bundle.git_repository import commits_between, without_credentials
from dtctl.bundle.ignore import index_entries
from dtctl.bundle.revision import Inspected, inspect
from dtctl.bundle.scanning import scan
from dtctl.model import Revision

USER = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"]


def git(place: Path, *words: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *USER, *words], cwd=place, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    (place / "lib").mkdir(parents=True)
    (place / "train.py").write_text("".join(f"step_{number} = {number}\n" for number in range(200)))
    (place / "lib" / "model.py").write_text("layers = 3\n")
    (place / "link").symlink_to("train.py")
    git(place, "init", "-q", "-b", "main")
    commit(place)
    return place


def commit(place: Path, subject: str = "First") -> str:
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", subject)
    return git(place, "rev-parse", "HEAD")


def found(code: Path, **given: list[str]) -> Inspected:
    inspected = inspect(scan(code), **given)
    assert inspected is not None
    return inspected


def test_a_clean_repository_has_its_commit_and_no_difference(code: Path) -> None:
    assert found(code) == Inspected(Revision(git(code, "rev-parse", "HEAD"), "main", changed=0))


def test_no_repository_has_no_revision(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("1\n")
    assert inspect(scan(tmp_path)) is None


def test_every_kind_of_change_is_found_and_the_diff_makes_it(code: Path, tmp_path: Path) -> None:
    git(code, "clone", "-q", str(code), str(tmp_path / "other"))
    (code / "train.py").write_text((code / "train.py").read_text().replace("step_7 = 7\n", "step_7 = 8\n"))
    (code / "lib" / "model.py").unlink()
    (code / "new.py").write_text("without an end of line")
    git(code, "add", "new.py")
    (code / "untracked.sh").write_text("echo\n")
    (code / "untracked.sh").chmod(0o755)
    inspected = found(code)
    assert inspected.changed == ("lib/model.py", "new.py", "train.py", "untracked.sh")
    assert (inspected.revision.changed, inspected.revision.untracked) == (4, 2)
    (tmp_path / "diff").write_text(inspected.diff)
    git(tmp_path / "other", "apply", str(tmp_path / "diff"))
    assert scan(tmp_path / "other").manifest.files == scan(code).manifest.files


def test_changed_modes_and_links_are_differences(code: Path) -> None:
    (code / "train.py").chmod(0o755)
    (code / "link").unlink()
    (code / "link").symlink_to("lib/model.py")
    assert found(code).changed == ("link", "train.py")
    assert "old mode 100644\nnew mode 100755" in found(code).diff


def test_ignored_and_withheld_files_are_no_differences(code: Path) -> None:
    (code / ".gitignore").write_text("*.log\n")
    (code / "a.log").write_text("1\n")
    (code / ".env").write_text("TOKEN=abc123\n")
    assert found(code).changed == (".gitignore",)


def test_staged_changes_are_compared_with_the_commit(code: Path) -> None:
    (code / "lib" / "model.py").write_text("layers = 4\n")
    git(code, "add", "-A")
    os.utime(code / ".git" / "index", (2**31, 2**31))
    assert found(code).changed == ("lib/model.py",)


def test_unchanged_files_are_not_read(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(code / ".git" / "index", (2**31, 2**31))
    monkeypatch.setattr("dtctl.bundle.revision._Comparison._is_content", lambda *words: pytest.fail("it was read"))
    assert found(code).revision.changed == 0


def test_a_file_of_the_same_size_and_time_is_read_if_it_was_changed(code: Path) -> None:
    model = code / "lib" / "model.py"
    known = model.stat()
    model.write_text("layers = 4\n")
    os.utime(model, ns=(known.st_atime_ns, known.st_mtime_ns))
    os.utime(code / ".git" / "index", (2**31, 2**31))
    assert found(code).changed == ("lib/model.py",)


def test_a_split_index_has_no_entries(code: Path) -> None:
    assert len(index_entries(code / ".git", 20)[0]) == 3
    git(code, "update-index", "--split-index")
    assert index_entries(code / ".git", 20) == ({}, 0)
    assert found(code).revision.changed == 0


def test_a_touched_file_is_read_and_is_unchanged(code: Path) -> None:
    os.utime(code / "train.py", (1, 1))
    assert found(code).revision.changed == 0


def test_packed_objects_and_references_are_read(code: Path) -> None:
    for number in range(20):
        (code / "train.py").write_text((code / "train.py").read_text() + f"more = {number}\n")
        commit(code, f"Change {number}")
    git(code, "gc", "-q", "--aggressive", "--prune=now")
    git(code, "pack-refs", "--all")
    (code / "train.py").write_text((code / "train.py").read_text() + "last = 1\n")
    inspected = found(code)
    assert inspected.revision == Revision(git(code, "rev-parse", "HEAD"), "main", changed=1)
    assert "+last = 1" in inspected.diff


def test_every_object_of_a_pack_is_as_git_reads_it(code: Path) -> None:
    for number in range(10):
        (code / "train.py").write_text((code / "train.py").read_text() + f"more = {number}\n")
        commit(code, f"Change {number}")
    git(code, "gc", "-q", "--aggressive")
    names = git(code, "rev-list", "--objects", "--all").splitlines()
    with Objects(code / ".git" / "objects") as objects:
        for name in [line.split()[0] for line in names]:
            kind = git(code, "cat-file", "-t", name)
            data = objects.read(name, kind, 1 << 20)
            assert hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).hexdigest() == name


def test_a_worktree_has_its_own_head_and_index(code: Path, tmp_path: Path) -> None:
    git(code, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side" / "train.py").write_text("1\n")
    inspected = found(tmp_path / "side")
    assert (inspected.revision.branch, inspected.changed) == ("side", ("train.py",))
    assert found(code).revision.branch == "main"


def test_a_detached_head_has_no_branch(code: Path) -> None:
    git(code, "checkout", "-q", "--detach")
    assert found(code).revision == Revision(git(code, "rev-parse", "HEAD"), "", changed=0)


def test_an_unborn_branch_has_no_commit_and_a_note(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "train.py").write_text("1\n")
    assert found(tmp_path).revision == Revision("", "main", "", 1, 1, "the branch has no commit yet")


def test_a_shallow_clone_and_one_with_alternates_are_read(code: Path, tmp_path: Path) -> None:
    (code / "lib" / "model.py").write_text("layers = 4\n")
    name = commit(code, "Second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{code}", "shallow")
    git(tmp_path, "clone", "-q", "--shared", str(code), "shared")
    for clone in ("shallow", "shared"):
        revision = found(tmp_path / clone).revision
        assert (revision.commit, revision.changed, revision.note) == (name, 0, "")


def test_the_code_directory_may_be_below_the_top(code: Path) -> None:
    (code / "train.py").write_text("1\n")
    assert found(code / "lib").revision.changed == 0
    (code / "lib" / "model.py").write_text("layers = 5\n")
    assert found(code / "lib").changed == ("model.py",)


def test_a_repository_of_sha256_is_read(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "-b", "main")
    (tmp_path / "train.py").write_text("1\n")
    name = commit(tmp_path)
    git(tmp_path, "gc", "-q")
    assert found(tmp_path).revision == Revision(name, "main", changed=0)


def test_windows_line_ends_alone_are_no_difference(code: Path) -> None:
    (code / "lib" / "model.py").write_bytes(b"layers = 3\r\n")
    assert found(code).revision.changed == 0


def test_the_configuration_of_a_repository_starts_nothing(code: Path, tmp_path: Path) -> None:
    marker = tmp_path / "started"
    run = f"touch {marker}"
    config = code / ".git" / "config"
    programs = f"[core]\n\tfsmonitor = {run}\n\tpager = {run}\n\thooksPath = .\n\tsshCommand = {run}\n"
    filters = f'[filter "x"]\n\tclean = {run}\n\tsmudge = {run}\n\tprocess = {run}\n[diff "x"]\n\ttextconv = {run}\n'
    config.write_text(config.read_text() + programs + filters + f"\tcommand = {run}\n\texternal = {run}\n")
    (code / ".gitattributes").write_text("* filter=x diff=x\n")
    (code / "train.py").write_text("changed\n")
    assert found(code).changed == (".gitattributes", "train.py")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("file", "content", "note"),
    [
        ("HEAD", b"", "HEAD is damaged"),
        ("HEAD", b"ref: ../../secret\n", "HEAD is damaged"),
        ("HEAD", b"ref: refs/heads/.invalid\n", "(reftable)"),
        ("HEAD", b"ref: refs/heads/main\n" * 1000, "cannot be read"),
        ("refs/heads/main", b"ref: refs/heads/main\n", "too many references"),
        ("refs/heads/main", b"12ab" * 10, "object 12ab12ab12ab is missing"),
    ],
)
def test_a_damaged_repository_is_a_note(code: Path, file: str, content: bytes, note: str) -> None:
    (code / ".git" / file).write_bytes(content)
    revision = found(code).revision
    assert note in revision.note
    assert revision.changed is None


def test_a_git_file_that_leads_nowhere_is_a_note(code: Path) -> None:
    git(code, "gc", "-q")
    (code / ".git").rename(code.parent / "gone")
    (code / ".git").write_text("gitdir: /nowhere\n")
    assert found(code).revision.note == "the repository has no HEAD"


@pytest.mark.parametrize("how", ["file", "link"])
def test_a_repository_of_another_directory_is_not_read(how: str, code: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text("1\n")
    if how == "file":
        (other / ".git").write_text(f"gitdir: {code}/.git\n")
    else:
        (other / ".git").symlink_to(code / ".git")
    inspected = found(other)
    assert (inspected.revision.commit, inspected.diff, inspected.revision.changed) == ("", "", None)
    assert "does not name this directory" in inspected.revision.note


def test_a_common_directory_elsewhere_is_not_read(code: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "train.py").write_text("1\n")
    name = commit(other)
    assert commits_between(other, name, name) == ([], [])
    (other / ".git" / "commondir").write_text(f"{code}/.git\n")
    inspected = found(other)
    assert (inspected.revision.commit, inspected.diff, inspected.revision.changed) == ("", "", None)
    assert "of which it is no worktree" in inspected.revision.note
    first = git(code, "rev-parse", "HEAD")
    assert commits_between(other, first, first) is None


def test_a_tree_of_very_many_empty_trees_is_not_read_to_its_end(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    tree = git(code, "hash-object", "-w", "-t", "tree", str(tmp_path / "empty"))
    for _ in range(8):
        (tmp_path / "tree").write_bytes(
            b"".join(b"40000 %02d\0" % number + bytes.fromhex(tree) for number in range(10))
        )
        tree = git(code, "hash-object", "-w", "-t", "tree", str(tmp_path / "tree"))
    git(code, "update-ref", "HEAD", git(code, "commit-tree", "-m", "Bomb", tree))
    monkeypatch.setattr("dtctl.bundle.revision._MOST_ENTRIES", 1000)
    assert found(code).revision.note == "the commit has too many files"
    monkeypatch.setattr("dtctl.bundle.revision._MOST_ENTRIES", 10**9)
    monkeypatch.setattr("dtctl.bundle.revision.INSPECT_S", 0.3)
    began = time.process_time()
    assert "takes too long" in found(code).revision.note
    assert time.process_time() - began < 3


def test_repeated_lines_are_not_compared_for_long(code: Path) -> None:
    chosen = random.Random(1)
    for name in ("First", "Second"):
        (code / "data.csv").write_text("".join(f"{chosen.randrange(150)}\n" for _ in range(30_000)))
        if name == "First":
            commit(code, name)
    assert (code / "data.csv").stat().st_size < 1 << 17
    began = time.process_time()
    assert "too large to compare" in found(code).diff
    assert time.process_time() - began < 2


def test_one_change_among_repeated_lines_is_shown_where_it_is(code: Path, tmp_path: Path) -> None:
    lines = [f"{number * number % 127}\n" for number in range(30_000)]
    (code / "data.csv").write_text("".join(lines))
    commit(code, "Data")
    git(code, "clone", "-q", str(code), str(tmp_path / "other"))
    lines[15_000], lines[14_990] = "new\n", ""
    (code / "data.csv").write_text("".join(lines))
    (tmp_path / "diff").write_text(found(code).diff)
    git(tmp_path / "other", "apply", str(tmp_path / "diff"))
    assert (tmp_path / "other" / "data.csv").read_text() == (code / "data.csv").read_text()


def test_damaged_objects_and_packs_are_notes(code: Path) -> None:
    git(code, "gc", "-q")
    (pack,) = (code / ".git" / "objects" / "pack").glob("*.pack")
    pack.chmod(0o644)
    pack.write_bytes(pack.read_bytes()[:40] + b"\xff" * 4000)
    assert "cannot be read" in found(code).revision.note


def test_a_fifo_in_place_of_head_does_not_block(code: Path) -> None:
    (code / ".git" / "HEAD").unlink()
    os.mkfifo(code / ".git" / "HEAD")
    assert "cannot be read" in found(code).revision.note


def test_an_object_that_inflates_is_not_read_beyond_the_limit(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / ("ab" * 19)).write_bytes(zlib.compress(b"blob 99999999999\0" + bytes(1 << 24)))
    (tmp_path / "12" / ("cd" * 19)).write_bytes(zlib.compress(b"blob 5\0" + bytes(1 << 24)))
    with Objects(tmp_path) as objects:
        with pytest.raises(Unreadable, match="too large"):
            objects.read("12" + "ab" * 19, "blob", 1 << 20)
        with pytest.raises(Unreadable, match="cannot be read"):
            objects.read("12" + "cd" * 19, "blob", 1 << 20)


def test_alternates_in_a_circle_end(code: Path) -> None:
    (code / ".git" / "objects" / "info" / "alternates").write_text(f"{code}/.git/objects\n" * 50)
    assert found(code).revision.changed == 0


def test_secrets_are_masked_in_the_diff(code: Path) -> None:
    (code / "train.py").write_text("key = 'AKIAIOSFODNN7EXAMPLE'\nother = 'my-own-value'\n")
    diff = found(code, secrets=["my-own-value"]).diff
    assert "AKIA" not in diff
    assert "my-own-value" not in diff
    assert "+other = '***'" in diff


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:ghp_abcdefghijklmnop1234@github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://ghp_abcdefghijklmnop1234@github.com/a/b", "https://github.com/a/b"),
        ("https://example.com/a?private_token=12345678#x", "https://example.com/a"),
        ("ssh://git:secret@example.com:22/a", "ssh://git@example.com:22/a"),
        ("git@github.com:a/b.git", "git@github.com:a/b.git"),
        ("/srv/git/a.git", "/srv/git/a.git"),
        ("https://[::1/a", ""),
    ],
)
def test_a_remote_is_shown_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


def test_the_remote_is_that_of_the_branch(code: Path) -> None:
    git(code, "remote", "add", "origin", "https://me:pw@example.com/origin.git")
    assert found(code).revision.remote == "https://example.com/origin.git"
    git(code, "remote", "add", "fork", "https://example.com/fork.git")
    git(code, "config", "branch.main.remote", "fork")
    assert found(code).revision.remote == "https://example.com/fork.git"


def test_pointers_of_lfs_and_empty_submodules_are_named(code: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "a.py").write_text("1\n")
    commit(other)
    git(code, "submodule", "add", "-q", str(other), "sub")
    oid = hashlib.sha256(b"weights" * 100).hexdigest()
    (code / "weights.bin").write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 700\n")
    commit(code)
    assert found(code).pointers == ("weights.bin",)
    assert (found(code).revision.changed, found(code).empty_submodules) == (0, ())
    assert found(code / "sub").revision.commit == git(other, "rev-parse", "HEAD")
    git(tmp_path, "clone", "-q", str(code), "clone")
    assert found(tmp_path / "clone").empty_submodules == ("sub",)
    (code / "weights.bin").write_bytes(b"weights" * 100)
    assert (found(code).pointers, found(code).revision.changed) == ((), 0)


def test_commits_between_are_those_of_one_side_only(code: Path) -> None:
    first = git(code, "rev-parse", "HEAD")
    (code / "train.py").write_text("2\n")
    second = commit(code, "Second")
    git(code, "checkout", "-q", "-b", "side", first)
    (code / "train.py").write_text("3\n")
    third = commit(code, "Third")
    assert commits_between(code, first, second) == ([f"{second[:12]} Second"], [])
    assert commits_between(code, second, third) == ([f"{third[:12]} Third"], [f"{second[:12]} Second"])
    assert commits_between(code, first, "1" * 40) is None
    assert commits_between(code, "--exec", first) is None

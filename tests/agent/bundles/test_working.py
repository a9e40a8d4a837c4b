"""The working directory: the code comes and goes, and what trainers write stays."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from dtctl.agent.bundles import working
from dtctl.agent.host.errors import Refused
from dtctl.bundle.scanning import scan
from tests.agent.bundles.pushing import content, placed, push


@pytest.fixture
def tree(root: Path) -> Path:
    return root / "work" / "c" / "tree"


def start(code: Path, root: Path, run: str) -> list[str]:
    """As `up` does it: pushes the code and puts it where trainers work; what was moved aside."""
    bundle = scan(code)
    push(bundle, root)
    return working.lay_out(str(root), "c", run, bundle.id)


def names(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}


def test_the_working_directory_holds_the_code_as_it_was_pushed(code: Path, root: Path, tree: Path) -> None:
    assert start(code, root, "r1") == []
    bundle = root / "bundles" / scan(code).id / "tree"
    assert content(tree) == content(bundle)
    assert not any(path.is_symlink() for path in tree.rglob("*.py"))


def test_trainer_output_remains_after_a_change_of_the_code(code: Path, root: Path, tree: Path) -> None:
    start(code, root, "r1")
    (tree / "model").mkdir()
    (tree / "model" / "ckpt-1").write_text("hours of work")
    (tree / "pkg" / "cache").write_text("beside its own modules")
    (code / "train.py").write_text("# another\n")
    assert start(code, root, "r2") == []
    assert (tree / "train.py").read_text() == "# another\n"
    assert (tree / "model" / "ckpt-1").read_text() == "hours of work"
    assert (tree / "pkg" / "cache").exists()


def test_files_that_the_new_code_lacks_go_with_their_directories(code: Path, root: Path, tree: Path) -> None:
    (code / "old" / "deep").mkdir(parents=True)
    (code / "old" / "deep" / "gone.py").write_text("")
    (code / "old" / "link").symlink_to("deep")
    start(code, root, "r1")
    (tree / "old" / "deep" / "__pycache__").mkdir()
    (tree / "old" / "deep" / "__pycache__" / "gone.pyc").write_text("Python's own")
    for path in (code / "old" / "deep" / "gone.py", code / "old" / "link"):
        path.unlink()
    (code / "old" / "deep").rmdir()
    (code / "old").rmdir()
    start(code, root, "r2")
    assert not (tree / "old").exists()


def test_a_stale_file_that_a_trainer_has_changed_is_the_trainers(code: Path, root: Path, tree: Path) -> None:
    (code / "results.csv").write_text("a,b\n")
    start(code, root, "r1")
    (tree / "results.csv").write_text("a,b\n1,2\n")
    (code / "results.csv").unlink()
    assert start(code, root, "r2") == []
    assert (tree / "results.csv").read_text() == "a,b\n1,2\n"


def test_pushed_file_wins_and_the_changed_one_is_moved_aside(code: Path, root: Path, tree: Path) -> None:
    (code / "results.csv").write_text("a,b\n")
    start(code, root, "r1")
    (tree / "results.csv").write_text("a,b\n1,2\n")
    (tree / "notes").mkdir()
    (tree / "notes" / "one").write_text("1")
    (tree / "settings").write_text("lr: 1")
    (code / "notes").write_text("a file now\n")
    (code / "settings").mkdir()
    (code / "settings" / "base.yaml").write_text("lr: 2\n")
    aside = [Path(path) for path in start(code, root, "r2")]
    assert sorted(path.name.partition(".written-")[0] for path in aside) == ["notes", "results.csv", "settings"]
    assert (tree / "results.csv").read_text() == "a,b\n"
    assert (tree / "notes").read_text() == "a file now\n"
    assert (tree / "settings" / "base.yaml").exists()
    assert {path.read_text() for path in aside if path.is_file()} == {"a,b\n1,2\n", "lr: 1"}
    (directory,) = (path for path in aside if path.is_dir())
    assert (directory / "one").read_text() == "1"


def test_a_file_that_a_trainer_wrote_just_as_it_is_pushed_now_is_no_conflict(
    code: Path, root: Path, tree: Path
) -> None:
    start(code, root, "r1")
    (tree / "vocabulary").write_text("a b c\n")
    (code / "vocabulary").write_text("a b c\n")
    assert start(code, root, "r2") == []


def test_unchanged_files_are_left_alone(code: Path, root: Path, tree: Path) -> None:
    start(code, root, "r1")
    before = (tree / "train.py").stat()
    (code / "other.py").write_text("new\n")
    start(code, root, "r2")
    assert (tree / "train.py").stat() == before


def test_a_run_is_laid_out_once_whatever_its_trainers_have_done_since(code: Path, root: Path, tree: Path) -> None:
    """Several hosts of an inventory may share the directory, and start one after the other."""
    start(code, root, "r1")
    (tree / "train.py").write_text("changed by a trainer that runs already")
    assert start(code, root, "r1") == []
    assert (tree / "train.py").read_text() == "changed by a trainer that runs already"


def test_what_the_setup_has_made_is_linked_and_its_directories_are_the_trainers(
    code: Path, root: Path, tree: Path
) -> None:
    bundle, pushed = placed(code, root)
    (pushed / "lib" / "package").mkdir(parents=True)
    (pushed / "lib" / "package" / "big.so").write_text("built")
    (pushed / "lib64").symlink_to("lib")
    (pushed / "output").mkdir()
    working.lay_out(str(root), "c", "r1", bundle.id)
    assert (tree / "lib" / "package" / "big.so").readlink() == pushed / "lib" / "package" / "big.so"
    assert (tree / "lib64" / "package" / "big.so").read_text() == "built"
    (tree / "output" / "ckpt").write_text("mine")
    assert not list((pushed / "output").iterdir())


@pytest.mark.parametrize("spoilt", ["", "[]", '{"id": "no hex"}', None], ids=str)
def test_without_a_good_record_files_are_known_by_their_content(
    code: Path, root: Path, tree: Path, spoilt: str | None
) -> None:
    start(code, root, "r1")
    record = tree.parent / "code.json"
    record.unlink() if spoilt is None else record.write_text(spoilt)
    assert start(code, root, "r2") == []
    record.unlink()
    (tree / "train.py").write_text("who knows whose")
    (aside,) = start(code, root, "r3")
    assert Path(aside).read_text() == "who knows whose"


def test_a_change_that_a_full_disk_breaks_off_is_taken_up_again(
    code: Path, root: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(code, root, "r1")
    (code / "a.py").write_text("a\n")
    (code / "train.py").write_text("second\n")
    copy = working._copy

    def full(source: str, target: str, mode: int) -> None:
        if source.endswith("train.py"):
            raise OSError(28, "No space left on device", target)
        copy(source, target, mode)

    with monkeypatch.context() as patch:
        patch.setattr(working, "_copy", full)
        with pytest.raises(Refused) as refused:
            start(code, root, "r2")
    assert refused.value.code == "disk_full"
    (code / "train.py").write_text("third\n")
    (code / "a.py").write_text("another a\n")
    assert start(code, root, "r3") == []
    assert (tree / "train.py").read_text() == "third\n"


def test_the_code_is_taken_away_and_what_trainers_wrote_is_reported(code: Path, root: Path, tree: Path) -> None:
    start(code, root, "r1")
    (tree / "pkg" / "__pycache__").mkdir()
    (tree / "pkg" / "__pycache__" / "x.pyc").write_text("Python's own")
    (tree / "model").write_bytes(b"x" * 100_000)
    (tree / "newest").symlink_to("model")
    result = working.clear(str(root), "c", dry_run=True)
    assert (tree / "train.py").exists()
    freed, written = working.clear(str(root), "c")
    assert written is not None
    assert names(tree) == {"model", "newest"}
    assert (written["cluster"], written["path"], written["files"]) == ("c", str(tree), 2)
    assert 100_000 <= written["size_bytes"] < 200_000
    assert freed >= result[0] > 0
    assert working.clear(str(root), "c")[0] == working.clear(str(root), "c", dry_run=True)[0] == 0, "it is free already"
    assert result[1] is not None
    assert result[1]["id"] == written["id"]
    assert working.remove(str(root), "c")
    assert working.clusters(str(root)) == []


def test_a_directory_in_which_nothing_was_written_goes(code: Path, root: Path, tree: Path) -> None:
    start(code, root, "r1")
    assert working.clear(str(root), "c", dry_run=True)[1] is None
    assert tree.exists()
    assert working.clear(str(root), "c")[1] is None
    assert not tree.parent.exists()
    assert working.clear(str(root), "c") == (0, None)


def test_what_a_session_is_about_to_use_is_left_alone(code: Path, root: Path, tree: Path) -> None:
    start(code, root, "r1")
    other = os.open(tree.parent / "lock", os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert working.clear(str(root), "c") == (0, None)
        assert not working.remove(str(root), "c")
        assert (tree / "train.py").exists()
    finally:
        os.close(other)
    assert working.remove(str(root), "c")


def test_a_trainer_that_has_exchanged_its_directories_loses_nothing(code: Path, root: Path, tree: Path) -> None:
    start(code, root, "r1")
    elsewhere = root / "elsewhere"
    (tree / "pkg").rename(elsewhere)
    (elsewhere / "more").write_text("more")
    (tree / "pkg").symlink_to(elsewhere)
    (aside,) = start(code, root, "r2")
    assert Path(aside).readlink() == elsewhere
    assert (tree / "pkg" / "__init__.py").is_file()
    assert (elsewhere / "more").read_text() == "more"

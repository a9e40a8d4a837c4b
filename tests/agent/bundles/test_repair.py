"""A bundle on a host is verified before every start, and mended where it is not what was pushed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dtctl.agent.bundles import store
from dtctl.agent.host.errors import Refused
from tests.agent.bundles.pushing import content, left_in, placed, push


def test_a_file_changed_by_a_trainer_is_restored_and_the_change_kept(code: Path, root: Path) -> None:
    bundle, tree = placed(code, root)
    before = (tree / "weights.bin").stat().st_ino
    with (tree / "train.py").open("r+") as trainers_own:
        trainers_own.write("CHANGED")
        trainers_own.flush()
        assert push(bundle, root)[1] == ["train.py"]
        trainers_own.seek(0)
        assert trainers_own.read(7) == "CHANGED"
    assert content(tree) == content(code)
    assert (tree / "weights.bin").stat().st_ino == before


def test_a_change_that_keeps_size_and_modification_time_is_noticed(code: Path, root: Path) -> None:
    bundle, tree = placed(code, root)
    times = (tree / "train.py").stat()
    with (tree / "train.py").open("r+") as file:
        file.write("PRINT")
    os.utime(tree / "train.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert push(bundle, root)[1] == ["train.py"]


def test_lost_and_replaced_files_are_restored_and_trainer_files_kept(code: Path, root: Path) -> None:
    bundle, tree = placed(code, root)
    (tree / "run me.sh").chmod(0o600)
    (tree / "zeros.bin").unlink()
    (tree / "empty").rmdir()
    (tree / "latest").unlink()
    (tree / "pkg").rename(tree / "elsewhere")
    (tree / "pkg").symlink_to("elsewhere")
    (tree / "output").mkdir()
    (tree / "output" / "model.ckpt-1").write_text("hours of work")
    asked = push(bundle, root)[1]
    found = content(tree)
    assert {name: found[name] for name in content(code)} == content(code)
    assert (tree / "output" / "model.ckpt-1").read_text() == "hours of work"
    assert "zeros.bin" in asked
    assert "weights.bin" not in asked


def test_files_in_read_only_directories_are_sent_restored_and_removed(code: Path, root: Path) -> None:
    (code / "pkg" / "deep").chmod(0o555)
    try:
        bundle, tree = placed(code, root)
        assert content(tree) == content(code)
        (tree / "pkg" / "deep").chmod(0o755)
        (tree / "pkg" / "deep" / "__init__.py").write_text("x = 1")
        push(bundle, root)
        assert content(tree) == content(code)
    finally:
        (code / "pkg" / "deep").chmod(0o755)
    assert store.prune(str(root), set()) == []
    assert left_in(root) == set()


def test_a_bundle_without_its_manifest_is_repaired_in_place(code: Path, root: Path) -> None:
    bundle, tree = placed(code, root)
    (tree / "notes").write_text("a trainer's")
    (tree.parent / "manifest.json").unlink()
    (tree / "train.py").write_text("damaged")
    push(bundle, root)
    assert (tree / "notes").read_text() == "a trainer's"
    (tree / "notes").unlink()
    assert content(tree) == content(code)
    assert left_in(root) == {bundle.id}


def test_a_directory_in_the_way_of_a_file_is_left_to_the_user(code: Path, root: Path) -> None:
    bundle, tree = placed(code, root)
    (tree / "train.py").unlink()
    (tree / "train.py").mkdir()
    with pytest.raises(Refused) as refused:
        push(bundle, root)
    assert refused.value.code == "bundle_damaged"
    assert refused.value.detail == str(tree / "train.py")


def test_a_damaged_cache_of_file_times_costs_only_time(code: Path, root: Path) -> None:
    bundle, tree = placed(code, root)
    for text in ("", "[]", "{", json.dumps({"train.py": None})):
        (tree.parent / "stats.json").write_text(text)
        assert push(bundle, root)[1] == []

"""A bundle on a host is verified before every start, and mended where it is not what was pushed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.bundles import store
from dtctl.agent.bundles.tree import Manifest
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
    store.prune(str(root), set())
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


NOTHING = hashlib.sha256(b"").hexdigest()


def parse(value: Any) -> Manifest:
    text = json.dumps(value).encode()
    return Manifest.parse(text, hashlib.sha256(text).hexdigest())


def manifest(**changes: Any) -> dict[str, Any]:
    return {"version": 1, "files": [], "links": [], "dirs": [], **changes}


def test_a_plain_manifest_is_accepted() -> None:
    value = manifest(
        files=[["a/b/c", 0o644, 0, NOTHING], ["x", 0o755, 0, NOTHING]],
        links=[["a/link", "../x"]],
        dirs=[["a", 0o755], ["a/b", 0o700]],
    )
    parsed = parse(value)
    assert parsed.files[0] == ("a/b/c", 0o644, 0, NOTHING)
    assert parsed.paths() == {"a/b/c", "x", "a/link"}


@pytest.mark.parametrize(
    "path",
    ["/nowhere/passwd", "../x", "..", ".", "", "a/../x", "a/./x", "a//x", "a/", "link/x", "nowhere/x", "x\0y", 7, None],
)
def test_paths_that_lead_anywhere_else_are_refused(path: Any) -> None:
    links = [["link", "/etc"]]
    for changes in (
        {"files": [[path, 0o644, 0, NOTHING]], "links": links, "dirs": [["a", 0o755]]},
        {"links": [*links, [path, "x"]], "dirs": [["a", 0o755]]},
        {"links": links, "dirs": [["a", 0o755], [path, 0o755]]},
    ):
        with pytest.raises(Refused) as refused:
            parse(manifest(**changes))
        assert refused.value.code == "bad_request"


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [["a", 0o644, 0, NOTHING], ["a", 0o644, 0, NOTHING]]},
        {"files": [["a", 0o644, 0, NOTHING]], "links": [["a", "/etc"]]},
        {"files": [["a", 0o644, 0, NOTHING]], "dirs": [["a", 0o755]]},
        {"links": [["a", "/etc"]], "dirs": [["a", 0o755]], "files": [["a/passwd", 0o644, 0, NOTHING]]},
        {"files": [["a", 0o4755, 0, NOTHING]]},
        {"files": [["a", "644", 0, NOTHING]]},
        {"files": [["a", True, 0, NOTHING]]},
        {"files": [["a", 0o644, -1, NOTHING]]},
        {"files": [["a", 0o644, 0, "../../x"]]},
        {"files": [["a", 0o644, 0]]},
        {"files": None},
        {"links": [["a", ""]]},
        {"links": [["a", "x\0"]]},
        {"version": 2},
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        parse(manifest(**changes))
    assert refused.value.code == "bad_request"


@pytest.mark.parametrize("value", [[], None, "text", 7, {}])
def test_invalid_manifest_is_refused(value: Any) -> None:
    with pytest.raises(Refused):
        parse(value)


def test_a_manifest_that_is_not_the_bundles_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        Manifest.parse(json.dumps(manifest()).encode(), "0" * 64)
    assert refused.value.code == "bundle_damaged"


def test_a_damaged_copy_on_disk_counts_as_none(tmp_path: Path) -> None:
    text = json.dumps(manifest()).encode()
    bundle_id = hashlib.sha256(text).hexdigest()
    path = tmp_path / "manifest.json"
    assert Manifest.load(str(path), bundle_id) is None
    path.write_bytes(text[:-1])
    assert Manifest.load(str(path), bundle_id) is None
    path.write_bytes(text)
    assert Manifest.load(str(path), bundle_id) is not None

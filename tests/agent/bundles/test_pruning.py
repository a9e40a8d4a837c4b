"""What `down` removes, and what it does not dare to."""

from __future__ import annotations

import os
from pathlib import Path

from dtctl.agent.bundles import store
from dtctl.bundle import scan
from tests.agent.bundles.pushing import left_in, push


def test_prune_removes_what_no_run_uses(code: Path, root: Path) -> None:
    first = scan(code)
    push(first, root)
    (code / "train.py").write_text("second\n")
    second = scan(code)
    push(second, root)
    assert store.prune(str(root), {second.id}) == []
    assert left_in(root) == {second.id}
    assert store.prune(str(root / "nothing" / "here"), set()) == []


def test_prune_keeps_a_bundle_in_which_a_trainer_wrote(code: Path, root: Path) -> None:
    bundle = scan(code)
    tree = Path(push(bundle, root)[0])
    (tree / "pkg" / "__pycache__").mkdir()
    (tree / "pkg" / "__pycache__" / "x.pyc").write_text("Python's own")
    (tree / "output").mkdir()
    (tree / "output" / "model.ckpt-1").write_text("hours of work")
    with (tree / "train.py").open("a") as file:
        file.write("# changed on the host\n")
    (kept,) = store.prune(str(root), set())
    assert (kept["path"], kept["files"]) == (str(tree), 2)
    assert kept["size_bytes"] >= 8192
    assert (tree / "output" / "model.ckpt-1").exists()
    assert store.prune(str(root), set(), lambda written: written["id"] == kept["id"]) == []
    assert left_in(root) == set()


def test_prune_does_not_take_what_the_setup_made_for_a_trainers_work(code: Path, root: Path) -> None:
    bundle = scan(code)
    tree = Path(push(bundle, root)[0])
    (tree / "venv").mkdir()
    (tree / "venv" / "made-by-setup").write_text("")
    done = tree.parent / "setup-0123.done"
    done.write_text("pip install")
    later = (tree / "venv" / "made-by-setup").stat().st_ctime_ns + 1
    os.utime(done, ns=(later, later))
    assert store.prune(str(root), set()) == []
    assert left_in(root) == set()

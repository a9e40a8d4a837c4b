"""Checkpoints of other frameworks than TensorFlow: damaged ones are set aside, and old ones are removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.checkpoints.repair import loss, prepare_restore, repair_directory
from dtctl.agent.host.budget import Budget
from dtctl.agent.rooms.checkpoints.single import prune_directory
from tests import checkpoint_files
from tests.checkpoint_files import Files, torch_file, write


def series(kind: str, step: int) -> Files:
    if kind == "huggingface":
        return checkpoint_files.trainer(step)
    if kind == "accelerate":
        return checkpoint_files.accelerates(f"step_{step}")
    if kind == "deepspeed":
        return checkpoint_files.deepspeeds(step)
    if kind == "dcp":
        return checkpoint_files.distributed(f"step-{step}")
    name = f"epoch=1-step={step}.ckpt" if kind == "lightning" else f"model_step_{step}.pt"
    return {name: torch_file({"global_step": step})}


DAMAGED = {
    "huggingface": "checkpoint-600/model.safetensors",
    "accelerate": "step_600/optimizer.bin",
    "deepspeed": "global_step600/mp_rank_00_model_states.pt",
    "dcp": "step-600/__0_0.distcp",
    "lightning": "epoch=1-step=600.ckpt",
    "torch": "model_step_600.pt",
}
"""The file that is cut short, of the newest checkpoint."""


def saved(directory: Path, kind: str) -> None:
    """Those of steps 500 and 600."""
    write(directory, series(kind, 500))
    for path in directory.rglob("*"):
        os.utime(path, (1e9, 1e9))
    write(directory, series(kind, 600))


@pytest.mark.parametrize("kind", DAMAGED)
def test_one_that_was_cut_off_is_set_aside_before_a_restart(kind: str, tmp_path: Path) -> None:
    saved(tmp_path, kind)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    os.truncate(tmp_path / DAMAGED[kind], 100)
    [text] = repair_directory(str(tmp_path))
    assert "600" in text
    assert text.endswith("set aside")
    (found,) = reading.report([str(tmp_path)])
    assert [(one["step"], one["complete"]) for one in found["all"]] == [(500, True)]
    aside = "damaged-0" if kind == "accelerate" else "damaged"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name != aside) == before
    assert repair_directory(str(tmp_path)) == []
    if kind == "deepspeed":
        assert (tmp_path / "latest").read_text() == "global_step500"


@pytest.mark.parametrize("kind", DAMAGED)
def test_changed_bytes_are_found_after_a_failed_restore(kind: str, tmp_path: Path) -> None:
    saved(tmp_path, kind)
    path = tmp_path / DAMAGED[kind]
    if path.suffix == ".safetensors":  # it has no checksums
        path = path.with_name("optimizer.pt")
    content = bytearray(path.read_bytes())
    content[content.index(b"\1" * 64) + 3] ^= 1
    path.write_bytes(content)
    assert repair_directory(str(tmp_path)) == []
    repaired = prepare_restore([str(tmp_path)], [], "full", 1, scratch=False)
    assert len(repaired["done"]) == 1
    assert repaired["step"] == 500


def test_the_last_one_of_lightning_leads_to_the_newest_that_is_whole(tmp_path: Path) -> None:
    saved(tmp_path, "lightning")
    (tmp_path / "last.ckpt").write_bytes(torch_file({"global_step": 601})[:200])
    [text] = repair_directory(str(tmp_path))
    assert text.endswith("set aside; it is a link to epoch=1-step=600.ckpt now")
    assert (tmp_path / "last.ckpt").readlink() == Path("epoch=1-step=600.ckpt")
    assert repair_directory(str(tmp_path)) == []


def test_a_file_whose_name_is_fixed_stays_since_its_program_would_begin_anew(tmp_path: Path) -> None:
    write(tmp_path, {"epoch_1.pt": torch_file()})
    os.utime(tmp_path / "epoch_1.pt", (1e9, 1e9))
    write(tmp_path, {"snapshot.pt": torch_file()[:300]})
    assert repair_directory(str(tmp_path)) == []
    assert repair_directory(str(tmp_path), verify_all=True) == []
    assert (tmp_path / "snapshot.pt").exists()


@pytest.mark.parametrize("name", ["snapshot.pt", "checkpoint-500/trainer_state.json"])
def test_the_only_one_is_named_as_lost_and_set_aside_where_training_may_begin_anew(name: str, tmp_path: Path) -> None:
    write(tmp_path, {"snapshot.pt": torch_file()} if name == "snapshot.pt" else checkpoint_files.trainer())
    os.truncate(tmp_path / name, 20)
    lost = loss([str(tmp_path)])
    assert lost is not None
    assert lost["path"] == str(tmp_path / name.partition("/")[0])
    assert repair_directory(str(tmp_path), verify_all=True) == []
    assert len(repair_directory(str(tmp_path), verify_all=True, scratch=True)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


def test_weights_alone_are_neither_set_aside_nor_the_reason_of_a_failure(tmp_path: Path) -> None:
    write(tmp_path, {"model_step_1.safetensors": checkpoint_files.safetensors_file()})
    os.utime(tmp_path / "model_step_1.safetensors", (1e9, 1e9))
    write(tmp_path, {"model_step_2.safetensors": b"cut", "net-0001.params": checkpoint_files.mxnet_file()[:50]})
    assert repair_directory(str(tmp_path), verify_all=True, scratch=True) == []
    assert loss([str(tmp_path)]) is None


def test_a_directory_replaces_none_that_was_set_aside_before(tmp_path: Path) -> None:
    for _ in range(2):
        saved(tmp_path, "huggingface")
        os.truncate(tmp_path / DAMAGED["huggingface"], 100)
        assert len(repair_directory(str(tmp_path))) == 1
    assert sorted(path.name for path in (tmp_path / "damaged").iterdir()) == ["checkpoint-600", "checkpoint-600.1"]


def test_no_link_in_place_of_a_directory_is_followed(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    write(out, checkpoint_files.trainer(500))
    write(other, checkpoint_files.trainer(600))
    os.truncate(other / DAMAGED["huggingface"], 100)
    (out / "checkpoint-600").symlink_to(other / "checkpoint-600")
    assert repair_directory(str(out), verify_all=True) == []
    assert (other / "checkpoint-600").is_dir()


def pruned(directory: Path, *, dry_run: bool = False) -> list[str]:
    answer = prune_directory(str(directory), 1, dry_run, False, Budget(time.monotonic() + 60, 10_000))
    assert answer["problem"] is None
    assert answer["freed_bytes"] == sum(one["size_bytes"] for one in answer["removed"])
    return [one["prefix"] for one in answer["removed"]]


@pytest.mark.parametrize("kind", DAMAGED)
def test_the_older_one_of_a_series_is_removed(kind: str, tmp_path: Path) -> None:
    saved(tmp_path, kind)
    write(tmp_path, {"model.safetensors": checkpoint_files.safetensors_file(), "best.pt": torch_file()})
    before = sorted(path for path in tmp_path.rglob("*"))
    [removed] = pruned(tmp_path, dry_run=True)
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert pruned(tmp_path) == [removed]
    assert "500" in removed
    assert [path for path in before if "500" not in str(path.relative_to(tmp_path))] == sorted(tmp_path.rglob("*"))
    assert pruned(tmp_path) == []


@pytest.mark.parametrize("kind", ["deepspeed", "lightning"])
def test_one_that_a_file_names_or_a_link_leads_to_stays(kind: str, tmp_path: Path) -> None:
    saved(tmp_path, kind)
    if kind == "deepspeed":
        (tmp_path / "latest").write_text("global_step500\n")
        os.utime(tmp_path / "global_step500/mp_rank_00_model_states.pt", (1e9, 1e9))
    else:
        (tmp_path / "last.ckpt").symlink_to("epoch=1-step=500.ckpt")
    assert pruned(tmp_path) == []


def test_no_link_in_a_removed_directory_is_followed(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    saved(out, "huggingface")
    write(other, {"file": b"kept"})
    (out / "checkpoint-500/link").symlink_to(other)
    os.utime(out / "checkpoint-500/trainer_state.json", (1e9, 1e9))
    assert pruned(out) == ["checkpoint-500"]
    assert (other / "file").read_bytes() == b"kept"

"""Damaged checkpoints of other frameworks than TensorFlow: what is in the way of an older one is set aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.checkpoints.repair import loss, prepare_restore, repair_directory
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
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name != "damaged") == before
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

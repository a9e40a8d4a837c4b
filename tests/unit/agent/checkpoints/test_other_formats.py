"""Checkpoints of frameworks other than TensorFlow: whole, cut at any length, and made to cost or to deceive."""

from __future__ import annotations

import json
import os
import pickle
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.checkpoints import formats, reading, torch_files, verifying
from dtctl.agent.checkpoints.repair import repair_directory
from dtctl.agent.checkpoints.torch_files import step_in
from dtctl.agent.host.budget import Budget
from dtctl.agent.records.checkpoints import Checkpoint, CheckpointReport
from dtctl.agent.run.cause import names_damaged_file
from tests import checkpoint_files, impostors
from tests.checkpoint_files import WHOLE, safetensors_file, torch_file, write
from tests.fuzz import cases

LAST_WRITTEN = {
    "trainer": "checkpoint-500/trainer_state.json",
    "accelerate": "step_500/random_states_0.pkl",
    "dcp": "step-500/.metadata",
}
NOT_JUDGED = (".json", "latest")
"""Files whose end nothing tells."""


def look(directory: Path) -> CheckpointReport:
    (found,) = reading.report([str(directory)])
    assert found["problem"] is None
    return found


def only(directory: Path) -> Checkpoint:
    (one,) = look(directory)["all"]
    return one


def verified(directory: Path, one: Checkpoint) -> verifying.Verdict:
    path = str(directory / one["prefix"])
    row = formats.of(path)
    assert row.kind == one["kind"]
    return verifying.verify_format(path, row, Budget(time.monotonic() + 60.0, 10_000))


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_one_is_listed_with_its_step_and_is_sound(name: str, tmp_path: Path) -> None:
    files, kind, prefix, step = WHOLE[name]
    write(tmp_path, files)
    one = only(tmp_path)
    assert (one["prefix"], one["kind"], one["step"], one["problem"]) == (prefix, kind, step, None)
    assert one["size_bytes"] == sum(len(content) for path, content in files.items() if path.startswith(prefix))
    verdict = verified(tmp_path, one)
    assert verdict.problems == []
    assert bool(verdict.unread) == any(path.endswith((".safetensors", ".params", ".ocdbt", ".cfg")) for path in files)
    assert verdict.read_bytes == one["size_bytes"]


@pytest.mark.parametrize("name", WHOLE)
def test_each_lies_one_directory_down_as_well(name: str, tmp_path: Path) -> None:
    files, kind, prefix, step = WHOLE[name]
    write(tmp_path / "run", files)
    one = only(tmp_path)
    assert (one["prefix"], one["kind"], one["step"], one["complete"]) == (f"run/{prefix}", kind, step, True)


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in ("orbax", "spacy")])
def test_no_file_that_is_cut_at_any_length_is_taken_for_whole(name: str, tmp_path: Path) -> None:
    files, kind, prefix, _ = WHOLE[name]
    write(tmp_path, files)
    for path, content in files.items():
        if path.endswith(NOT_JUDGED):
            continue
        several = path.endswith(".distcp")
        first = len(torch_file(tensors=1)) if several else None
        for length in range(0, len(content), max(1, len(content) // 60)):
            if length == first:  # the metadata, which is written after it, is what says that there is more
                continue
            (tmp_path / path).write_bytes(content[:length])
            one = only(tmp_path)
            assert (one["prefix"], one["kind"], one["complete"]) == (prefix, kind, False), (path, length)
            assert verified(tmp_path, one).problems, (path, length)
        (tmp_path / path).write_bytes(content)
    assert only(tmp_path)["complete"]


@pytest.mark.parametrize("name", [name for name in WHOLE if len(WHOLE[name][0]) > 1])
def test_a_directory_whose_save_was_cut_off_is_named_and_not_the_newest_complete_one(name: str, tmp_path: Path) -> None:
    """A file that is not there yet; what no restore needs may be missing."""
    files, _, prefix, _ = WHOLE[name]
    needed = [path for path in files if path.endswith((".safetensors", ".pkl", "state.json", ".distcp", ".metadata"))]
    needed += [
        path for path in files if path.endswith(("mp_rank_00_model_states.pt", "_rank_0_mp_rank_00_optim_states.pt"))
    ]
    for path in needed:
        write(tmp_path, files)
        (tmp_path / path).unlink()
        found = look(tmp_path)
        assert found["newest_complete"] is None, path
        assert [one["prefix"] for one in found["incomplete"]] == [prefix]
        assert found["incomplete"][0]["problem"]


@pytest.mark.parametrize("name", LAST_WRITTEN)
def test_what_is_written_last_says_that_the_save_has_ended(name: str, tmp_path: Path) -> None:
    files, _, _, step = WHOLE[name]
    write(tmp_path, files)
    (tmp_path / LAST_WRITTEN[name]).unlink()
    one = only(tmp_path)
    assert str(one["problem"]).endswith("the save has not ended, or was interrupted")
    assert one["step"] == step


def test_a_rank_with_nothing_to_save_leaves_an_empty_shard_of_a_whole_checkpoint(tmp_path: Path) -> None:
    """As PyTorch does for a model that is the same on all ranks and smaller than their number."""
    write(tmp_path, {**checkpoint_files.distributed(ranks=1), "step-500/__1_0.distcp": b""})
    one = only(tmp_path)
    assert (one["problem"], one["shards"]) == (None, 1)
    assert verified(tmp_path, one).problems == []


def test_ranks_that_save_without_coordination_have_metadata_each(tmp_path: Path) -> None:
    files = checkpoint_files.distributed()
    shards = {name: content for name, content in files.items() if name.endswith(".distcp")}
    write(tmp_path, {**shards, "step-500/__0.metadata": pickle.dumps("__0_0.distcp", protocol=4)})
    assert only(tmp_path)["complete"] is False
    write(tmp_path, {"step-500/__1.metadata": pickle.dumps("__1_0.distcp", protocol=4)})
    assert (only(tmp_path)["complete"], only(tmp_path)["shards"]) == (True, 2)


def test_a_directory_of_another_program_with_metadata_is_none(tmp_path: Path) -> None:
    write(tmp_path, {"maps/.metadata": b"x" * 9999, "notes/.metadata": b"", "all/a.distcp": torch_file()})
    write(tmp_path, {"maps/model.pt": torch_file()})
    assert only(tmp_path)["prefix"] == "maps/model.pt"
    frame = b"\x8c%torch.distributed.checkpoint.metadata\x94\x8c\x0c__0_0.distcp\x94."
    write(tmp_path, {"a/.metadata": b"\x80\x04\x95" + struct.pack("<Q", len(frame)) + frame})
    assert [one["problem"] for one in look(tmp_path)["incomplete"]] == ["__0_0.distcp is missing"]


@pytest.mark.parametrize(
    ("files", "empty", "kind", "aside"),
    [
        (checkpoint_files.accelerates("step_500"), "step_600", "accelerate", "damaged-0"),
        (checkpoint_files.distributed(), "step-600", "dcp", "damaged"),
    ],
)
def test_an_empty_directory_is_named_since_a_program_would_take_the_largest_number(
    files: checkpoint_files.Files, empty: str, kind: str, aside: str, tmp_path: Path
) -> None:
    """What a kill at the very beginning of a save leaves."""
    write(tmp_path, files)
    (tmp_path / empty).mkdir()
    [one] = look(tmp_path)["incomplete"]
    assert (one["prefix"], one["kind"], one["step"]) == (empty, kind, 600)
    (tmp_path / empty / ".tmpgReXEF").write_bytes(b"begun by safetensors")
    [one] = look(tmp_path)["incomplete"]
    assert (one["prefix"], one["kind"], one["step"]) == (empty, kind, 600)
    assert repair_directory(str(tmp_path))
    assert (tmp_path / aside / empty).is_dir()


def test_a_directory_of_the_trainer_with_a_configuration_alone_is_incomplete(tmp_path: Path) -> None:
    """The configuration is written first, and the Trainer would resume from it."""
    write(tmp_path, {**checkpoint_files.trainer(400), "checkpoint-500/config.json": b"{}"})
    write(tmp_path, {"checkpoint-500/.tmpgReXEF": b"begun by safetensors"})
    [one] = look(tmp_path)["incomplete"]
    assert (one["prefix"], one["step"]) == ("checkpoint-500", 500)
    assert repair_directory(str(tmp_path))


def test_an_empty_directory_is_named_since_the_trainer_would_resume_from_it(tmp_path: Path) -> None:
    write(tmp_path, checkpoint_files.trainer(400))
    (tmp_path / "checkpoint-500").mkdir()
    found = look(tmp_path)
    assert [(one["prefix"], one["complete"]) for one in found["all"]] == [
        ("checkpoint-500", False),
        ("checkpoint-400", True),
    ]


def test_a_save_of_deepspeed_has_ended_when_latest_names_it(tmp_path: Path) -> None:
    write(tmp_path, {**checkpoint_files.deepspeeds(600), **checkpoint_files.deepspeeds(500)})
    problems = {one["prefix"]: one["problem"] for one in look(tmp_path)["all"]}
    assert problems["global_step500"] is None
    assert str(problems["global_step600"]).startswith("`latest` names global_step500, an earlier one")


TEMPORARY = ["tmp_worker_1", "workertemp_1", "model_temp", "tmp-checkpoint-500", ".model.part", "damaged"]


@pytest.mark.parametrize("place", TEMPORARY)
def test_temporary_directories_hold_no_checkpoint(place: str, tmp_path: Path) -> None:
    write(tmp_path / place, {**checkpoint_files.trainer(), "model.pt": torch_file()})
    write(tmp_path / place, {name.split("/")[1]: content for name, content in checkpoint_files.trainer().items()})
    assert look(tmp_path)["all"] == []


def test_weights_alone_are_the_newest_only_where_nothing_else_can_be_continued_from(tmp_path: Path) -> None:
    write(tmp_path, checkpoint_files.trainer())
    os.utime(tmp_path / "checkpoint-500/trainer_state.json", (1e9, 1e9))
    write(tmp_path, {"model.safetensors": safetensors_file()})
    found = look(tmp_path)
    assert [one["kind"] for one in found["all"]] == ["safetensors", "huggingface"]
    assert found["newest_complete"] == found["all"][1]
    assert found["incomplete"] == []
    assert reading.newest([str(tmp_path)]) == found["all"][1]


STEPS: list[tuple[object, int | None]] = [
    ({"global_step": 0}, 0),
    ({"global_step": 255}, 255),
    ({"global_step": 65_000}, 65_000),
    ({"global_step": 3_000_000}, 3_000_000),
    ({"global_step": 5_000_000_000}, 5_000_000_000),
    ({"step": 7, "global_step": 8}, 8),
    ({"model": {"step": None}, "step": 9}, 9),
    ({"model": {"step": 1.5}, "iteration": 9}, 9),
    ({"epoch": 3}, None),
    ({"global_step": -5}, None),
    ({"global_step": "500"}, None),
    ("global_step", None),
    ({"my_global_step": 5}, None),
]


@pytest.mark.parametrize(("content", "step"), STEPS, ids=lambda value: str(value)[:40])
def test_a_step_is_found_without_unpickling(content: object, step: int | None) -> None:
    """PyTorch writes pickles of protocol 2; of later ones only a name that is written for the first time is found."""
    assert step_in(pickle.dumps(content, protocol=2)) == step
    assert step_in(pickle.dumps(content, protocol=4)) in (step, None)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    evil = checkpoint_files.Evil(mark)
    out = tmp_path / "out"
    write(out, {"a.pt": torch_file(evil), "b.pt": pickle.dumps(evil), "last.ckpt": torch_file({"global_step": evil})})
    files = checkpoint_files.trainer()
    write(out, {name: torch_file(evil) if name.endswith((".pt", ".pth", ".bin")) else files[name] for name in files})
    write(out, {**checkpoint_files.distributed(), "step-500/.metadata": pickle.dumps([evil, "__0_0.distcp"])})
    found = look(out)
    assert len(found["all"]) == 5
    for one in found["all"]:
        assert verified(out, one).problems == []
    assert not mark.exists()


def test_an_archive_that_was_saved_without_checksums_is_not_called_damaged(tmp_path: Path) -> None:
    """PyTorch writes zeros in their places (torch.serialization.set_crc32_options)."""
    content, at = bytearray(torch_file()), 0
    while (at := content.find(b"PK\1\2", at)) >= 0:
        content[at + 16 : at + 20] = bytes(4)
        at += 4
    write(tmp_path, {"model.pt": bytes(content)})
    verdict = verified(tmp_path, only(tmp_path))
    assert (verdict.problems, verdict.unread) == ([], torch_files.NO_CHECKSUMS)


NAMES = ["model.pt", "last.ckpt", "model.safetensors", "net-0001.params"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_only_regular_files_are_read(what: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    impostors.NO_FILES[what](tmp_path / "out" / name)
    assert not any(one["complete"] for one in look(tmp_path / "out")["all"])


@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_a_part_of_a_directory_that_is_no_regular_file_makes_it_incomplete(what: str, tmp_path: Path) -> None:
    write(tmp_path, checkpoint_files.trainer())
    for name in ("model.safetensors", *([] if what == "is a directory" else ["optimizer.pt"])):
        (tmp_path / "checkpoint-500" / name).unlink()
        impostors.NO_FILES[what](tmp_path / "checkpoint-500" / name)
        assert not only(tmp_path)["complete"]
    state = tmp_path / "checkpoint-500/trainer_state.json"
    state.unlink()
    impostors.NO_FILES[what](state)
    assert not only(tmp_path)["complete"]


def test_what_only_has_the_name_of_a_checkpoint_is_not_listed(tmp_path: Path) -> None:
    texts = {
        "easy-install.pth": b"/usr/lib\n",
        "model.ckpt": b"\x0a\x0bmindspore",
        "page.params": b"a=1",
        "a.pt": b"{}",
    }
    write(tmp_path, texts)
    (tmp_path / "last.ckpt").symlink_to("epoch=1-step=5.ckpt")
    assert look(tmp_path)["all"] == []


def sized(length: int, rest: bytes = b"") -> bytes:
    return struct.pack("<Q", length) + rest


DEEP = b"[" * 100_000
LONG = b'{"a":{"data_offsets":[0,%s]}}' % (b"9" * 4_000_000)
"""Pythons before 3.10.7 take minutes for such a number."""
KEYS = b"PK\3\4" + b"\x8c\x04step\x94" * 25_000
"""The name of a step over and over, and never a number."""
CRAFTED: dict[str, tuple[str, bytes]] = {
    "a header of any length": ("m.safetensors", sized(1 << 62, b"{}")),
    "a header of 99 MB that is not there": ("m.safetensors", sized(99_000_000, b"{}")),
    "a header without end": ("m.safetensors", sized(len(DEEP), DEEP)),
    "offsets that are no numbers": ("m.safetensors", sized(38, b'{"a":{"data_offsets":["0","1"]}}      ')),
    "an offset of four million digits": ("m.safetensors", sized(len(LONG), LONG)),
    "steps without numbers": ("m.pt", KEYS),
    "offsets backwards": ("m.safetensors", sized(30, b'{"a":{"data_offsets":[9,1]}}  ')),
    "a number of arrays": ("m-0001.params", struct.pack("<QQQ", 0x112, 0, 1 << 40) + bytes(99)),
    "dimensions beyond count": ("m-0001.params", struct.pack("<QQQIii", 0x112, 0, 1, 0xF993FAC9, 0, 1 << 30)),
    "an array that is larger than all files": (
        "m-0001.params",
        struct.pack("<QQQIii2q3i", 0x112, 0, 1, 0xF993FAC9, 0, 2, 1 << 62, 1 << 62, 1, 0, 0),
    ),
}


def test_a_trainer_whose_loss_has_diverged_has_saved_a_whole_checkpoint(tmp_path: Path) -> None:
    files = checkpoint_files.trainer()
    state = {**json.loads(files["checkpoint-500/trainer_state.json"]), "log_history": [{"loss": float("nan")}]}
    write(tmp_path, {**files, "checkpoint-500/trainer_state.json": json.dumps(state).encode()})
    assert only(tmp_path)["complete"]


def test_searching_a_pickle_for_its_step_is_bounded() -> None:
    begun = time.process_time()
    assert step_in(b"".join(b"\x8c\x04step\x94" for _ in range(25_000))) is None
    assert step_in(b"X\4\0\0\0stepq\1" * 20_000) is None
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_costs_nothing_and_is_not_called_sound(name: str, tmp_path: Path) -> None:
    file, content = CRAFTED[name]
    write(tmp_path, {file: content})
    begun = time.process_time()
    one = only(tmp_path)
    assert not one["complete"] or name == "a number of arrays"
    assert not verified(tmp_path, one).sound
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("content", [b"{", DEEP, b"[]", b'{"global_step": "5"}', b"\xff\xfe", b"", b" " * (9 << 20)])
def test_a_state_of_the_trainer_that_cannot_be_read_is_damage(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, {**checkpoint_files.trainer(), "checkpoint-500/trainer_state.json": content})
    assert not only(tmp_path)["complete"]


def test_a_list_of_shards_is_held_to_and_leads_nowhere_else(tmp_path: Path) -> None:
    files = dict(checkpoint_files.sharded_trainer())
    index = "checkpoint-500/model.safetensors.index.json"
    for target in ("model-00003-of-00002.safetensors", "../../etc/passwd", "/etc/passwd"):
        write(tmp_path, {**files, index: json.dumps({"weight_map": {"a": target}}).encode()})
        assert only(tmp_path)["problem"] == f"checkpoint-500/{target} is missing".replace("checkpoint-500/", "", 1)


BYTES: list[tuple[str, Callable[[], bytes]]] = [
    ("model.pt", torch_file),
    ("model.safetensors", safetensors_file),
    ("net-0001.params", checkpoint_files.mxnet_file),
]


@pytest.mark.parametrize(("name", "make"), BYTES, ids=[name for name, _ in BYTES])
@cases
@given(changes=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=12), st.integers(0, 40)), min_size=1, max_size=4))
def test_any_bytes_put_in_or_taken_out_get_a_verdict(
    name: str, make: Callable[[], bytes], tmp_path: Path, changes: list[tuple[float, bytes, int]]
) -> None:
    data = make()
    for place, new, removed in changes:
        at = int(place * len(data))
        data = data[:at] + new + data[at + removed :]
    (tmp_path / name).write_bytes(data)
    for one in look(tmp_path)["all"]:
        verified(tmp_path, one)


def test_every_kind_has_a_row() -> None:
    from typing import get_args

    from dtctl.agent.records.checkpoints import CheckpointKind

    assert set(get_args(CheckpointKind)) <= set(formats.BY_KIND)
    assert {kind for _, kind, _, _ in WHOLE.values()} | {"tensorflow", "keras"} == set(formats.BY_KIND)


@pytest.mark.parametrize("path", ["default/manifest.ocdbt", "default/d/0a1b2c3d", "_CHECKPOINT_METADATA"])
def test_a_file_of_orbax_that_is_cut_at_any_length_is_damaged(path: str, tmp_path: Path) -> None:
    files = checkpoint_files.orbaxes()
    write(tmp_path, files)
    whole = only(tmp_path)
    content = files[f"500/{path}"]
    for length in range(0, len(content), 7):
        (tmp_path / "500" / path).write_bytes(content[:length])
        assert verified(tmp_path, whole).problems, length
    changed = bytearray(content)
    changed[-9] ^= 1
    (tmp_path / "500" / path).write_bytes(bytes(changed))
    assert bool(verified(tmp_path, whole).problems) == (path != "_CHECKPOINT_METADATA")


def test_values_of_orbax_that_look_like_a_node_are_no_damage(tmp_path: Path) -> None:
    files = dict(checkpoint_files.orbaxes())
    files["500/default/d/0a1b2c3d"] = b"\x0c\xdb\x20\xde" * 9 + b"\0" * 40 + files["500/default/d/0a1b2c3d"]
    write(tmp_path, files)
    assert verified(tmp_path, only(tmp_path)).problems == []


SAID = [
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    "RuntimeError: PytorchStreamReader failed reading file data/0: file read failed",
    "RuntimeError: unexpected EOF, expected 4096 more bytes. The file might be corrupted.",
    "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
    "OSError: Unable to synchronously open file (truncated file: eof = 35668, sblock->base_addr = 0)",
    "FileNotFoundError: [Errno 2] No such file or directory: 'out/checkpoint-500/trainer_state.json'",
    "ValueError: Can't find a valid checkpoint at out/checkpoint-500",
    "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])",
]


@pytest.mark.parametrize("text", SAID)
def test_what_libraries_say_of_a_damaged_file_is_known(text: str) -> None:
    assert names_damaged_file(text)


@pytest.mark.parametrize(
    "text", ["FileNotFoundError: 'data.json'", "RuntimeError: CUDA out of memory", "KeyError: 'step'"]
)
def test_other_errors_are_not_taken_for_it(text: str) -> None:
    assert not names_damaged_file(text)

"""`dtctl checkpoints` on what PyTorch, Hugging Face, Lightning, DeepSpeed, accelerate and MXNet save."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.checkpoint_files import WHOLE, mxnet_file, spacys, torch_file, trainer, write
from tests.desk import Desk
from tests.local.test_checkpoints import CLUSTER

HOSTS = "hosts:\n  node-1: {transport: local}\n"


@pytest.fixture
def saved(home: Desk) -> Path:
    """The directory of the checkpoints of a cluster before its first run."""
    text = CLUSTER.replace("OUT", "out").replace("node-[1-2]", "node-1")
    home.write_cluster(text + "dirs: {{output: saved}}\n", hosts=HOSTS)
    return home.home / "dtctl" / home.name / "saved"


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", WHOLE)
def test_one_of_each_format_is_listed_verified_and_pulled(name: str, home: Desk, saved: Path) -> None:
    files, kind, prefix, step = WHOLE[name]
    write(saved, files)
    [place] = json.loads(home.dtctl("checkpoints", "-o", "json"))["checkpoints"]
    [one] = place["all"]
    assert (one["prefix"], one["kind"], one["step"], one["complete"]) == (prefix, kind, step, True)
    verified = home.dtctl("checkpoints", "verify")
    assert ": sound, " in verified or ": not all read, " in verified
    home.dtctl("checkpoints", "pull", "here")
    assert files_below(home.project / "here") == dict(files)
    refused = home.run("checkpoints", "pull", "here")
    assert (refused.returncode, "already exists" in refused.stderr) == (1, True)
    assert files_below(home.project / "here") == dict(files)


WITHOUT_A_STEP = {
    "checkpoint-7.pth.tar": ("torch", 7),
    "model_best.pth.tar": ("torch", None),
    "Epoch12.pt": ("torch", 12),
    "epoch=4.ckpt": ("lightning", 4),
    "net-0009.params": ("mxnet", 9),
    "last_epochs.pth": ("torch", None),
}


def test_checkpoints_without_a_step_are_listed_with_the_epoch_in_their_name(home: Desk, saved: Path) -> None:
    """As timm, spaCy, Lightning and MXNet name them."""
    write(saved, {name: mxnet_file() if name.endswith("params") else torch_file() for name in WITHOUT_A_STEP})
    write(saved, {**spacys("model-best"), **spacys("model-last")})
    [place] = json.loads(home.dtctl("checkpoints", "-o", "json"))["checkpoints"]
    found = {one["prefix"]: (one["kind"], one["step"], one["epoch"], one["complete"]) for one in place["all"]}
    assert found == {
        **{name: (kind, None, epoch, True) for name, (kind, epoch) in WITHOUT_A_STEP.items()},
        **dict.fromkeys(("model-best", "model-last"), ("spacy", None, None, True)),
    }
    text = home.dtctl("checkpoints")
    assert [line.split()[1:3] for line in text.splitlines() if "checkpoint-7.pth.tar" in line] == [["epoch", "7"]]
    assert "no checkpoint" not in text


def test_one_that_was_cut_off_is_named_and_the_older_one_is_pulled(home: Desk, saved: Path) -> None:
    write(saved, trainer(400))
    os.utime(saved / "checkpoint-400/trainer_state.json", (1e9, 1e9))
    write(saved, trainer(500))
    os.truncate(saved / "checkpoint-500/model.safetensors", 40)
    assert "incomplete: model.safetensors: it is cut short" in home.dtctl("checkpoints")
    assert "damaged" in home.dtctl("checkpoints", "verify", "500", code=1)
    home.dtctl("checkpoints", "pull", "here")
    assert files_below(home.project / "here") == dict(trainer(400))


def test_a_pull_that_was_cut_short_brings_the_rest(home: Desk, saved: Path) -> None:
    """What an interrupted pull leaves: files under flat names, or, at its very end, in their directory."""
    write(saved, trainer(500))
    home.dtctl("checkpoints", "pull", "whole")
    parts = home.project / "here/.checkpoint-500.part"
    identities = {}
    for path in sorted((saved / "checkpoint-500").iterdir()):
        status = path.stat()
        identities[f"={path.name}"] = f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
    (parts / "checkpoint-500").mkdir(parents=True)
    parts.chmod(0o700)
    (parts / "arrived").write_text(json.dumps(identities))
    (parts / "=config.json").write_bytes(b"{}")
    moved = (saved / "checkpoint-500/model.safetensors").read_bytes()
    (parts / "checkpoint-500/model.safetensors").write_bytes(moved)
    said = home.run("checkpoints", "pull", "here").stderr
    assert "of it had arrived before" in said
    assert files_below(home.project / "here") == dict(trainer(500))


def test_old_ones_are_removed(home: Desk, saved: Path) -> None:
    for number, step in enumerate((300, 400, 500)):
        write(saved, trainer(step))
        at = 1e9 + number
        os.utime(saved / f"checkpoint-{step}/trainer_state.json", (at, at))
    assert "2 removed" in home.dtctl("checkpoints", "prune", "--keep", "1", "-y")
    assert [path.name for path in saved.iterdir()] == ["checkpoint-500"]


def test_lightnings_default_directory_is_no_exception(home: Desk, saved: Path) -> None:
    place = saved / "lightning_logs/version_3/checkpoints"
    for number, step in enumerate((300, 400, 500)):
        write(place, {f"epoch=0-step={step}.ckpt": torch_file()})
        os.utime(place / f"epoch=0-step={step}.ckpt", (1e9 + number, 1e9 + number))
    assert "lightning_logs/version_3/checkpoints/epoch=0-step=500.ckpt" in home.dtctl("checkpoints")
    assert ": sound, " in home.dtctl("checkpoints", "verify", "500")
    home.dtctl("checkpoints", "pull", "400", "here")
    assert files_below(home.project / "here") == {"epoch=0-step=400.ckpt": torch_file()}
    assert "2 removed" in home.dtctl("checkpoints", "prune", "--keep", "1", "-y")
    assert [path.name for path in place.iterdir()] == ["epoch=0-step=500.ckpt"]


PUSHED = ("torch", "lightning", "safetensors", "mxnet", "trainer, sharded", "deepspeed", "dcp", "orbax", "spacy")


def push(home: Desk, path: str) -> str:
    return home.run("checkpoints", "push", path, "--local").stderr


def test_one_of_each_format_is_pushed(home: Desk, saved: Path) -> None:
    for number, (files, kind, prefix, step) in enumerate(WHOLE[name] for name in PUSHED):
        own = home.project / f"own-{number}"
        write(own, files)
        said = push(home, f"own-{number}")
        assert "it is there now; how a trainer finds it: " in said, (kind, said)
        assert all((saved / name).read_bytes() == content for name, content in files.items()), kind
        [place] = json.loads(home.dtctl("checkpoints", "-o", "json"))["checkpoints"]
        assert [(one["kind"], one["step"]) for one in place["all"] if one["prefix"] == prefix] == [(kind, step)]
        for path in saved.iterdir():
            (shutil.rmtree if path.is_dir() else Path.unlink)(path)


def test_what_is_there_is_neither_sent_again_nor_replaced_by_another(home: Desk, saved: Path) -> None:
    write(home.project / "own", trainer(500))
    push(home, "own/checkpoint-500")
    assert "it was all there already" in home.run("checkpoints", "push", "own", "--local").stdout
    (saved / "checkpoint-500/config.json").write_text("{ }")
    assert "another checkpoint is called checkpoint-500" in push(home, "own")
    assert (saved / "checkpoint-500/config.json").read_text() == "{ }"


def test_a_damaged_one_is_not_sent(home: Desk, saved: Path) -> None:
    write(home.project / "own", trainer(500))
    os.truncate(home.project / "own/checkpoint-500/optimizer.pt", 40)
    assert "checkpoint-500 is damaged: optimizer.pt" in push(home, "own/checkpoint-500")
    assert "is not complete: optimizer.pt" in push(home, "own")
    assert not saved.exists()

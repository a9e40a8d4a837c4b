"""A checkpoint of each format is pushed to a storage URL, whole or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast

import pytest

from tests.buckets import Bucket, cloud_storage, hdfs, s3
from tests.checkpoint_files import (
    WHOLE,
    Files,
    accelerates,
    distributed,
    mxnet_file,
    orbaxes,
    torch_file,
    trainer,
    write,
)
from tests.desk import Desk
from tests.local.test_checkpoints_of_others import files_below
from tests.nights import at_night

pytestmark = pytest.mark.xdist_group("storage")

CLUSTER = """\
name: {name}
{hosts}
jobs: {{worker: {{hosts: node-1}}}}
trainer: {{command: [python, train.py, "{{output_dir}}"], python: PYTHON, dialect: none}}
dirs: {{output: URL}}
"""


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with hdfs() as served:
        yield served


def write_cluster(home: Desk, bucket: Bucket) -> None:
    home.env.update(bucket.env)
    home.write_cluster(CLUSTER.replace("PYTHON", sys.executable).replace("URL", f"{bucket.url}/out"))


def push(home: Desk, path: Path) -> str:
    return home.dtctl("checkpoints", "push", "--local", str(path))


def listed(home: Desk) -> dict[str, bool]:
    """What is listed at the URL, and whether it is complete."""
    [place] = json.loads(home.dtctl("checkpoints", "-o", "json"))["checkpoints"]
    return {one["prefix"]: one["complete"] for one in place["all"]}


def stored(bucket: Bucket) -> dict[str, bytes]:
    """The objects, by their names below the URL."""
    return {name.removeprefix("out/"): bucket.system.cat_file(f"{bucket.root}/{name}") for name in bucket.names()}


def clear(bucket: Bucket) -> None:
    bucket.server.files.clear()
    bucket.server.directories = {"/", f"/{bucket.root}".replace("//", "/")}


def begin(home: Desk) -> None:
    """A first run: `checkpoints` lists the places of the last one."""
    (home.project / "train.py").write_text("import fsspec\n")
    home.dtctl("up", "--local", "-q", "--no-check")
    home.dtctl("stop")


SERVERS = {"webhdfs": hdfs, "gs": cloud_storage, "s3": s3}
BY_DAY = [("webhdfs", name) for name in ("trainer", "deepspeed")]


@pytest.mark.parametrize("which", at_night([(server, name) for server in SERVERS for name in WHOLE], but=BY_DAY))
def test_one_of_each_format_is_pushed_to_a_url_and_pulled_from_it(
    which: tuple[str, str], home: Desk, tmp_path: Path
) -> None:
    server, name = which
    files, _, prefix, _ = WHOLE[name]
    serve = cast(Callable[[], AbstractContextManager[Bucket]], SERVERS[server])
    with serve() as bucket:
        write_cluster(home, bucket)
        begin(home)
        write(tmp_path / "own", files)
        assert f"{bucket.url}/out/{prefix}: " in push(home, tmp_path / "own" / prefix)
        assert stored(bucket) == dict(files)
        assert listed(home) == {prefix: True}
        assert "it was all there already" in push(home, tmp_path / "own" / prefix)
        home.dtctl("checkpoints", "pull", prefix, str(tmp_path / "pulled"))
        assert files_below(tmp_path / "pulled") == dict(files)


class Cut:
    """A data node that refuses what comes after so many uploads."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, handler: BaseHTTPRequestHandler, operation: str, is_data: bool) -> bool:
        if operation != "CREATE" or not is_data:
            return False
        self.left -= 1
        if self.left >= 0:
            return False
        cast(Any, handler).fail(403, "the quota is exceeded", "DSQuotaExceededException")
        return True


RANKS = {**accelerates(), "step_500/random_states_1.pkl": torch_file(), "step_500/sampler.bin": torch_file()}
ZERO = {
    **{f"global_step500/zero_pp_rank_{rank}_mp_rank_00_model_states.pt": torch_file() for rank in range(2)},
    **{f"global_step500/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt": torch_file() for rank in range(2)},
    "latest": b"global_step500",
}
INTERRUPTED: dict[str, tuple[Files, str]] = {
    "trainer": (trainer(), "checkpoint-500"),
    "accelerate, two ranks": (RANKS, "step_500"),
    "deepspeed, ZeRO 3": (ZERO, "global_step500"),
    "dcp": (distributed(), "step-500"),
    "orbax, committed": ({**orbaxes(), "500/commit_success.txt": b"ended"}, "500"),
    "mxnet": ({"net-0003.params": mxnet_file(), "net-symbol.json": b"{}"}, "net-0003.params"),
}


@pytest.mark.parametrize("name", at_night(INTERRUPTED, but=["deepspeed, ZeRO 3"]))
def test_an_interrupted_push_leaves_no_checkpoint_and_the_next_one_resumes(
    name: str, home: Desk, bucket: Bucket, tmp_path: Path
) -> None:
    files, prefix = INTERRUPTED[name]
    write_cluster(home, bucket)
    begin(home)
    write(tmp_path / "own", files)
    bodies = len([file for file in files if file != "latest"])
    for after in range(1, bodies + 1):
        clear(bucket)
        bucket.server.lie = Cut(after)
        refused = home.run("checkpoints", "push", "--local", str(tmp_path / "own" / prefix))
        assert "403" in refused.stderr
        assert listed(home) == {}, after
        assert "has not ended" in home.dtctl("checkpoints")
    bucket.server.lie = None
    bucket.server.calls.clear()
    push(home, tmp_path / "own" / prefix)
    assert bucket.server.calls["CREATE data"] <= 2, "the files that had arrived are not sent again"
    assert stored(bucket) == dict(files)
    assert listed(home) == {prefix: True}


def test_a_push_replaces_what_another_one_of_that_name_left_and_nothing_else(
    home: Desk, bucket: Bucket, tmp_path: Path
) -> None:
    write_cluster(home, bucket)
    begin(home)
    write(tmp_path / "one", {**distributed(ranks=3), "step-500/.metadata": distributed()["step-500/.metadata"]})
    write(tmp_path / "two", distributed())
    bucket.server.lie = Cut(3)
    assert home.run("checkpoints", "push", "--local", str(tmp_path / "one/step-500")).returncode != 0
    bucket.server.lie = None
    assert "out/step-500/__1_0.distcp" in bucket.names()
    (tmp_path / "two/step-500/__1_0.distcp").write_bytes(torch_file(tensors=1) + torch_file(tensors=3))
    push(home, tmp_path / "two/step-500")
    assert stored(bucket) == {
        f"step-500/{name}": content for name, content in files_below(tmp_path / "two/step-500").items()
    }


@pytest.mark.parametrize("whole", [True, False])
def test_another_checkpoint_of_that_name_is_not_touched(
    whole: bool, home: Desk, bucket: Bucket, tmp_path: Path
) -> None:
    write_cluster(home, bucket)
    files = trainer()
    write(tmp_path, files)
    for name, content in files.items():
        if whole or "state" not in name:
            bucket.put(f"out/{name}", content if "optimizer" not in name else torch_file(tensors=3))
    before = stored(bucket)
    refused = home.run("checkpoints", "push", "--local", str(tmp_path / "checkpoint-500"))
    assert "another checkpoint is called checkpoint-500" in refused.stderr
    assert stored(bucket) == before


def test_a_file_beside_another_checkpoint_may_be_shared_if_it_is_the_same(
    home: Desk, bucket: Bucket, tmp_path: Path
) -> None:
    write_cluster(home, bucket)
    write(tmp_path, {"net-0003.params": mxnet_file(), "net-symbol.json": b"{}"})
    bucket.put("out/net-symbol.json", b"{ }")
    refused = home.run("checkpoints", "push", "--local", str(tmp_path / "net-0003.params"))
    assert "net-symbol.json differs from what was to be stored" in refused.stderr
    bucket.put("out/net-symbol.json", b"{}")
    push(home, tmp_path / "net-0003.params")
    assert sorted(stored(bucket)) == ["net-0003.params", "net-symbol.json"]


def test_a_note_that_another_wrote_removes_nothing_outside_the_checkpoint(
    home: Desk, bucket: Bucket, tmp_path: Path
) -> None:
    write_cluster(home, bucket)
    write(tmp_path, {"net-0003.params": mxnet_file(), **distributed()})
    for name in ("net-0003.params", "step-500"):
        bucket.put(f"out/.{name}.part", json.dumps({"../model.pt": "x", "model.pt": "x", "/": 1}).encode())
    bucket.put("out/model.pt", b"precious")
    for name in ("net-0003.params", "step-500"):
        push(home, tmp_path / name)
    assert set(stored(bucket)) == {"model.pt", "net-0003.params", *distributed()}

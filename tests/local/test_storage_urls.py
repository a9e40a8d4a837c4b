"""Checkpoints and scalars at storage URLs, read from servers that speak the protocols of S3 and Cloud Storage."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.records.checkpoints import CheckpointReport
from dtctl.errors import DtctlError
from dtctl.model import TaskId
from dtctl.operations import storage
from dtctl.operations.checkpoints import Checkpoints, Found, every
from dtctl.operations.checkpoints.pull import pull
from dtctl.operations.checkpoints.upkeep import prune, verify
from dtctl.operations.checkpoints.urls import at_urls, look
from dtctl.operations.run_record import RunRecord
from dtctl.operations.storage import Place, StorageError, label
from dtctl.operations.storage.events import Copies
from dtctl.operations.storage.events import at_urls as scalars_at
from tests import event_files
from tests.buckets import Bucket, cloud_storage, s3
from tests.desk import Desk

DATA = Path(__file__).parents[1] / "agent/data/checkpoints"
NOBODY: Any = None
"""In the place of a transport: no host is asked."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def served() -> Iterator[Bucket]:
    with s3() as bucket:
        yield bucket


@pytest.fixture
def bucket(served: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty one, which this process may use."""
    for name, value in served.env.items():
        monkeypatch.setenv(name, value)
    for name in served.names():
        served.system.rm_file(f"runs/{name}")
    return served


def upload(bucket: Bucket, directory: Path, to: str) -> None:
    for file in sorted(directory.rglob("*")):
        if file.is_file():
            bucket.put(f"{to}/{file.relative_to(directory)}", file.read_bytes())


def record(url: str) -> RunRecord:
    lead = TaskId("worker", 0)
    return RunRecord(
        "digits", "digits-1", None, {}, {lead: "a"}, lead, "lead", checkpoint_urls=(url,), event_urls=(url,)
    )


def found(url: str) -> list[Found]:
    return list(every([Checkpoints(label(url), look(Place(url)))]))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """One of all sorts: whole, without a shard, with a damaged index, cut short, of Orbax, and what is none."""
    place = tmp_path / "saved"
    shutil.copytree(DATA / "tf1_plain", place)
    shutil.copytree(DATA / "tf1_sharded", place / "ps")
    (place / "ps/model.ckpt-300.data-00001-of-00003").unlink()
    (place / "model.ckpt-300.index").write_bytes(b"damaged")
    with zipfile.ZipFile(place / "model.keras", "w") as archive:
        archive.writestr("config.json", "{}" * 1000)
    (place / "latest.weights.h5").write_bytes((place / "model.keras").read_bytes()[:50])
    for step, ended in (("100", 5), ("200", None)):
        (place / step).mkdir()
        (place / step / "_CHECKPOINT_METADATA").write_text(json.dumps({"commit_timestamp_nsecs": ended}))
        (place / step / "tensors").write_bytes(b"x" * 1000)
    (place / "damaged").mkdir()
    (place / "damaged/model.ckpt-1.index").touch()
    (place / "events.out.tfevents.1.a").touch()
    return place


def judged(report: CheckpointReport) -> dict[str, Any]:
    """All but what differs by the place."""
    kept = ("step", "complete", "kind", "shards", "held", "size_bytes", "problem")
    return {one["prefix"]: {name: one[name] for name in kept} for one in report["all"]}  # type: ignore[literal-required]


@pytest.mark.parametrize("serve", [cloud_storage, s3])
def test_checkpoints_in_a_bucket_are_judged_as_those_in_a_directory(
    directory: Path, serve: Callable[[], AbstractContextManager[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as bucket:
        for name, value in bucket.env.items():
            monkeypatch.setenv(name, value)
        upload(bucket, directory, "digits")
        report = look(Place(f"{bucket.url}/digits/"))
        here = reading.inspect(str(directory), time.monotonic() + 60.0)
        assert judged(report) == judged(here)
        assert len(report["all"]) == 8
        assert report["dir"] == f"{bucket.url}/digits"
        assert all(abs(one["time"] - time.time()) < 60.0 for one in report["all"])
        assert look(Place(f"{bucket.url}/nothing"))["all"] == []


def test_of_many_objects_the_newest_are_looked_into_alone(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    index, data = (DATA / f"tf1_plain/model.ckpt-200.{end}" for end in ("index", "data-00000-of-00001"))
    files = {f"runs/digits/model.ckpt-{step}.index": index.read_bytes() for step in range(1000, 1060)}
    files |= {f"{name[:-6]}.data-00000-of-00001": data.read_bytes() for name in files}
    files |= {f"runs/digits/image-{number}.png": b"" for number in range(1000)}
    files["runs/digits/model.ckpt-1059.index/model.ckpt-1.index"] = b"no directory has this"
    bucket.system.pipe(files)
    read: list[str] = []
    plain = Place.contents

    def contents(self: Place, names: Iterable[str]) -> dict[str, bytes]:
        read.extend(names := list(names))
        return plain(self, names)

    monkeypatch.setattr(Place, "contents", contents)
    report = look(Place(f"{bucket.url}/digits"))
    assert len(report["all"]) == 20
    assert all(one["complete"] for one in report["all"])
    assert len(read) in (40, 41)


def test_what_was_listed_is_believed_for_a_minute(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{bucket.url}/digits"
    assert at_urls(record(url))[0].report["all"] == []
    upload(bucket, DATA / "tf1_plain", "digits")
    assert at_urls(record(url))[0].report["all"] == []
    assert len(at_urls(record(url), fresh=True)[0].report["all"]) == 2
    later = time.time() + 61.0
    bucket.system.rm_file("runs/digits/model.ckpt-200.index")
    monkeypatch.setattr(time, "time", lambda: later)
    (one,) = at_urls(record(url))
    assert (one.where, [each["complete"] for each in one.report["all"]]) == (url, [False, True])


def test_a_bucket_that_cannot_be_read_is_a_problem_and_no_error(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    (one,) = at_urls(record(f"{bucket.url}/digits"))
    assert one.report["all"] == []
    assert "Unable to locate credentials" in str(one.report["problem"])
    (unknown,) = at_urls(record("abfs://c@a.dfs.core.windows.net/x"))
    assert "pip install fsspec adlfs" in str(unknown.report["problem"])


def test_every_byte_is_verified_here_and_a_damaged_one_is_not_pulled(bucket: Bucket, tmp_path: Path) -> None:
    upload(bucket, DATA / "tf1_plain", "digits")
    name = "digits/model.ckpt-200.data-00000-of-00001"
    content = bytearray((DATA / "tf1_plain" / Path(name).name).read_bytes())
    content[3] ^= 1
    bucket.put(name, bytes(content))
    url = f"{bucket.url}/digits"
    newest, older = sorted(found(url), key=lambda one: one.name, reverse=True)
    outcome = verify(record(url), NOBODY, [newest, older], limit_s=60.0)
    assert [(one.found.name, one.sound) for one in outcome.checked] == [
        ("model.ckpt-200", False),
        ("model.ckpt-100", True),
    ]
    assert "checksum" in outcome.checked[0].report["problems"][0]
    with pytest.raises(DtctlError, match=r"gs?.*model\.ckpt-200 is damaged|s3://.*model\.ckpt-200 is damaged"):
        pull(record(url), NOBODY, newest, tmp_path / "best", lambda progress: None)
    assert not list((tmp_path / "best").glob("model*"))


def test_a_pull_goes_on_where_it_was_cut_off(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload(bucket, DATA / "tf1_plain", "digits")
    url, best = f"{bucket.url}/digits", tmp_path / "best"
    newest = next(one for one in found(url) if one.name == "model.ckpt-200")
    monkeypatch.setattr(storage, "PIECE_BYTES", 16)
    pieces = [0]

    def cut_off(progress: Any) -> None:
        pieces[0] += 1
        if pieces[0] == 3:
            raise StorageError("the connection is gone")

    with pytest.raises(StorageError):
        pull(record(url), NOBODY, newest, best, cut_off)
    pulled = pull(record(url), NOBODY, newest, best, lambda progress: None)
    assert pulled.size_bytes - pulled.sent_bytes == 48
    for file in pulled.files:
        assert file.read_bytes() == (DATA / "tf1_plain" / file.name).read_bytes()
    assert (best / "checkpoint").exists()


def test_nothing_is_removed_at_a_url(bucket: Bucket) -> None:
    upload(bucket, DATA / "tf1_plain", "digits")
    places = at_urls(record(f"{bucket.url}/digits"))
    with pytest.raises(DtctlError, match="dtctl removes nothing at a storage URL"):
        prune(record(""), NOBODY, places, keep=1, dry_run=False)


def points(url: str) -> list[int]:
    (answer,) = scalars_at(record(url), "digits-1", ["loss"], 100).values()
    assert answer["problems"] == []
    return [step for folder in answer["folders"] for series in folder["series"] for step in series["steps"]]


def test_event_files_are_fetched_as_far_as_they_have_grown_once_a_minute(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, name = f"{bucket.url}/digits", "digits/logs/train/events.out.tfevents.1.a"
    first, more = (b"".join(scalar(step) for step in steps) for steps in (range(1, 4), range(4, 6)))
    bucket.put(name, first)
    assert points(url) == [1, 2, 3]
    bucket.put(name, first + more)
    assert points(url) == [1, 2, 3]
    fetched: list[tuple[int, int]] = []
    plain = Place.piece

    def piece(self: Place, one: str, begin: int, end: int) -> bytes:
        fetched.append((begin, end))
        return plain(self, one, begin, end)

    monkeypatch.setattr(Place, "piece", piece)
    os.utime(Copies(url).directory / "looked", (1, 1))
    assert points(url) == [1, 2, 3, 4, 5]
    assert fetched == [(len(first), len(first + more))]
    bucket.put(name, scalar(1))  # begun anew
    os.utime(Copies(url).directory / "looked", (1, 1))
    assert points(url) == [1]


def scalar(step: int) -> bytes:
    return event_files.scalar(step, "loss", 1.0 / step)


CLUSTER = """\
name: {name}
{hosts}
jobs: {{worker: {{hosts: node-1}}}}
trainer:
  command: [python, train.py, "{{output_dir}}"]
  python: PYTHON
  dialect: none
  env: ENV
  secrets: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY]
dirs: {{output: "s3://runs/digits"}}
grace: 100ms
"""


def write(home: Desk, bucket: Bucket) -> None:
    (home.project / "train.py").write_text("import s3fs\nimport sys\nimport time\n\ntime.sleep(1000)\n")
    env = json.dumps({"AWS_ENDPOINT_URL": bucket.env["AWS_ENDPOINT_URL"]}).replace("{", "{{").replace("}", "}}")
    home.write_cluster(CLUSTER.replace("PYTHON", sys.executable).replace("ENV", env))


def test_a_run_in_a_bucket_from_the_check_to_the_end(home: Desk, bucket: Bucket) -> None:
    upload(bucket, DATA / "tf1_plain", "digits")
    bucket.put("digits/train/events.out.tfevents.1.a", scalar(7))
    home.env |= {**bucket.env, "PYTHONWARNINGS": ""}
    write(home, bucket)
    home.dtctl("up", "--local", "-q")
    status = home.dtctl("status")
    assert "s3://runs/digits/model.ckpt-200" in status
    assert "complete, newest" in home.dtctl("checkpoints")
    assert "s3://runs/digits" in home.dtctl("metrics", "loss")
    assert not list(home.home.rglob("s3:*"))
    other = home.home / "other"
    shutil.copytree(home.project, other)
    (other / "cluster.yaml").write_text((other / "cluster.yaml").read_text().replace("name: demo", "name: letters"))
    refused = home.run("up", "--local", "-q", cwd=other)
    assert refused.returncode == 5
    assert "s3://runs/digits, by cluster demo" in refused.stderr
    before = bucket.names()
    home.dtctl("down", "-y")
    assert bucket.names() == before

"""Checkpoints and scalars at storage URLs, on servers of S3, Cloud Storage, Azure and WebHDFS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.records.checkpoints import CheckpointReport
from dtctl.agent.rooms.metrics.records import FolderPoints
from dtctl.errors import DtctlError
from dtctl.model import TaskId
from dtctl.operations.checkpoints import Checkpoints, Found, every
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams
from dtctl.operations.run_record import RunRecord
from dtctl.rooms import storage
from dtctl.rooms.checkpoints.pull import pull
from dtctl.rooms.checkpoints.upkeep import prune, verify
from dtctl.rooms.storage import Place, StorageError, cached, label
from dtctl.rooms.storage import checkpoints as urls
from dtctl.rooms.storage import metrics as events
from dtctl.rooms.storage.cached import url_hash
from dtctl.rooms.storage.found import at_urls, look
from dtctl.rooms.storage.metrics import at_urls as scalars_at
from tests import event_files, webhdfs
from tests.browser import Page
from tests.buckets import Bucket, azure, cloud_storage, hdfs, s3
from tests.checkpoint_files import WHOLE, Files, deepspeeds, mxnet_file, torch_file, trainer
from tests.checkpoint_files import write as write_files
from tests.desk import Desk
from tests.local.test_checkpoints_of_others import files_below
from tests.nights import at_night
from tests.waiting import eventually, read_until

pytestmark = pytest.mark.xdist_group("storage")
"""Of all processes one imports the servers, which takes seconds of each."""

DATA = Path(__file__).parents[1] / "agent/data/checkpoints"
NOBODY: Any = None
"""Replaces a transport: no host is queried."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with hdfs() as served:
        yield served


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
    """A directory of all kinds: complete, lacking a shard, a damaged index, truncated, of Orbax, and no checkpoint."""
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
    """All facts that do not depend on the place."""
    kept = ("step", "complete", "kind", "shards", "held", "size_bytes", "problem")
    return {one["prefix"]: {name: one[name] for name in kept} for one in report["all"]}  # type: ignore[literal-required]


@pytest.mark.parametrize("serve", [cloud_storage, s3, hdfs, pytest.param(azure, marks=pytest.mark.nightly)])
def test_checkpoints_in_a_bucket_are_checked_as_those_in_a_directory(
    directory: Path, serve: Callable[[], AbstractContextManager[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as bucket:
        for name, value in bucket.env.items():
            monkeypatch.setenv(name, value)
        upload(bucket, directory, "digits")
        report = look(Place(f"{bucket.url}/digits/"))
        here = reading.read_checkpoints(str(directory), time.monotonic() + 60.0)
        assert judged(report) == judged(here)
        assert len(report["all"]) == 8
        assert report["dir"] == f"{bucket.url}/digits"
        assert all(abs(one["time"] - time.time()) < 60.0 for one in report["all"])
        assert look(Place(f"{bucket.url}/nothing"))["all"] == []


def judged_alike(url: str, directory: Path) -> bool:
    """Whether the checkpoints at a URL are judged as those in a directory with the same files."""
    return judged(look(Place(url))) == judged(reading.read_checkpoints(str(directory), time.monotonic() + 60.0))


def cut(files: Files) -> Files:
    """The same with its largest file two thirds as long, as an interrupted copy leaves it."""
    largest = max(files, key=lambda name: len(files[name]))
    return {**files, largest: files[largest][: 2 * len(files[largest]) // 3]}


@pytest.mark.parametrize("serve", [hdfs, *at_night([cloud_storage, s3], but=())])
def test_every_format_is_listed_verified_and_pulled_from_a_bucket_as_from_a_host(
    tmp_path: Path, serve: Callable[[], AbstractContextManager[Bucket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as bucket:
        for name, value in bucket.env.items():
            monkeypatch.setenv(name, value)
        for number, (files, kind, prefix, step) in enumerate(WHOLE.values()):
            here, url = tmp_path / f"{number}", f"{bucket.url}/{number}"
            write_files(here, files)
            upload(bucket, here, f"{number}")
            report = look(Place(url))
            assert judged(report) == judged(reading.read_checkpoints(str(here), time.monotonic() + 60.0)), kind
            [one] = found(url)
            assert (one.checkpoint["prefix"], one.checkpoint["step"], one.checkpoint["complete"]) == (
                prefix,
                step,
                True,
            )
            [checked] = verify(record(url), NOBODY, [one], limit_s=60.0).checked
            assert checked.report["problems"] == [], kind
            pull(record(url), NOBODY, one, tmp_path / f"pulled-{number}", lambda progress: None)
            assert files_below(tmp_path / f"pulled-{number}") == dict(files), kind
            damaged = cut(files)
            write_files(here, damaged)
            upload(bucket, here, f"{number}")
            assert judged(look(Place(url))) == judged(reading.read_checkpoints(str(here), time.monotonic() + 60.0)), (
                kind
            )
            [worse] = found(url)
            assert not worse.checkpoint["complete"] or kind == "orbax", kind
            [checked] = verify(record(url), NOBODY, [worse], limit_s=60.0).checked
            assert checked.report["problems"], kind


def test_subdirectories_and_those_of_lightnings_loggers_are_searched_in_a_bucket(
    bucket: Bucket, tmp_path: Path
) -> None:
    write_files(tmp_path / "here/chief", trainer(500))
    write_files(tmp_path / "here/lightning_logs/version_3/checkpoints", {"epoch=0-step=300.ckpt": torch_file()})
    write_files(tmp_path / "here/damaged", trainer(400))
    write_files(
        tmp_path / "here", {"tmp-checkpoint-600/model.safetensors": b"x", "a/b/c/model_step_3.pt": torch_file()}
    )
    upload(bucket, tmp_path / "here", "digits")
    report = look(Place(f"{bucket.url}/digits"))
    here = reading.read_checkpoints(str(tmp_path / "here"), time.monotonic() + 60.0)
    assert judged(report) == judged(here)
    assert set(judged(report)) == {
        "chief/checkpoint-500",
        "lightning_logs/version_3/checkpoints/epoch=0-step=300.ckpt",
    }


def test_of_more_directories_than_are_searched_the_newest_are_found(bucket: Bucket, tmp_path: Path) -> None:
    files = trainer(0)
    for step in range(100, 340):  # names alone, and a whole one: a server takes its time for each object
        bucket.server.put(f"/runs/digits/checkpoint-{step}/config.json", b"{}")
    for name, content in files.items():
        bucket.server.put(f"/runs/digits/{name.replace('checkpoint-0', 'checkpoint-339')}", content)
    report = look(Place(f"{bucket.url}/digits"))
    assert report["newest_complete"] is not None
    assert report["newest_complete"]["prefix"] == "checkpoint-339"
    assert "only the first" in str(report["problem"])


def test_of_a_large_file_of_pytorch_both_ends_are_read_alone(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table of contents is larger than the end that every archive has."""
    write_files(tmp_path / "here", {"model_step_7.pt": torch_file(tensors=20_000)})
    upload(bucket, tmp_path / "here", "digits")
    size = (tmp_path / "here/model_step_7.pt").stat().st_size
    read: list[int] = []
    plain = Place.ranges

    def ranges(self: Place, wanted: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        read.extend(end - begin for _, begin, end in wanted)
        return plain(self, wanted)

    monkeypatch.setattr(Place, "ranges", ranges)
    [one] = look(Place(f"{bucket.url}/digits"))["all"]
    assert (one["step"], one["complete"], one["size_bytes"]) == (7, True, size)
    assert sum(read) < 80_000 < size


def test_a_file_that_would_have_to_be_read_as_a_whole_is_named_and_not_judged(bucket: Bucket, tmp_path: Path) -> None:
    write_files(tmp_path / "here", {"net-0003.params": mxnet_file() + bytes(17 << 20)})
    upload(bucket, tmp_path / "here", "digits")
    report = look(Place(f"{bucket.url}/digits"))
    assert report["all"] == []
    assert report["problem"] == "net-0003.params is too large to be judged from here"


def test_what_deepspeeds_latest_names_stays_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    for step in (100, 200, 300):
        write_files(tmp_path / "here", deepspeeds(step))
        upload(bucket, tmp_path / "here", "digits")
        time.sleep(0.01)
    bucket.put("digits/latest", b"global_step300")
    url = f"{bucket.url}/digits"
    places = [Checkpoints(label(url), look(Place(url)))]
    outcome = prune(record(url), NOBODY, places, keep=1, dry_run=False, live=False)
    assert outcome.removed == 2
    assert {name.split("/")[1] for name in bucket.names()} == {"global_step300", "latest"}


def test_only_the_newest_of_many_objects_are_read(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    index, data = ((DATA / f"tf1_plain/model.ckpt-200.{end}").read_bytes() for end in ("index", "data-00000-of-00001"))
    for step in range(1000, 1060):
        bucket.put(f"digits/model.ckpt-{step}.data-00000-of-00001", data)
        bucket.put(f"digits/model.ckpt-{step}.index", index)
    for number in range(300):
        bucket.server.put(f"/runs/digits/image-{number}.png", b"")
    read: list[str] = []
    plain = Place.ranges

    def ranges(self: Place, wanted: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        read.extend(name for name, _, _ in wanted)
        return plain(self, wanted)

    monkeypatch.setattr(Place, "ranges", ranges)
    report = look(Place(f"{bucket.url}/digits"))
    assert len(report["all"]) == 20
    assert all(one["complete"] for one in report["all"])
    assert len(read) in (40, 41)


def test_a_listing_of_many_pages_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 returns a thousand objects per page."""
    with s3() as bucket:
        for name, value in bucket.env.items():
            monkeypatch.setenv(name, value)
        for number in range(2_500):
            bucket.server.put_object("runs", f"digits/image-{number}.png", b"")
        upload(bucket, DATA / "tf1_plain", "digits")
        place = Place("s3://runs/digits")
        assert len(list(place.objects(1))) == 2_504
        assert not place.cut
        assert len(look(place)["all"]) == 2


def test_listing_is_cached_for_a_minute(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{bucket.url}/digits"
    assert at_urls(record(url))[0].report["all"] == []
    upload(bucket, DATA / "tf1_plain", "digits")
    assert at_urls(record(url))[0].report["all"] == []
    assert len(at_urls(record(url), fresh=True)[0].report["all"]) == 2
    later = time.time() + 61.0
    del bucket.server.files["/runs/digits/model.ckpt-200.index"]
    monkeypatch.setattr(time, "time", lambda: later)
    (one,) = at_urls(record(url))
    assert (one.where, [each["complete"] for each in one.report["all"]]) == (url, [False, True])


def test_a_bucket_that_cannot_be_read_is_a_problem_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    (one,) = at_urls(record("s3://runs/digits"))
    assert one.report["all"] == []
    assert "Unable to locate credentials" in str(one.report["problem"])
    (unknown,) = at_urls(record("hdfs://name:8020/x"))
    assert "pip install 'dtctl[hdfs]'" in str(unknown.report["problem"])


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
    with pytest.raises(DtctlError, match=r"webhdfs://.*model\.ckpt-200 is damaged"):
        pull(record(url), NOBODY, newest, tmp_path / "best", lambda progress: None)
    assert not list((tmp_path / "best").glob("model*"))


def test_a_file_of_keras_is_pulled_and_a_damaged_one_refused(bucket: Bucket, directory: Path, tmp_path: Path) -> None:
    whole = (directory / "model.keras").read_bytes()
    (directory / "worse.keras").write_bytes(whole.replace(b"{}{}", b"{}[]", 1))
    upload(bucket, directory, "digits")
    url = f"{bucket.url}/digits"
    sound, worse = (next(one for one in found(url) if one.name == name) for name in ("model.keras", "worse.keras"))
    (pulled,) = pull(record(url), NOBODY, sound, tmp_path / "best", lambda progress: None).files
    assert pulled.read_bytes() == whole
    with pytest.raises(DtctlError, match=r"worse\.keras is damaged .*checksum"):
        pull(record(url), NOBODY, worse, tmp_path / "best", lambda progress: None)


def test_an_interrupted_pull_is_resumed(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


STATE = 'model_checkpoint_path: "model.ckpt-3"\n' + "".join(
    f'all_model_checkpoint_paths: "model.ckpt-{step}"\n' for step in (1, 2, 3)
)


@pytest.mark.parametrize(
    ("keep", "damaged", "live", "left", "state"),
    [
        (
            1,
            (),
            False,
            [3],
            STATE.replace('all_model_checkpoint_paths: "model.ckpt-1"\n', "").replace(
                'all_model_checkpoint_paths: "model.ckpt-2"\n', ""
            ),
        ),
        (1, (), True, [3], STATE),
        (2, (), False, [2, 3], STATE.replace('all_model_checkpoint_paths: "model.ckpt-1"\n', "")),
        (1, (3,), False, [2, 3], STATE.replace('all_model_checkpoint_paths: "model.ckpt-1"\n', "")),
        (1, (1, 2, 3), False, [1, 2, 3], STATE),
        (9, (), False, [1, 2, 3], STATE),
    ],
)
def test_old_checkpoints_are_removed_at_a_url_as_in_a_directory(
    bucket: Bucket, keep: int, damaged: tuple[int, ...], live: bool, left: list[int], state: str
) -> None:
    for step in (1, 2, 3):
        for end in ("data-00000-of-00001", "index"):
            content = bytearray((DATA / f"tf1_plain/model.ckpt-200.{end}").read_bytes())
            if step in damaged and end != "index":
                content[3] ^= 1
            bucket.put(f"digits/model.ckpt-{step}.{end}", bytes(content))
    bucket.put("digits/checkpoint", STATE.encode())
    bucket.put("digits/notes.txt", b"")
    before, places = bucket.names(), at_urls(record(f"{bucket.url}/digits"))
    shown = prune(record(""), NOBODY, places, keep=keep, dry_run=True, live=live)
    assert bucket.names() == before
    done = prune(record(""), NOBODY, places, keep=keep, dry_run=False, live=live)
    assert done.directories == shown.directories
    assert done.removed == 3 - len(left)
    files = [f"digits/model.ckpt-{step}.{end}" for step in left for end in ("data-00000-of-00001", "index")]
    assert bucket.names() == ["digits/checkpoint", *files, "digits/notes.txt"]
    assert bucket.server.files["/runs/digits/checkpoint"].decode() == state


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
    monkeypatch.setattr(cached, "EVERY_S", 0.0)
    fetched: list[tuple[int, int]] = []
    plain = Place.piece

    def piece(self: Place, one: str, begin: int, end: int) -> bytes:
        fetched.append((begin, end))
        return plain(self, one, begin, end)

    monkeypatch.setattr(Place, "piece", piece)
    assert points(url) == [1, 2, 3, 4, 5]
    assert fetched == [(len(first), len(first + more))]
    bucket.put(name, scalar(1))  # restarted
    assert points(url) == [1]


def test_cache_entries_unused_for_a_month_are_removed(bucket: Bucket, cache: Path) -> None:
    for url in ("old", "new"):
        points(f"{bucket.url}/{url}")
        at_urls(record(f"{bucket.url}/{url}"))
    kept = cache / "dtctl/storage"
    (kept / "part-of-a-killed-command").mkdir()
    old = {one.name for one in kept.iterdir() if url_hash(f"{bucket.url}/old") in one.name or "part-" in one.name}
    for name in old:
        marked = kept / name / "looked" if (kept / name / "looked").exists() else kept / name
        os.utime(marked, (time.time() - 40 * 86400,) * 2)
    before = {one.name for one in kept.iterdir()}
    points(f"{bucket.url}/new")
    assert len(old) == 4
    assert {one.name for one in kept.iterdir()} == before - old


def test_a_follower_gets_the_new_points_alone_and_those_of_the_end(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, name = f"{bucket.url}/digits", "digits/events.out.tfevents.1.a"
    content = b"".join(map(scalar, (1, 2)))
    bucket.put(name, content)
    for module in (cached, events):
        monkeypatch.setattr(module, "EVERY_S", 0.1)
    got: list[tuple[str, list[int], bool]] = []
    ended = threading.Event()

    def put(of: str, folders: Sequence[FolderPoints], first: bool) -> None:
        steps = [step for folder in folders for series in folder["series"] for step in series["steps"]]
        got.extend([(of, steps, first)] if steps else [])

    with Streams(NOBODY) as streams:
        streams.work("follow", lambda: events.follow([url], ["los*"], 100, streams, ended, put))
        eventually(lambda: got, what="the first points")
        bucket.put(name, content := content + scalar(3))
        eventually(lambda: len(got) == 2, what="a new point")
        for change, expected in ((webhdfs.EXPIRED, Disconnected), (None, Reconnected)):
            bucket.server.refuse = change
            event = next(one for one in streams.all(0.1) if one is not None)
            assert isinstance(event, expected)
            assert event.host == label(url)
        monkeypatch.setattr(cached, "EVERY_S", 60.0)  # but at the end it is read once more
        bucket.put(name, content + scalar(4))
        ended.set()
        eventually(lambda: len(got) == 3, what="the last point")
    assert got == [(label(url), [1, 2], True), (label(url), [3], False), (label(url), [4], False)]


def scalar(step: int) -> bytes:
    return event_files.scalar(step, "loss", 1.0 / step)


@pytest.mark.parametrize("refusal", [webhdfs.EXPIRED, webhdfs.UNAVAILABLE])
@pytest.mark.parametrize("of_data", [False, True])
def test_unreadable_bucket_keeps_its_last_state_with_the_time(
    bucket: Bucket, refusal: webhdfs.Refusal, of_data: bool
) -> None:
    upload(bucket, DATA / "tf1_plain", "digits")
    place = record(f"{bucket.url}/digits")
    (good,) = at_urls(place, fresh=True)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())[:-1]
    setattr(bucket.server, "refuse_data" if of_data else "refuse", refusal)
    (one,) = at_urls(place, fresh=True)
    assert judged(one.report) == judged(good.report)
    assert f"not read since {since}" in (one.report["problem"] or "")
    if not of_data and refusal == webhdfs.EXPIRED:  # fsspec does not report what a data node refuses
        outcome = verify(place, NOBODY, list(every([one])), limit_s=5.0)
        assert "Token has expired" in str(outcome.errors[label(place.checkpoint_urls[0])])
        assert not outcome.checked
    bucket.server.refuse = bucket.server.refuse_data = None
    (again,) = at_urls(place, fresh=True)
    assert (judged(again.report), again.report["problem"]) == (judged(good.report), None)


@pytest.mark.parametrize("away_s", at_night([1.5, 60.0], but=[1.5]))
@pytest.mark.timeout(300)
def test_temporary_refusal_of_a_server_is_retried_and_is_no_damage(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away_s: float
) -> None:
    upload(bucket, DATA / "tf1_plain", "digits")
    url = f"{bucket.url}/digits"
    newest = next(one for one in found(url) if one.name == "model.ckpt-200")
    for where in ("refuse", "refuse_data"):
        setattr(bucket.server, where, webhdfs.UNAVAILABLE)
        threading.Timer(away_s, setattr, (bucket.server, where, None)).start()
        (checked,) = verify(record(url), NOBODY, [newest], limit_s=60.0 + away_s).checked
        assert checked.sound, where
    bucket.server.refuse = webhdfs.UNAVAILABLE
    monkeypatch.setattr(urls, "PATIENCE_S", 2.0)
    with pytest.raises(StorageError, match="503"):
        pull(record(url), NOBODY, newest, tmp_path / "best", lambda progress: None)
    assert 2 <= bucket.server.calls.total() < 60 + away_s, "it waits longer and longer"


def test_a_checkpoint_without_a_shard_is_named_and_not_the_newest_complete_one(bucket: Bucket) -> None:
    upload(bucket, DATA / "tf1_plain", "digits")
    upload(bucket, DATA / "tf1_sharded", "digits")
    del bucket.server.files["/runs/digits/model.ckpt-300.data-00001-of-00003"]
    (one,) = at_urls(record(f"{bucket.url}/digits"))
    newest, incomplete = one.report["newest_complete"], one.report["incomplete"]
    assert newest is not None
    assert newest["prefix"] == "model.ckpt-200"
    assert [(each["prefix"], each["problem"]) for each in incomplete] == [
        ("model.ckpt-300", "model.ckpt-300.data-00001-of-00003 is missing")
    ]


CLUSTER = """\
name: {name}
{hosts}
jobs: {{worker: {{hosts: node-1}}}}
trainer:
  command: [python, train.py, "{{output_dir}}"]
  python: PYTHON
  dialect: none
dirs: {{output: URL}}
grace: 100ms
"""


def write(home: Desk, url: str) -> None:
    (home.project / "train.py").write_text("import fsspec\nimport time\n\ntime.sleep(1000)\n")
    home.write_cluster(CLUSTER.replace("PYTHON", sys.executable).replace("URL", url))


def test_a_run_in_a_bucket_from_the_check_to_the_end(home: Desk, bucket: Bucket) -> None:
    url, events_file = f"{bucket.url}/digits", "digits/train/events.out.tfevents.1.a"
    upload(bucket, DATA / "tf1_plain", "digits")
    bucket.put(events_file, scalar(7))
    write(home, url)
    home.dtctl("up", "--local", "-q")
    assert f"{url}/model.ckpt-200" in home.dtctl("status")
    assert "complete, newest" in home.dtctl("checkpoints")
    assert url in home.dtctl("metrics", "loss")
    assert not list(home.home.rglob("webhdfs:*"))
    other = home.home / "other"
    shutil.copytree(home.project, other)
    text = (other / "cluster.yaml").read_text().replace("name: demo", "name: letters")
    (other / "cluster.yaml").write_text(text.replace(url, f"{bucket.url}//digits/"))
    refused = home.run("up", "--local", "-q", cwd=other)
    assert refused.returncode == 5
    assert f"{url}, by cluster demo" in refused.stderr
    assert "stops it" in home.run("checkpoints", "push", "--local", str(DATA / "tf1_sharded")).stderr
    with home.start("metrics", "-f", "loss") as following:
        read_until(following.stdout, "loss step 7 ")
        bucket.put(events_file, scalar(7) + scalar(8))
        home.dtctl("stop")
        read_until(following.stdout, "loss step 8 ")
        assert following.wait(60) == 0
    assert f"{url}/model.ckpt-300: " in home.dtctl("checkpoints", "push", "--local", str(DATA / "tf1_sharded"))
    assert "it was all there already" in home.dtctl("checkpoints", "push", "--local", str(DATA / "tf1_sharded"))
    bucket.put("digits/model.ckpt-300.data-00001-of-00003", b"x")
    taken = home.run("checkpoints", "push", "--local", str(DATA / "tf1_sharded"))
    assert "another checkpoint is called model.ckpt-300" in taken.stderr
    upload(bucket, DATA / "tf1_sharded", "digits")
    assert f"{url}/model.ckpt-100 (step 100): removed" in home.dtctl("checkpoints", "prune", "--keep", "2", "--yes")
    assert bucket.server.files["/runs/digits/checkpoint"].startswith(b'model_checkpoint_path: "model.ckpt-300"\n')
    bucket.server.refuse = webhdfs.UNAVAILABLE
    home.dtctl("checkpoints")
    assert "not read since" in (status := home.dtctl("status"))
    assert f"{url}/model.ckpt-300" in status
    bucket.server.refuse = None
    home.dtctl("up", "--local", "-q")
    before = bucket.names()
    home.dtctl("down", "-y")
    assert bucket.names() == before


@pytest.mark.nightly
def test_tensorboard_shows_what_is_in_the_bucket(home: Desk, bucket: Bucket) -> None:
    pytest.importorskip("tensorboard")
    bucket.put("digits/train/events.out.tfevents.1.a", b"".join(map(scalar, (1, 2, 3))))
    write(home, f"{bucket.url}/digits")
    home.env["PYTHONWARNINGS"] = ""
    home.dtctl("up", "--local", "-q")
    with home.start("tensorboard", "-o", "json") as board:
        assert board.stdout is not None
        documents = (json.loads(line) for line in board.stdout if line.startswith("{"))
        shown = next(one for one in documents if one["kind"] == "TensorBoard")
        assert (shown["host"], shown["why"]) == (None, "storage")
        page = Page(shown["url"])
        eventually(lambda: "digits/train" in page.json("data/runs"), 60, "its run")
        points = eventually(
            lambda: page.json("data/plugin/scalars/scalars?tag=loss&run=digits/train"), 60, "its points"
        )
        assert [point[1] for point in points] == [1, 2, 3]
        os.kill(board.pid, signal.SIGINT)
        assert board.wait(60) == 130
    assert [path.name for path in home.home.rglob("events.out*")] == ["events.out.tfevents.1.a"], "the copies are kept"

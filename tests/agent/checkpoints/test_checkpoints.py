"""Checkpoints that TensorFlow wrote (data/checkpoints/make.py), whole and damaged."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.checkpoints.tensor_bundle import Damaged, entries
from dtctl.agent.records.answers import Checkpoint, CheckpointReport
from tests.agent.link.ends import agent_process
from tests.waiting import PATIENCE_S

DATA = Path(__file__).parents[1] / "data" / "checkpoints"


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one of the directories; its checkpoints are as old as their names say, an hour a file."""

    def make(name: str) -> Path:
        directory = tmp_path / name
        shutil.copytree(DATA / name, directory)
        for age, prefix in enumerate(sorted({path.stem for path in directory.rglob("*.index")}, reverse=True)):
            for path in directory.rglob(prefix + ".*"):
                os.utime(path, (1e9 - 3600 * age, 1e9 - 3600 * age))
        return directory

    return make


def complete(found: CheckpointReport) -> Checkpoint:
    """The newest, of which there has to be one."""
    newest = found["newest_complete"]
    assert newest is not None, found
    return newest


def look(directory: Path) -> CheckpointReport:
    [found] = reading.report([str(directory)])
    assert found["dir"] == str(directory)
    return found


def steps(found: CheckpointReport) -> list[tuple[str, int | None]]:
    assert all(each["complete"] and each["problem"] is None for each in found["all"])
    return [(each["prefix"], each["step"]) for each in found["all"]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tf1_plain", [("model.ckpt-200", 200), ("model.ckpt-100", 100)]),
        ("tf1_sharded", [("model.ckpt-300", 300)]),
        ("tf2_step", [("ckpt-2", 1000), ("ckpt-1", 500)]),
        ("tf2_counter", [("weights-750", 750), ("ckpt-1", None)]),
        ("tf2_optimizer", [("chief/ckpt-1", 320)]),
    ],
)
def test_the_step_is_read_from_the_checkpoint(
    copy: Callable[[str], Path], name: str, expected: list[tuple[str, int | None]]
) -> None:
    found = look(copy(name))
    assert steps(found) == expected
    assert found["newest_complete"] == found["all"][0]
    assert found["incomplete"] == []
    assert found["problem"] is None


def test_size_time_and_shards_are_reported(copy: Callable[[str], Path]) -> None:
    directory = copy("tf1_sharded")
    newest = complete(look(directory))
    assert newest["shards"] == 3
    assert newest["size_bytes"] == sum(path.stat().st_size for path in directory.iterdir())
    assert newest["time"] == 1e9


def test_the_number_in_the_name_serves_without_a_variable_that_counts_steps(copy: Callable[[str], Path]) -> None:
    directory = copy("tf2_counter")
    for path in list(directory.glob("weights-750.*")):
        path.rename(path.with_name(path.name.replace("-750", "")))
    assert dict(steps(look(directory)))["weights"] is None


def test_a_directory_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nothing: dict[str, Any] = {"newest_complete": None, "incomplete": [], "all": [], "problem": None}
    nothing |= {"identity": "", "guessed": False}
    directories = [str(tmp_path / "none"), str(tmp_path / "file"), str(tmp_path)]
    assert [{**report, "identity": ""} for report in reading.report(directories)] == [
        {"dir": each, **nothing} for each in directories
    ]
    assert reading.report([]) == []


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 0x01
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("file", "damage", "problem"),
    [
        ("ckpt-2.data-00000-of-00001", cut, "ckpt-2.data-00000-of-00001 is cut short: it has 308 of 309 bytes"),
        ("ckpt-2.data-00000-of-00001", Path.unlink, "ckpt-2.data-00000-of-00001 is missing"),
        ("ckpt-2.index", cut, "the index is cut short, or is not an index"),
        ("ckpt-2.index", empty, "the index is cut short, or is not an index"),
        ("ckpt-2.index", flip, "the index does not match its checksum"),
        ("ckpt-2.index", Path.unlink, "the index is missing: the save has not ended, or was interrupted"),
    ],
)
def test_a_damaged_checkpoint_is_incomplete_and_the_one_before_it_counts(
    copy: Callable[[str], Path], file: str, damage: Callable[[Path], None], problem: str
) -> None:
    directory = copy("tf2_step")
    damage(directory / file)
    if (directory / file).exists():
        os.utime(directory / file, (1e9, 1e9))
    found = look(directory)
    assert complete(found)["prefix"] == "ckpt-1"
    [broken] = found["incomplete"]
    assert (broken["prefix"], broken["complete"], broken["problem"]) == ("ckpt-2", False, problem)
    assert broken["shards"] == 1
    assert [each["prefix"] for each in found["all"]] == ["ckpt-2", "ckpt-1"]


def test_a_lost_shard_of_several_is_named(copy: Callable[[str], Path]) -> None:
    directory = copy("tf1_sharded")
    (directory / "model.ckpt-300.data-00001-of-00003").unlink()
    found = look(directory)
    assert found["newest_complete"] is None
    assert found["incomplete"][0]["problem"] == "model.ckpt-300.data-00001-of-00003 is missing"
    assert found["incomplete"][0]["step"] == 300


def test_a_step_whose_bytes_are_damaged_is_not_trusted(copy: Callable[[str], Path]) -> None:
    directory = copy("tf2_step")
    data = directory / "ckpt-2.data-00000-of-00001"
    content = data.read_bytes()
    assert content.count((1000).to_bytes(8, "little")) == 1
    data.write_bytes(content.replace((1000).to_bytes(8, "little"), (1001).to_bytes(8, "little")))
    assert complete(look(directory))["step"] in (None, 500)


@pytest.mark.parametrize("name", ["tf1_plain/model.ckpt-200", "tf1_sharded/model.ckpt-300", "tf2_step/ckpt-2"])
def test_no_flipped_bit_and_no_cut_of_an_index_breaks_the_reader(name: str, tmp_path: Path) -> None:
    whole = (DATA / f"{name}.index").read_bytes()
    listed = list(entries(whole))
    assert listed[0][0] == b""
    unnoticed = 0
    for position in range(len(whole)):
        for damaged in (whole[:position], whole[:position] + bytes([whole[position] ^ 0x80]) + whole[position + 1 :]):
            try:
                unnoticed += list(entries(damaged)) != listed
            except Damaged:
                continue
    assert unnoticed == 0


def test_saves_in_progress_are_passed_over(copy: Callable[[str], Path]) -> None:
    directory = copy("tf2_step")
    index = (directory / "ckpt-2.index").read_bytes()
    (directory / "ckpt-3.data-00000-of-00001.tempstate15951002983365729814").write_bytes(b"x")
    (directory / "ckpt-3.index.tempstate18147308070296357517").write_bytes(b"x")
    for work in ("ckpt-3_temp", "model.ckpt-9_temp_0123456789abcdef0123456789abcdef", "workertemp_1"):
        (directory / work).mkdir()
        (directory / work / "part-00000-of-00001.index").write_bytes(index)
    assert [each["prefix"] for each in look(directory)["all"]] == ["ckpt-2", "ckpt-1"]


def test_only_one_level_of_directories_is_looked_at(copy: Callable[[str], Path], tmp_path: Path) -> None:
    copy("tf2_optimizer")
    assert look(tmp_path)["all"] == []
    assert steps(look(tmp_path / "tf2_optimizer")) == [("chief/ckpt-1", 320)]


def test_of_thousands_only_the_newest_are_looked_into(tmp_path: Path) -> None:
    data = (DATA / "tf1_plain" / "model.ckpt-100.data-00000-of-00001").read_bytes()
    index = (DATA / "tf1_plain" / "model.ckpt-100.index").read_bytes()
    for number in range(1500):
        (tmp_path / f"model.ckpt-{number}.data-00000-of-00001").write_bytes(data)
        path = tmp_path / f"model.ckpt-{number}.index"
        path.write_bytes(index if number >= 1480 else b"never opened")
        os.utime(path, (1e9 + number, 1e9 + number))
    found = look(tmp_path)
    assert [each["prefix"] for each in found["all"]] == [f"model.ckpt-{number}" for number in range(1499, 1479, -1)]
    assert all(each["complete"] for each in found["all"])


def test_a_step_that_went_back_is_still_the_newest(copy: Callable[[str], Path]) -> None:
    directory = copy("tf1_plain")
    os.utime(directory / "model.ckpt-100.index", (2e9, 2e9))
    assert complete(look(directory))["step"] == 100


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a directory that another user may not read")
def test_a_directory_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    body = """
import os
from dtctl.agent.checkpoints import reading
os.setuid(65534)
return reading.report(args)
"""
    closed.chmod(0o700)
    with agent_process(sys.executable, body, str(closed)) as (session, _):
        [found] = session.receive(PATIENCE_S)["value"]
    assert found["problem"].endswith("Permission denied")
    assert found["all"] == []


def test_an_agent_process_of_its_own_finds_the_same(agent_python: str) -> None:
    directories = sorted(str(path) for path in DATA.iterdir() if path.is_dir())
    body = "from dtctl.agent.checkpoints import reading\nreading.LOOK_S = 60.0\nreturn reading.report(args)"
    with agent_process(agent_python, body, *directories) as (session, _):
        assert session.receive(PATIENCE_S)["value"] == reading.report(directories)

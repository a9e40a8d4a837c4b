"""A checkpoint that is a directory, or one file of another framework than TensorFlow, as a controller sends it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.host.errors import Refused
from dtctl.agent.records.kinds import InvalidValue
from dtctl.agent.rooms.checkpoints import storing
from tests.agent.checkpoints.test_storing import send, wanted
from tests.checkpoint_files import deepspeeds, torch_file, trainer

FILES = {name.partition("/")[2]: content for name, content in trainer().items()}
NESTED = {**FILES, "a/b/c%2F.bin": b"1", "a/=d": b"2"}


def begin(
    place: Path, files: dict[str, bytes] = FILES, name: str = "checkpoint-500", kind: str = "huggingface"
) -> storing.Arrival:
    return storing.Arrival(str(place), wanted(files, name=name, kind=kind))


def stored(arrival: storing.Arrival, files: dict[str, bytes]) -> None:
    send(arrival, files)
    arrival.verify(lambda: None)
    arrival.finish(2e9)


def below(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_directory_gets_its_name_when_all_of_it_is_there(tmp_path: Path) -> None:
    arrival = begin(tmp_path, NESTED)
    send(arrival, NESTED)
    arrival.verify(lambda: None)
    assert [path.name for path in tmp_path.iterdir()] == [".checkpoint-500.part"]
    assert reading.read_checkpoints(str(tmp_path), float("inf"))["all"] == []
    arrival.finish(2e9)
    assert below(tmp_path) == {f"checkpoint-500/{name}": content for name, content in NESTED.items()}
    [one] = reading.read_checkpoints(str(tmp_path), float("inf"))["all"]
    assert (one["time"], one["complete"]) == (2e9, True)
    assert begin(tmp_path, NESTED).there


def test_a_push_that_was_cut_short_continues(tmp_path: Path) -> None:
    half = {name: content[: len(content) // 2] for name, content in FILES.items()}
    arrival = begin(tmp_path)
    for name, content in half.items():
        arrival.put(name, 0, content)
    assert sum(one["size"] for one in begin(tmp_path).have()) == sum(map(len, half.values()))
    stored(begin(tmp_path), FILES)
    assert below(tmp_path) == {f"checkpoint-500/{name}": content for name, content in FILES.items()}


def test_deepspeeds_latest_names_what_has_arrived(tmp_path: Path) -> None:
    files = {name.partition("/")[2]: content for name, content in deepspeeds().items() if "/" in name}
    (tmp_path / "latest").write_text("global_step400")
    stored(begin(tmp_path, files, "global_step500", "deepspeed"), files)
    assert (tmp_path / "latest").read_text() == "global_step500"


def test_a_directory_of_another_content_or_a_link_is_not_touched(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / "checkpoint-500").symlink_to(other)
    with pytest.raises(Refused, match="another checkpoint is called checkpoint-500"):
        begin(out)
    (out / "checkpoint-500").unlink()
    stored(begin(out), FILES)
    os.truncate(out / "checkpoint-500/optimizer.pt", 5)
    with pytest.raises(Refused, match="another checkpoint is called checkpoint-500"):
        begin(out)
    assert list(other.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", "a//b", "a\nb", "/".join("abcdefgh")])
def test_a_file_that_leads_out_of_the_directory_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue):
        wanted({name: b""}, name="checkpoint-500", kind="huggingface")


@pytest.mark.parametrize(
    ("files", "name", "kind"),
    [
        ({"a.pt": b"", "b.pt": b""}, "a.pt", "torch"),
        ({".bashrc": b""}, "a.pt", "torch"),
        ({"a.sh": b""}, "a.sh", "torch"),
        ({}, "a.pt", "torch"),
        ({}, "checkpoint-500", "huggingface"),
    ],
)
def test_what_is_no_checkpoint_by_its_names_is_refused(
    files: dict[str, bytes], name: str, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="is no checkpoint of"):
        begin(tmp_path, files, name, kind)


def test_one_file_gets_its_name_and_no_file_of_tensorflow_appears(tmp_path: Path) -> None:
    files = {"model_step_500.pt": torch_file()}
    stored(begin(tmp_path, files, "model_step_500.pt", "torch"), files)
    assert below(tmp_path) == files

"""Checkpoints that a library saves deeper than one subdirectory down, as Lightning does by default."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import directories, formats, reading
from dtctl.agent.checkpoints.repair import loss, repair_directory
from dtctl.agent.host.budget import Budget
from dtctl.agent.host.errors import Refused
from dtctl.agent.rooms.checkpoints import single
from tests.checkpoint_files import distributed, torch_file, write

VERSIONS = "lightning_logs/version_{}/checkpoints"


def lightning(version: int, *steps: int, below: str = "") -> dict[str, bytes]:
    place = below + VERSIONS.format(version)
    return {f"{place}/epoch=0-step={step}.ckpt": torch_file({"global_step": step}) for step in steps}


def saved(directory: Path) -> None:
    """Steps 1 and 2 by a first start, 3 and 4 by a second one, each newer than the one before."""
    for step in (1, 2, 3, 4):
        version = (step - 1) // 2
        write(directory, lightning(version, step))
        path = directory / VERSIONS.format(version) / f"epoch=0-step={step}.ckpt"
        os.utime(path, (1e9 + step, 1e9 + step))


def found(directory: Path) -> list[tuple[str, int | None, bool]]:
    (report,) = reading.report([str(directory)])
    assert report["problem"] is None
    return [(one["prefix"], one["step"], one["complete"]) for one in report["all"]]


PLACES = [
    VERSIONS.format(3),
    "mnist/version_3/checkpoints",
    "lightning_logs/2z7ab31x/checkpoints",
    "run-1/lightning_logs/version_3/checkpoints",
    "version_3/checkpoints",
    "checkpoints",
]


@pytest.mark.parametrize("place", PLACES)
def test_what_lightning_saves_by_default_is_listed(place: str, tmp_path: Path) -> None:
    write(tmp_path, {f"{place}/epoch=0-step=5.ckpt": torch_file()})
    assert found(tmp_path) == [(f"{place}/epoch=0-step=5.ckpt", 5, True)]
    assert formats.is_searched(place)
    assert single.existing(str(tmp_path), f"{place}/epoch=0-step=5.ckpt")


def test_a_checkpoint_there_that_is_a_directory_is_listed_too(tmp_path: Path) -> None:
    """As Lightning's strategies for FSDP and DeepSpeed save it."""
    write(tmp_path / VERSIONS.format(0), distributed("epoch=0-step=5.ckpt"))
    assert found(tmp_path) == [(f"{VERSIONS.format(0)}/epoch=0-step=5.ckpt", 5, True)]


def test_elsewhere_that_deep_nothing_is_searched(tmp_path: Path) -> None:
    for place in ("a/b", "a/b/c", "a/b/c/checkpoints", "damaged/version_1/checkpoints", "a/b/checkpoints/c"):
        write(tmp_path, {f"{place}/last.ckpt": torch_file()})
    assert found(tmp_path) == []


def test_no_link_on_the_way_is_followed(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    write(other, lightning(0, 1))
    (out / "lightning_logs/version_1").mkdir(parents=True)
    (out / "lightning_logs/version_0").symlink_to(other / "lightning_logs/version_0")
    (out / "lightning_logs/version_1/checkpoints").symlink_to(other / VERSIONS.format(0))
    (out / "a").mkdir()
    (out / "a/lightning_logs").symlink_to(other / "lightning_logs")
    assert found(out) == []


BAD = [
    "../x.ckpt",
    "a/../x.ckpt",
    "a//checkpoints/x.ckpt",
    "a/b/x.ckpt",
    "a/b/c/checkpoints/x.ckpt",
    "a/checkpoints/..",
]


@pytest.mark.parametrize("prefix", BAD)
def test_a_path_that_no_search_finds_is_refused(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not the name of a checkpoint"):
        single.existing(str(tmp_path), prefix)


def test_a_damaged_one_is_set_aside_where_an_earlier_start_has_a_whole_one(tmp_path: Path) -> None:
    saved(tmp_path)
    newest = tmp_path / VERSIONS.format(1)
    for step in (3, 4):
        os.truncate(newest / f"epoch=0-step={step}.ckpt", 50)
    assert loss([str(tmp_path)]) is None
    assert len(repair_directory(str(tmp_path))) == 2
    assert sorted(path.name for path in (newest / "damaged").iterdir()) == [
        "epoch=0-step=3.ckpt",
        "epoch=0-step=4.ckpt",
    ]
    assert [step for _, step, _ in found(tmp_path)] == [2, 1]


def test_the_last_one_leads_to_one_of_its_own_directory_alone(tmp_path: Path) -> None:
    saved(tmp_path)
    for version in (1, 2):
        last = tmp_path / VERSIONS.format(version) / "last.ckpt"
        last.parent.mkdir(exist_ok=True, parents=True)
        last.write_bytes(torch_file()[:50])
    assert len(repair_directory(str(tmp_path))) == 2
    assert (tmp_path / VERSIONS.format(1) / "last.ckpt").readlink() == Path("epoch=0-step=4.ckpt")
    assert not os.path.lexists(tmp_path / VERSIONS.format(2) / "last.ckpt")


def test_a_start_whose_directory_has_a_name_of_its_own_loses_nothing_to_another(tmp_path: Path) -> None:
    write(tmp_path, {"lightning_logs/first/checkpoints/epoch=0-step=1.ckpt": torch_file()})
    os.utime(tmp_path / "lightning_logs/first/checkpoints/epoch=0-step=1.ckpt", (1e9, 1e9))
    write(tmp_path, {"lightning_logs/second/checkpoints/epoch=0-step=2.ckpt": torch_file()[:50]})
    assert repair_directory(str(tmp_path)) == []
    assert loss([str(tmp_path)]) is not None


def test_pruning_keeps_the_newest_of_each_start(tmp_path: Path) -> None:
    saved(tmp_path)
    answer = single.prune_directory(str(tmp_path), 1, False, False, Budget(time.monotonic() + 60, 10_000))
    assert answer["problem"] is None
    assert [one["step"] for one in answer["removed"]] == [3, 1]
    assert [step for _, step, _ in found(tmp_path)] == [4, 2]


class Earlier(directories.Run):
    """An earlier or a new run that saves to `place`."""

    def __init__(self, place: Path, argv: list[str]) -> None:
        self.id, self.created, self.leads, self.known = "digits-1", 0.0, True, [str(place)]
        self._code, self._argv = None, argv


@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_is_given_the_directory_above_finds_it(place: str, tmp_path: Path) -> None:
    write(tmp_path, {f"{place}/epoch=0-step=5.ckpt": torch_file()})
    [one] = directories.saved(Earlier(tmp_path, []), [Earlier(tmp_path, [])], [])
    assert one["seen"]
    [one] = directories.saved(Earlier(tmp_path / "elsewhere", []), [Earlier(tmp_path, [])], [])
    assert not one["seen"]


def test_a_hostile_tree_ends_the_search_in_time(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"lightning_logs/v{number}/checkpoints/lightning_logs/v/checkpoints").mkdir(parents=True)
    for number in range(50):
        (tmp_path / f"a{number}" / ("lightning_logs/" * 20)).mkdir(parents=True)
    write(tmp_path, lightning(0, 1))
    begun = time.process_time()
    (report,) = reading.report([str(tmp_path)])
    assert time.process_time() - begun < reading.LOOK_S
    problem = report["problem"] or "it took too long"  # on a busy machine
    assert problem.endswith("it took too long")


def test_a_search_reads_no_directory_that_only_leads_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names it has: another program keeps what it likes there."""
    write(tmp_path, {f"cache/images/{number}.png": b"" for number in range(200)})
    write(tmp_path, {"cache/images/checkpoints/last.ckpt": torch_file()})
    monkeypatch.setattr(reading, "MOST_NAMES", 100)
    assert [prefix for prefix, *_ in found(tmp_path)] == ["cache/images/checkpoints/last.ckpt"]

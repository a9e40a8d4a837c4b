"""Copies of event files: where they lie, and what a host cannot make of them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from dtctl.agent.records.kinds import Wrong, checked
from dtctl.agent.records.tensorboard import EventDirsResult, EventFile
from dtctl.errors import DtctlError, PreflightError
from dtctl.folder import Folder
from dtctl.operations.tensorboard.copies import Copies, Looked, Place, choose


@pytest.fixture
def copies() -> Iterator[Copies]:
    with Copies() as made:
        yield made
    assert not made.place.exists()


def told(**fields: Any) -> EventFile:
    whole = {"dir": "/out", "name": "train", "identity": "7-x", "file": "tfevents.1", "inode": "5", "offset": 0}
    return checked(EventFile, {**whole, **fields})


def files(copies: Copies) -> dict[str, bytes]:
    every = [path for path in copies.directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(copies.directory)): path.read_bytes() for path in every}


def test_pieces_are_put_together_and_a_new_file_takes_the_place_of_the_old(copies: Copies) -> None:
    copies.add("a", told(), b"one")
    copies.add("a", told(offset=3), b"two")
    copies.add("a", told(name="."), b"top")
    assert files(copies) == {"out/train/tfevents.1": b"onetwo", "out/tfevents.1": b"top"}
    (had, _) = copies.had("a")
    assert had == {"dir": "/out", "name": "train", "file": "tfevents.1", "inode": "5", "size": 6}
    copies.add("a", told(inode="6"), b"new")
    assert files(copies)["out/train/tfevents.1"] == b"new"
    assert copies.had("b") == []


def test_directories_of_one_name_stay_apart_and_a_shared_one_comes_from_one_host(copies: Copies) -> None:
    copies.add("a", told(), b"a")
    copies.add("b", told(), b"shared with a")
    copies.add("b", told(identity="8-x"), b"b")
    copies.add("a", told(dir="/elsewhere/out", identity="9-x"), b"c")
    assert files(copies) == {
        "out/train/tfevents.1": b"a",
        "out@b/train/tfevents.1": b"b",
        "out@a/train/tfevents.1": b"c",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../../etc"},
        {"name": "a/../../b"},
        {"dir": "/x/.."},
        {"name": "a" * 300},
        {"name": "a\ud800"},
        {"dir": "/x/\ud800"},
        {"file": "tfevents\ud800"},
        {"file": "tfevents" + "\u00e4" * 240},
        {"name": "a\0b"},
        {"offset": 5},
        {"offset": 10**9},
    ],
    ids=str,
)
def test_nothing_is_written_elsewhere_or_with_a_gap(copies: Copies, fields: dict[str, Any]) -> None:
    with pytest.raises(Wrong):
        copies.add("a", told(**fields), b"x")
    assert files(copies) == {}


@pytest.mark.parametrize("name", ["passwd", "../tfevents", "a/tfevents", "tfevents\0", "x" * 300 + "tfevents"])
def test_a_file_of_another_name_is_no_event_file(name: str) -> None:
    with pytest.raises(Wrong):
        told(file=name)


def test_an_absolute_name_is_one_below_the_directory(copies: Copies) -> None:
    copies.add("a", told(name="/etc/cron.d"), b"x")
    assert files(copies) == {"out/etc/cron.d/tfevents.1": b"x"}


def test_a_disk_that_is_nearly_full_is_not_filled(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Folder, size_bytes: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Folder, "refuse_without_room", refuse)
    with pytest.raises(DtctlError) as full:
        copies.add("a", told(), b"x")
    assert "TMPDIR=" in full.value.hint


def test_what_comes_after_the_end_is_not_written() -> None:
    with Copies() as made:
        pass
    made.add("a", told(), b"x")
    assert not made.place.exists()


def test_directories_of_the_longest_name_stay_apart(copies: Copies) -> None:
    longest = "\u00e4" * 127 + "x"
    for number, host in enumerate(("a", "b", "c")):
        copies.add(host, told(dir=f"/{number}/{longest}", identity=f"{number}-x"), host.encode())
    assert sorted(files(copies).values()) == [b"a", b"b", b"c"]


def answer(*names: str, tensorboard: bool = True) -> EventDirsResult:
    return {
        "run": "c-1",
        "dirs": ["/out"],
        "folders": [{"dir": "/out", "name": name, "identity": f"7-{name}"} for name in names],
        "sizes": {"files": len(names), "bytes": 10},
        "tensorboard": "/venv/bin/python" if tensorboard else None,
        "tried": [] if tensorboard else ["/usr/bin/python3"],
    }


def looked(**answers: EventDirsResult) -> Looked:
    return Looked("c-1", answers, {})


CASES = {
    "one host has them": (looked(a=answer("x"), b=answer()), True, Place("a", "one_host")),
    "the lead's host of those that share them": (looked(a=answer("x"), b=answer("x")), True, Place("b", "one_host")),
    "that of them which can": (
        looked(a=answer("x"), b=answer("x", tensorboard=False)),
        False,
        Place("a", "one_host"),
    ),
    "none yet": (looked(a=answer(), b=answer()), True, Place("b", "no_files")),
    "the host cannot, this machine can": (
        looked(a=answer("x", tensorboard=False), b=answer(tensorboard=False)),
        True,
        Place(None, "no_tensorboard", ("b", "a")),
    ),
    "on two hosts": (looked(a=answer("x"), b=answer("y")), True, Place(None, "several_hosts", ("b", "a"))),
    "on two hosts, and not here": (
        looked(a=answer("x", "z"), b=answer("y")),
        False,
        Place("a", "not_here", left_out=("b",)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_runs_where_it_shows_all_of_them(case: str) -> None:
    found, here, place = CASES[case]
    assert choose(found, "b", copy=False, here=here) == place


def test_copies_are_of_each_directory_once_and_of_hosts_that_may_still_have_some() -> None:
    found = looked(a=answer("x"), b=answer("x", "y"), c=answer(), d=answer("x"))
    assert choose(found, "b", copy=True, here=True) == Place(None, "asked", ("b", "c"))


def test_where_nobody_has_tensorboard_it_is_said_where_it_was_looked_for() -> None:
    with pytest.raises(PreflightError) as nowhere:
        choose(looked(a=answer("x", tensorboard=False)), "a", copy=False, here=False)
    assert "a has none in /usr/bin/python3" in nowhere.value.detail
    assert "pip install tensorboard" in nowhere.value.hint
    with pytest.raises(PreflightError):
        choose(looked(a=answer("x")), "a", copy=True, here=False)

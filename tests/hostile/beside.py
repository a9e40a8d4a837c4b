"""Files that another user puts next to a run's checkpoints, in a directory that all may write to: one deed per line."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.agent.checkpoints import tables

NAMES = 100_000
TERABYTE = 1 << 40

Beside = Callable[[Path], object]


def stay(seconds: float) -> bool:
    """Waits. Returns whether a deed that lasts should continue."""
    return not select.select([0], [], [], seconds)[0]


def fifo(name: str) -> Beside:
    return lambda at: os.mkfifo(at / name)


def link(name: str, to: str) -> Beside:
    """Makes a link. `to` is below the directory's parent, or absolute."""
    return lambda at: (at / name).symlink_to(at.parent / to)


def file(name: str, content: bytes) -> Beside:
    return lambda at: (at / name).write_bytes(content)


def sparse(name: str) -> Beside:
    def make(at: Path) -> None:
        (at / name).touch()
        os.truncate(at / name, TERABYTE)

    return make


def directory(name: str, mode: int = 0o777) -> Beside:
    return lambda at: (at / name).mkdir(mode)


def several(*deeds: Beside) -> Beside:
    def all_of_them(at: Path) -> None:
        for each in deeds:
            each(at)

    return all_of_them


def many(at: Path) -> None:
    for number in range(NAMES):
        os.close(os.open(at / f"model.ckpt-{1000 + number}.index", os.O_CREAT | os.O_WRONLY))


def names_for_a_terminal(at: Path) -> None:
    for odd in (b"a\nb", b"\x1b]0;pwned\x07", b"\x1b[2J", b"\xff\xfe", b"\xc2\x9b2J", b"\r-", b"x" * 200):
        (at / os.fsdecode(b"model.ckpt-" + odd + b".index")).write_bytes(b"")


def change(at: Path) -> None:
    """Changes files while they are read."""
    number = 0
    while stay(0):
        for name in ("model.ckpt-999.index", "model.ckpt-999.data-00000-of-00001", "checkpoint"):
            with (at / name).open("r+b" if (at / name).exists() else "wb") as held:
                held.write(tables.index(1) if number % 2 else os.urandom(4096))
                held.truncate(number * 977 % (1 << 20))
        number += 1


def race(at: Path) -> None:
    """Replaces files between their inspection and their opening by a FIFO, or by an endless link."""
    plain, name, number = at / "plain", at / "model.ckpt-999.index", 0
    plain.write_bytes(tables.index(1))
    forms: list[Beside] = [os.mkfifo, lambda it: it.symlink_to("/dev/zero"), lambda it: it.hardlink_to(plain)]
    while stay(0):
        spare = at / "spare"
        forms[number % 3](spare)
        spare.replace(name)
        with suppress(FileNotFoundError):
            spare.unlink()  # two names of one file cannot be renamed
        number += 1


INDEX, SHARD = "model.ckpt-999.index", "model.ckpt-999.data-00000-of-00001"
EVENTS = "events.out.tfevents.1999999999.host"
OWN = "home/victim"
"""A file of the run's user."""

CHECKPOINTS: dict[str, tuple[Beside, str]] = {
    "FIFOs": (several(fifo(INDEX), fifo("checkpoint"), fifo(EVENTS)), "the index is a FIFO"),
    "a shard that is a FIFO": (several(file(INDEX, tables.index(1)), fifo(SHARD)), f"{SHARD} is a FIFO"),
    "links without end": (
        several(link(INDEX, "/dev/zero"), link("checkpoint", "/dev/zero"), link(EVENTS, "/dev/zero")),
        "the index is a link",
    ),
    "a shard without end": (several(file(INDEX, tables.index(1)), link(SHARD, "/dev/zero")), f"{SHARD} is a link"),
    "links to the passwords": (several(link(INDEX, "/etc/shadow"), link("checkpoint", "/etc/shadow")), "is a link"),
    "links to what is the user's own": (
        several(link(INDEX, OWN), link("checkpoint", OWN), link("chief", "home"), link("damaged", "home")),
        "the index is a link",
    ),
    "an index of a terabyte": (several(sparse(INDEX), sparse("checkpoint")), "the index is too large"),
    "a shard of a terabyte": (several(file(INDEX, tables.index(1)), sparse(SHARD)), ""),
    "2^40 shards in 88 bytes": (file(INDEX, tables.index(1 << 40)), "names 1099511627776 shards"),
    "a hundred thousand names": (many, "only part of it was searched|does not answer"),
    "directories": (
        several(directory("model.ckpt-9.index"), directory("damaged", 0o700), directory("chief", 0)),
        "the index is a directory",
    ),
    "names that speak to a terminal": (names_for_a_terminal, "the index"),
    "files that change while they are read": (change, ""),
    "a file that is a FIFO every other moment": (race, ""),
}
"""The deeds, and a pattern for the output of `dtctl checkpoints`."""

LASTING = (change, race)

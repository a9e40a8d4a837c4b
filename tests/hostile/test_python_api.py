"""`import dtctl` on hosts that lie: a value is of its declared type, an error a DtctlError, and both safe to print."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.bench import ADDRESSES, ROOT, Home, liars
from tests.hostile.commander import WAY
from tests.hostile.host_lies import LIES
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.xdist_group("hosts that lie")

NAMES = ["", *LIES]
SOME = ("escapes in every text", "an error of escapes", "texts that are numbers", "numbers that are texts")
"""The lies about types and texts; the nightly tests have all."""
HOSTS = ", ".join(f"{name}: {address}" for name, address in ADDRESSES.items())


@pytest.fixture(scope="module")
def sockets() -> Iterator[Path]:
    with liars() as directory:
        yield directory


def wrong(sockets: Path, directory: Path, liar: str, numbers: list[int]) -> tuple[list[str], set[str]]:
    """What was wrong, and the calls that were made."""
    home = Home(directory / "home", "user: train", HOSTS)
    ways = {name: {field: getattr(host.reach, field) for field in WAY} for name, host in home.ways.items()}
    words = [sys.executable, "-m", "tests.hostile.api_caller", str(sockets), json.dumps(ways), liar, *map(str, numbers)]
    environment = {**home.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=home.project, env=environment, capture_output=True, text=True, timeout=PATIENCE_S * len(numbers)
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    found = [
        f"{NAMES[one['lie']] or 'the truth'}, {one['call']}: {one['problems']}" for one in answers if one["problems"]
    ]
    return found, {one["call"] for one in answers if one["value"]}


def test_values_of_genuine_hosts_are_of_their_declared_types(sockets: Path, tmp_path: Path) -> None:
    found, answered = wrong(sockets, tmp_path, "a", [0])
    assert not found
    assert {"runs", "status", "logs", "metrics", "events", "check", "exec", "stop"} <= answered


@pytest.mark.parametrize("liar", ["a", "b"])
def test_no_lie_reaches_the_caller_untyped_or_unsafe_to_print(sockets: Path, tmp_path: Path, liar: str) -> None:
    found, _ = wrong(sockets, tmp_path, liar, [NAMES.index(what) for what in SOME])
    assert not found, "\n".join(found)


@pytest.mark.nightly
@pytest.mark.parametrize("what", LIES)
def test_none_of_all_lies_reaches_the_caller_untyped(sockets: Path, tmp_path: Path, what: str) -> None:
    found, _ = wrong(sockets, tmp_path, "a", [NAMES.index(what)])
    assert not found, "\n".join(found)

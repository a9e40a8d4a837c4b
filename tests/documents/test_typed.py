"""README and the quick start, typed from top to end on two hosts over SSH; the screens agree with what they show."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import desk
from tests.documents.blocks import ROOT
from tests.documents.reader import Reader
from tests.documents.typing_rules import AT_NIGHT, BY_NIGHT, NOT_TYPED
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.timeout(1800)]


@pytest.fixture
def home(fleet: Fleet, tmp_path: Path) -> Iterator[Path]:
    """Of the reader. When the test is over nothing of theirs runs here or on a host."""
    with desk(tmp_path / "home", elsewhere=lambda: False) as made:
        yield made.home
    eventually(lambda: not fleet.busy(), what="nothing to be left on any host")


@pytest.fixture
def reader(home: Path, fleet: Fleet) -> Iterator[Reader]:
    made = Reader(home, fleet, python=sys.executable)
    yield made
    made.shell.run("dtctl down --yes --grace 1s")


def read(reader: Reader, page: str) -> None:
    wrong = []
    for seen in reader.reads(page, skip={**NOT_TYPED, **AT_NIGHT}):
        wrong += [f"{seen.typed}\n    {each}" for each in seen.wrong]
        print(seen.typed, seen.code, *seen.printed, sep="\n    ")
        assert seen.code in (0, 130), f"{seen.typed} ended with {seen.code}"
    assert not wrong, "make screens writes what is printed now\n" + "\n".join(wrong)


def test_the_readme_is_true(reader: Reader) -> None:
    read(reader, "README.md")


@pytest.mark.nightly
def test_the_quick_start_is_true(reader: Reader) -> None:
    read(reader, "docs/quickstart.md")


@pytest.mark.nightly
@pytest.mark.timeout(5400)
def test_the_readme_is_true_in_a_fresh_environment(home: Path, fleet: Fleet, tmp_path: Path) -> None:
    """With its installations, in a clone: nothing is there before but git, make, python3 and pip's cache."""
    bare = tmp_path / "programs"
    bare.mkdir()
    (bare / "python3").symlink_to(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
    reader = Reader(home, fleet, python=sys.executable, programs=bare)
    for name, value in {"PIP_CACHE_DIR": _pip_cache(), **_settings_of_pip()}.items():
        reader.shell.run(f"export {name}={shlex.quote(value)}")
    assert reader.shell.run(f"git clone -q {ROOT} dtctl && cd dtctl")[0] == 0
    wrong = []
    skip = {command: why for command, why in NOT_TYPED.items() if BY_NIGHT not in why}
    for seen in reader.reads("README.md", skip=skip):
        print(seen.typed, seen.code, *seen.printed, sep="\n    ")
        assert seen.code in (0, 130), f"{seen.typed} ended with {seen.code}"
        wrong += seen.wrong
    assert not wrong


def _pip_cache() -> str:
    asked = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def _settings_of_pip() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_")}

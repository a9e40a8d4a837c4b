"""The interpreters that agents are tested under, and hosts that leave nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.agent.host import AgentHost
from tests.agent.link.links import Links

OLDEST = "python3.8"
SMOKE = 1
"""As many tests of a file run on the oldest Python by day, and all of them every night."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    counts: Counter[Path] = Counter()
    for item in items:
        if isinstance(item, pytest.Function) and _on_oldest(item):
            counts[item.path] += 1
            if counts[item.path] > SMOKE:
                item.add_marker(pytest.mark.nightly)


def _on_oldest(item: pytest.Function) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("agent_python") == "oldest"


@cache
def oldest_python() -> str | None:
    """An interpreter of the oldest supported version that really runs (a shim may only pretend).

    $DTCTL_AGENT_PYTHON takes its place: the nightly tries one version after the other.
    """
    if chosen := os.environ.get("DTCTL_AGENT_PYTHON"):
        return chosen
    found = [shutil.which(OLDEST), *map(str, sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8")))]
    for candidate in filter(None, found):
        answer = subprocess.run(
            [candidate, "-ISc", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True, check=False
        )
        if answer.stdout.strip() == "(3, 8)":
            return candidate
    return None


@pytest.fixture(params=["this", "oldest"])
def agent_python(request: pytest.FixtureRequest) -> str:
    if request.param == "this":
        return sys.executable
    oldest = oldest_python()
    if oldest is None:
        pytest.skip(f"no {OLDEST} on this machine")
    return oldest


MakeHost = Callable[..., AgentHost]


@pytest.fixture
def make_host(agent_python: str, tmp_path: Path) -> Iterator[MakeHost]:
    made: list[AgentHost] = []

    def make(name: str = "h1", root: Path | None = None, *, is_new: bool = False) -> AgentHost:
        made.append(AgentHost(tmp_path / f"host{len(made)}", agent_python, name, root, is_new=is_new))
        return made[-1]

    yield make
    for host in made:
        host.clean_up()


@pytest.fixture
def links(tmp_path: Path, agent_python: str) -> Iterator[Links]:
    links = Links(tmp_path, agent_python)
    try:
        yield links
    finally:
        links.close()


@pytest.fixture
def host(make_host: MakeHost) -> AgentHost:
    return make_host()


@pytest.fixture
def new_host(make_host: MakeHost) -> AgentHost:
    """It has no program of the agent yet."""
    return make_host(is_new=True)

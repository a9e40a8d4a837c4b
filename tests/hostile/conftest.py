"""Hosts for a whole module: what a liar says to one coordinator may not harm it for the next lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost


@pytest.fixture(scope="module")
def make_hosts(agent_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeHost]:
    made: list[AgentHost] = []

    def make(name: str = "h1", root: Path | None = None) -> AgentHost:
        made.append(AgentHost(tmp_path_factory.mktemp(f"host{len(made)}"), agent_python, name, root))
        return made[-1]

    yield make
    for host in made:
        host.clean_up()

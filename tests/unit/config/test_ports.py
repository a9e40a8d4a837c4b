"""Where ports begin: 2222, where the file says, or where the hosts choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.config import load_cluster
from dtctl.config.cluster import Cluster
from dtctl.errors import ConfigError
from dtctl.model import CHOSEN_PORT

TEXT = """\
name: demo
hosts: {a: , b: }
jobs:
  ps: {hosts: a, port: 4000}
  worker: {hosts: [a, a, b]}
trainer: {command: [python, train.py]}
"""


def load(tmp_path: Path, *overrides: str) -> Cluster:
    file = tmp_path / "cluster.yaml"
    file.write_text(TEXT)
    return load_cluster(file, overrides=overrides)


@pytest.mark.parametrize(
    ("said", "coordinator", "worker"),
    [
        ([], 2221, (2222, 2223, 2222)),
        (["ports=2400"], 2400, (2401, 2402, 2400)),
        (["ports=2400", "coordinator.port=2221"], 2221, (2400, 2401, 2400)),
        (["ports=3999"], 3999, (4001, 4002, 3999)),
        (["ports=auto"], CHOSEN_PORT, (CHOSEN_PORT,) * 3),
        (["ports=auto", "coordinator.port=2221"], 2221, (CHOSEN_PORT,) * 3),
    ],
)
def test_ports_count_from_where_the_file_says(
    said: list[str], coordinator: int, worker: tuple[int, ...], tmp_path: Path
) -> None:
    cluster = load(tmp_path, *said)
    assert (cluster.coordinator_port, cluster.jobs["worker"].ports) == (coordinator, worker)
    assert cluster.jobs["ps"].ports == (4000,)
    assert cluster.hosts_choose_ports is (CHOSEN_PORT in worker)


@pytest.mark.parametrize("said", ["ports=0", "ports=70000", "ports=any"])
def test_what_is_no_port_is_a_mistake(said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, said)
    assert "expected auto or a whole number from 1 to 65535" in caught.value.problems[0].summary

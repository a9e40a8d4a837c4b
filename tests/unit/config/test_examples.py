"""The files of `examples` are whole: beside their trainers they pass every check, and can be planned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dtctl.config import load_cluster
from dtctl.model import Cluster
from dtctl.operations.init import write_template
from dtctl.plan.roster import RunPlan
from dtctl.plan.run import plan_run

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def loaded(example: Path, directory: Path) -> Cluster:
    """The example in the place of the cluster.yaml of the template that it names."""
    text = example.read_text()
    (template,) = re.findall(r"^# The trainer: dtctl init --template (\S+)$", text, re.MULTILINE)
    write_template(template, directory, "digits")
    (directory / "cluster.yaml").write_text(text)
    return load_cluster(directory / "cluster.yaml")


def planned(cluster: Cluster) -> RunPlan:
    names = {host.name: host.reach.target for host in cluster.hosts.values()}  # type: ignore[union-attr]
    return plan_run(cluster, names, local_python="python3")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_planned_with_the_trainer_that_it_names(example: Path, tmp_path: Path) -> None:
    cluster = loaded(example, tmp_path)
    trainer = (tmp_path / "train.py").read_text()
    for task in planned(cluster).tasks:
        flags = [word.partition("=")[0] for word in task.argv[2:]]
        assert "--output_dir" in flags
        assert [flag for flag in flags if f'"{flag}"' not in trainer and not flag.endswith("_hosts")] == []


def test_the_examples_cover_the_ways_that_the_readme_names(tmp_path: Path) -> None:
    ways = {example.stem: planned(loaded(example, tmp_path / example.stem)).strategy.value for example in EXAMPLES}
    assert ways == {
        "async-ps": "async-ps",
        "sync-ps": "sync-ps",
        "ps-strategy": "ps-strategy",
        "mirrored": "collective",
        "behind-a-jump-host": "async-ps",
    }


def test_the_machines_behind_a_jump_host_are_reached_through_it(tmp_path: Path) -> None:
    cluster = loaded(ROOT / "examples" / "behind-a-jump-host.yaml", tmp_path)
    assert {host.reach.jump for host in cluster.hosts.values()} == {"me@gate.example.com"}  # type: ignore[union-attr]

"""Which cluster file a command means; and the files of `examples` pass every check and can be planned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dtctl.config import find_cluster_file, load_cluster
from dtctl.config.cluster import Cluster
from dtctl.errors import UsageError
from dtctl.operations.init import write_template
from dtctl.plan.roster import RunPlan
from dtctl.plan.run import plan_run


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """A directory two below the root of a repository, which itself lies below a stray cluster.yaml."""
    (tmp_path / "cluster.yaml").touch()
    (tmp_path / "repo/.git").mkdir(parents=True)
    deep = tmp_path / "repo/a/b"
    deep.mkdir(parents=True)
    return deep


def test_the_argument_comes_first_and_is_taken_as_it_is(below: Path) -> None:
    (below / "cluster.yaml").touch()
    named = Path("elsewhere/mine.yaml")
    assert find_cluster_file(named, {"DTCTL_CONFIG": "other.yaml"}, below) == named


def test_the_variable_comes_before_the_directory(below: Path) -> None:
    (below / "cluster.yaml").touch()
    (below / "mine.yaml").touch()
    assert find_cluster_file(None, {"DTCTL_CONFIG": "mine.yaml"}, below) == below / "mine.yaml"


def test_a_variable_that_names_a_missing_file_is_an_error(below: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_cluster_file(None, {"DTCTL_CONFIG": "gone.yaml"}, below)
    assert caught.value.summary == "$DTCTL_CONFIG names gone.yaml, which does not exist"


def test_an_empty_variable_is_as_none(below: Path) -> None:
    (below / "cluster.yaml").touch()
    assert find_cluster_file(None, {"DTCTL_CONFIG": ""}, below) == below / "cluster.yaml"


def test_the_nearest_file_in_the_repository_is_taken(below: Path) -> None:
    repository = below.parents[1]
    (repository / "cluster.yaml").touch()
    assert find_cluster_file(None, {}, below) == repository / "cluster.yaml"
    (below.parent / "cluster.yaml").touch()
    assert find_cluster_file(None, {}, below) == below.parent / "cluster.yaml"
    (below / "cluster.yaml").mkdir()
    assert find_cluster_file(None, {}, below) == below.parent / "cluster.yaml", "a directory is no cluster file"


def test_a_directory_named_cluster_yaml_is_found_where_there_is_no_file(below: Path) -> None:
    (below / "cluster.yaml").mkdir()
    assert find_cluster_file(None, {}, below) == below / "cluster.yaml"


def test_a_file_of_the_other_ending_is_named_and_not_taken(below: Path) -> None:
    other = below.parent / "cluster.yml"
    other.touch()
    with pytest.raises(UsageError) as caught:
        find_cluster_file(None, {}, below)
    assert caught.value.summary == "there is no cluster.yaml here, but a cluster.yml"
    assert caught.value.hint.startswith(f"mv {other} {below.parent / 'cluster.yaml'}    or name it")
    (below / "cluster.yaml").touch()
    assert find_cluster_file(None, {}, below) == below / "cluster.yaml"


def test_nothing_above_the_repository_is_taken(below: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_cluster_file(None, {}, below)
    tried = [str(folder / "cluster.yaml") for folder in (below, below.parent, below.parents[1])]
    assert caught.value.detail == f"no file was named, $DTCTL_CONFIG is not set, and there is no {', no '.join(tried)}"
    assert caught.value.hint.startswith("dtctl init")


def test_without_a_repository_only_the_directory_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").touch()
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(UsageError):
        find_cluster_file(None, {}, inner)
    assert find_cluster_file(None, {}, tmp_path) == tmp_path / "cluster.yaml"


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

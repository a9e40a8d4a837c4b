"""Which cluster file a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.config import find_cluster_file
from dtctl.errors import UsageError


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


def test_a_variable_that_names_nothing_is_told_as_such(below: Path) -> None:
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


def test_a_directory_of_the_name_is_taken_where_there_is_no_file_to_be_told_as_what_it_is(below: Path) -> None:
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

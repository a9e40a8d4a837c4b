"""Output directories of others, and ports of others, are reported before anything starts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.answers import OutputMark, Prepared
from dtctl.agent.records.kinds import made
from dtctl.config.cluster import Cluster
from dtctl.errors import PreflightError
from dtctl.model import CHOSEN_PORT
from dtctl.operations.outputs import refuse_outputs_of_others
from dtctl.operations.up.conflicts import may_move, refuse_taken_ports, wanted_ports, with_chosen, without_ports
from tests.unit.clusters import cluster, job

ME = "me@desk"


def prepared(**fields: Any) -> Prepared:
    return made(Prepared, unchanged=False, run="digits-1", current=None, replaces=None, **fields)


def mark(file: Path, **fields: Any) -> OutputMark:
    usual = {"path": "/out", "inode": "7", "cluster": "digits", "run": "digits-0", "controller": ME, "time": 1.0}
    return made(OutputMark, **{**usual, "file": str(file), **fields})


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cluster.yaml").touch()
    return tmp_path


def check(here: Path, one: OutputMark) -> None:
    refuse_outputs_of_others({"a": prepared(outputs=[one]), "b": prepared()}, "digits", ME, here / "mine/cluster.yaml")


def test_cluster_of_another_directory_is_another_even_with_the_same_name(here: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        check(here, mark(here / "other" / "cluster.yaml"))
    error = caught.value
    assert error.detail.startswith(
        f"a: /out, by cluster digits of {here}/other (me@desk), run digits-0, started 1970-01"
    )
    assert error.detail.endswith(f"this is cluster digits of {here}/mine")
    assert error.hint.startswith("dtctl up --adopt-output    ")
    assert f"{here}/mine/cluster.yaml" in error.hint


def test_the_same_directory_is_the_same_whatever_its_files_and_clusters_are_called(here: Path) -> None:
    check(here, mark(here / "mine" / "cluster.yaml"))
    check(here, mark(here / "mine" / "other.yaml", cluster="evaluation"))


def test_a_project_that_was_moved_continues(here: Path) -> None:
    check(here, mark(here / "gone" / "cluster.yaml"))
    with pytest.raises(PreflightError):
        check(here, mark(here / "gone" / "cluster.yaml", cluster="letters"))


def test_a_clone_of_a_colleague_is_the_same_project_if_its_cluster_has_the_same_name(here: Path) -> None:
    check(here, mark(here / "other" / "cluster.yaml", controller="ada@laptop"))
    with pytest.raises(PreflightError):
        check(here, mark(here / "other" / "cluster.yaml", controller="ada@laptop", cluster="letters"))


def test_a_directory_that_several_hosts_share_is_reported_once(here: Path) -> None:
    one = mark(here / "other" / "cluster.yaml")
    answers = {name: prepared(outputs=[one]) for name in ("gpu-1", "gpu-2")}
    with pytest.raises(PreflightError) as caught:
        refuse_outputs_of_others(answers, "digits", ME, here / "mine" / "cluster.yaml")
    assert len(caught.value.detail.splitlines()) == 2
    assert caught.value.detail.startswith("gpu-[1-2]: /out, by ")


def taken(port: int, whose: str) -> dict[str, Any]:
    return {"port": port, "whose": whose, "holder": "pid 7 (nc)"}


def refused(value: Cluster, **answers: Prepared) -> PreflightError:
    with pytest.raises(PreflightError) as caught:
        refuse_taken_ports(answers, value)
    return caught.value


def test_ports_of_others_are_reported_with_one_command_that_is_free_on_every_host() -> None:
    error = refused(
        cluster(),
        a=prepared(taken=[taken(2222, "ps:0")], free_from=[2400, 2500, 2600]),
        c=prepared(taken=[taken(2221, "the coordinator"), taken(2222, "worker:0")], free_from=[2500, 2600]),
        d=prepared(free_from=[2400, 2600]),
    )
    assert error.summary == "ports 2221, 2222 are in use on a,c"
    assert error.detail.splitlines() == [
        "a: port 2222 of ps:0 is held by pid 7 (nc)",
        "c: port 2221 of the coordinator is held by pid 7 (nc)",
        "c: port 2222 of worker:0 is held by pid 7 (nc)",
    ]
    assert error.hint == (
        "dtctl up --ports-from 2600    takes ports that are free on all hosts; "
        "or write ports: auto in /p/cluster.yaml, and the hosts choose"
    )


@pytest.mark.parametrize(
    ("whose", "fixed", "settings", "expected"),
    [
        (["worker:0", "the coordinator"], (), {}, True),
        (["worker:0"], ("ps",), {}, True),
        (["worker:0", "ps:0"], ("ps",), {}, False),
        (["the coordinator"], ("the coordinator",), {}, False),
        (["worker:0"], (), {"ports": "2222"}, False),
        (["worker:0"], (), {"ports": "auto"}, False),
        ([], (), {}, False),
    ],
)
def test_hosts_choose_other_ports_where_the_file_sets_none_of_those_that_are_taken(
    whose: list[str], fixed: tuple[str, ...], settings: dict[str, str], expected: bool
) -> None:
    jobs = [job(name, ["a"], [2222], own_port=name in fixed) for name in ("ps", "worker")]
    value = cluster(*jobs, own_coordinator_port="the coordinator" in fixed, settings=settings)
    assert may_move({"a": prepared(taken=[taken(2222, one) for one in whose])}, value) is expected
    moved = without_ports(value)
    assert [moved.jobs[name].ports for name in ("ps", "worker")] == [
        (2222,) if name in fixed else (CHOSEN_PORT,) for name in ("ps", "worker")
    ]
    assert (moved.coordinator_port == CHOSEN_PORT) is ("the coordinator" not in fixed)


def test_ports_set_in_the_file_are_moved_without_overlap() -> None:
    ps, worker = job("ps", ["a", "a"], [1, 2], own_port=True), job("worker", ["a"], [3], own_port=True)
    value = cluster(ps, worker, own_coordinator_port=True)
    answer = prepared(taken=[taken(1, "ps:0"), taken(3, "worker:0"), taken(5, "the coordinator")], free_from=[2400])
    assert refused(value, a=answer).hint == (
        "dtctl up --set coordinator.port=2400 --set jobs.ps.port=2401 --set jobs.worker.port=2403    takes ports that "
        "are free on all hosts; or write ports: auto, and no port: of a job, in /p/cluster.yaml, and the hosts choose"
    )


def test_hosts_choose_ports_if_no_common_ones_are_free() -> None:
    one = prepared(taken=[taken(2222, "ps:0")], free_from=[2400])
    assert refused(cluster(), a=one, b=prepared(free_from=[2500])).hint.startswith("write ports: auto in ")


def test_hosts_are_asked_for_the_ports_that_nothing_says_and_no_others() -> None:
    auto = CHOSEN_PORT
    value = cluster(
        job("ps", ["a"], [4000], own_port=True), job("worker", ["a", "b"], [auto, auto]), coordinator_port=auto
    )
    assert [(list(map(str, tasks)), led) for tasks, led in (wanted_ports(value, name) for name in "ab")] == [
        (["worker:0"], True),
        (["worker:1"], True),
    ]
    answers: Any = {
        "a": {"tasks": {"worker:0": 11}, "coordinator": 12},
        "b": {"tasks": {"worker:1": 13}, "coordinator": 14},
    }
    chosen = with_chosen(value, answers)
    assert (chosen.jobs["ps"].ports, chosen.jobs["worker"].ports, chosen.coordinator_port) == ((4000,), (11, 13), 12)
    assert not chosen.hosts_choose_ports
    assert chosen.voter_ports == {"a": 12, "b": 14}
    assert dataclasses.replace(chosen, jobs=value.jobs, coordinator_port=auto, voter_ports={}) == value

"""Hosts and ports of tasks, and what is said where they cannot be given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.config import placement
from dtctl.config.cluster import Cluster
from dtctl.config.document import Findings, dotted
from dtctl.config.load import load_cluster
from dtctl.config.placement import FIRST_PORT, give_ports, place_tasks, read_idle
from dtctl.config.sections import ClusterFile, JobEntry
from dtctl.errors import ConfigError
from dtctl.model import CHOSEN_PORT, Host, Local, Reach, SshSettings


class Noted(Findings):
    """Findings without a file: what was added, in order."""

    def __init__(self, *, lacking: bool = False) -> None:
        self.found: list[tuple[str, str, str, bool]] = []
        self._lacking = lacking

    def add(self, path: Any, summary: str, hint: str = "", *, at_key: bool = False) -> None:
        self.found.append((dotted(path), summary, hint, at_key))

    def name(self, *path: str | int) -> str:
        return dotted(path)

    def lacks_keys_of(self, key: str) -> bool:
        return self._lacking and key == "hosts"

    @property
    def summaries(self) -> list[str]:
        return [summary for _, summary, _, _ in self.found]


def job(*hosts: str, **settings: Any) -> JobEntry:
    return JobEntry(hosts=hosts, **settings)


def inventory(*names: str, **addresses: str) -> dict[str, Host]:
    """Each its own machine, but `here-...`, which are this one."""
    named = [*names, *addresses]
    return {
        name: Host(
            name=name,
            reach=Local() if name.startswith("here") else SshSettings(target=name),
            address=addresses.get(name),
        )
        for name in named
    }


def ports(
    jobs: Mapping[str, JobEntry], hosts: Mapping[str, Host], findings: Noted, coordinator: int = 2221
) -> dict[str, list[int]]:
    placed = place_tasks(jobs, hosts, findings)
    return give_ports(jobs, placed, hosts, FIRST_PORT, coordinator, findings)


def test_tasks_follow_the_hosts_in_the_order_written() -> None:
    jobs = {"ps": job("b", "a"), "worker": job("n[1-2]", "a", tasks_per_host=2)}
    placed = place_tasks(jobs, inventory("a", "b", "n1", "n2"), Noted())
    assert placed == {"ps": ["b", "a"], "worker": ["n1", "n1", "n2", "n2", "a", "a"]}


def test_as_many_tasks_as_a_cluster_can_have_and_not_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MOST_TASKS", 4)
    hosts, findings = inventory("a", "n1", "n2"), Noted()
    assert place_tasks({"ps": job("a", "a"), "worker": job("n[1-2]")}, hosts, findings)["worker"] == ["n1", "n2"]
    assert findings.found == []
    jobs = {"ps": job("a"), "worker": job("n[1-2]", tasks_per_host=2), "late": job("a")}
    assert place_tasks(jobs, hosts, findings) == {"ps": [], "worker": [], "late": []}
    summary = "jobs.worker is past the 4 tasks that a cluster can have"
    assert findings.found == [("jobs.worker", summary, "check the ranges of its hosts and tasks_per_host", True)]


def test_hosts_that_are_not_there_are_named_together_and_the_others_kept() -> None:
    findings = Noted()
    hosts = inventory("n1")
    assert place_tasks({"ps": job("n1", "n[1-3]")}, hosts, findings) == {"ps": ["n1", "n1"]}
    assert place_tasks({"ps": job("other")}, hosts, findings) == {"ps": []}
    assert place_tasks({"ps": job("other")}, {}, findings) == {"ps": []}  # that there are none is reported elsewhere
    assert findings.found == [
        ("jobs.ps.hosts[1]", "jobs.ps.hosts[1] names n[2-3], which are not in hosts", "hosts has n1", False),
        ("jobs.ps.hosts[0]", "jobs.ps.hosts[0] names other, which is not in hosts", "hosts has n1", False),
    ]


def test_hosts_missing_by_a_mistake_are_not_reported_again() -> None:
    findings = Noted(lacking=True)
    assert place_tasks({"ps": job("a", "b")}, inventory("a"), findings) == {"ps": ["a"]}
    assert findings.found == []


def test_idle_hosts_are_each_once_and_have_no_task_and_one_use() -> None:
    hosts, findings = inventory("a", "b", "c", "n1", "n2", "z"), Noted()
    placed = {"ps": ["a", "c"], "worker": ["b"]}
    assert read_idle(ClusterFile(spares=("n[1-2]", "n1"), arbiters=("z",)), hosts, placed, findings) == {
        "spares": ("n1", "n2"),
        "arbiters": ("z",),
    }
    assert findings.found == []
    read_idle(ClusterFile(spares=("n1", "b,a,n2"), arbiters=("n1", "c")), hosts, placed, findings)
    spare = "a spare has no task; take it out of spares, or out of the job"
    arbiter = "an arbiter has no task, and spares vote too; take it out of arbiters"
    assert findings.found == [
        ("spares[1]", "spares[1] names a,b, which jobs.worker uses", spare, False),
        ("arbiters[0]", "arbiters[0] names n1, which spares names", arbiter, False),
        ("arbiters[1]", "arbiters[1] names c, which jobs.ps uses", arbiter, False),
    ]


def test_the_coordinators_port_is_taken_on_the_leads_machine_alone() -> None:
    jobs = {"ps": job("a"), "worker": job("b", "b")}
    assert ports(jobs, inventory("a", "b"), Noted(), coordinator=2222) == {"ps": [2222], "worker": [2223, 2224]}
    findings = Noted()
    ports({"worker": job("b", port=2222)}, inventory("b"), findings, coordinator=2222)
    summary = "jobs.worker: the coordinator and worker:0 would both listen on port 2222 of b"
    hint = "change jobs.worker.port or coordinator.port, or leave one of them out"
    assert findings.found == [("jobs.worker.port", summary, hint, False)]


def test_without_a_lead_that_has_a_place_there_is_no_coordinator_to_make_way_for() -> None:
    assert ports({"worker": job("gone")}, inventory("a"), Noted()) == {"worker": []}
    assert give_ports({}, {}, {}, FIRST_PORT, 2221, Noted()) == {}


def test_one_address_has_one_listener_on_a_port() -> None:
    hosts = inventory(a="10.0.0.1", b="10.0.0.1", c="10.0.0.2")
    assert ports({"worker": job("a", "b", "c")}, hosts, Noted()) == {"worker": [2222, 2223, 2222]}
    findings = Noted()
    ports({"worker": job("a", "b", "c", port=3000)}, hosts, findings)
    assert findings.summaries == [
        "jobs.worker: worker:0 and worker:1 would both listen on port 3000 of b, which is the same machine as a"
    ]
    assert findings.found[0][2] == "leave jobs.worker.port out    then each task gets a port of its own"


def test_a_free_port_is_free_for_the_machine_and_for_its_address() -> None:
    hosts = inventory("a", b="10.0.0.1", c="10.0.0.1")
    hosts["d"] = Host(name="d", reach=SshSettings(target="c"), address=None)
    jobs = {"ps": job("b", "b"), "worker": job("d"), "other": job("c", "d")}
    assert ports(jobs, hosts, Noted()) == {"ps": [2222, 2223], "worker": [2222], "other": [2224, 2223]}


def test_a_port_free_at_the_address_but_taken_on_the_machine_is_skipped() -> None:
    hosts = inventory(b="10.0.0.1", c="10.0.0.1")
    hosts["d"] = Host(name="d", reach=SshSettings(target="c"), address=None)
    jobs = {"ps": job("b", "b"), "worker": job("d", port=2224), "other": job("c")}
    assert ports(jobs, hosts, Noted()) == {"worker": [2224], "ps": [2222, 2223], "other": [2225]}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (SshSettings(target="x"), SshSettings(target="x", port=22), True),
        (SshSettings(target="x"), SshSettings(target="x", port=23), False),
        (SshSettings(target="x"), SshSettings(target="y"), False),
        (SshSettings(target="x"), SshSettings(target="x", jump="gate"), False),
        (SshSettings(target="x", jump="one"), SshSettings(target="x", jump="other"), False),
        (SshSettings(target="x"), Local(), False),
        (Local(), Local(), True),
    ],
)
def test_hosts_are_one_machine_when_ssh_goes_to_the_same_server(one: Reach, other: Reach, same: bool) -> None:
    hosts = {"a": Host(name="a", reach=one), "b": Host(name="b", reach=other)}
    assert ports({"worker": job("a", "b")}, hosts, Noted()) == {"worker": [2222, 2223 if same else 2222]}


def test_clashes_are_reported_once_for_each_setting_that_resolves_them() -> None:
    findings = Noted()
    jobs = {"ps": job("a", "a", port=3000), "worker": job("a", "a", port=3000), "late": job("a", port=3001)}
    assert ports(jobs, inventory("a"), findings)["worker"] == [3000, 3001]
    assert findings.found == [
        (
            "jobs.worker.port",
            "jobs.worker: ps:0 and worker:0 would both listen on port 3000 of a (and 1 more pair of tasks)",
            "change jobs.worker.port or jobs.ps.port, or leave one of them out",
            False,
        ),
        (
            "jobs.late.port",
            "jobs.late: ps:1 and late:0 would both listen on port 3001 of a",
            "change jobs.late.port or jobs.ps.port, or leave one of them out",
            False,
        ),
    ]


def test_the_last_port_is_a_port_and_there_is_none_after_it() -> None:
    findings = Noted()
    assert ports({"worker": job("a", port=65535)}, inventory("a"), findings) == {"worker": [65535]}
    assert findings.found == []
    ports({"worker": job("b", "a", "a", port=65535)}, inventory("a", "b"), findings)
    summary = "jobs.worker: worker:2 would listen past the last port, 65535"
    assert findings.found == [("jobs.worker.port", summary, "take a lower port, or more hosts", False)]


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
    ("settings", "coordinator", "worker"),
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
    settings: list[str], coordinator: int, worker: tuple[int, ...], tmp_path: Path
) -> None:
    cluster = load(tmp_path, *settings)
    assert (cluster.coordinator_port, cluster.jobs["worker"].ports) == (coordinator, worker)
    assert cluster.jobs["ps"].ports == (4000,)
    assert cluster.hosts_choose_ports is (CHOSEN_PORT in worker)


@pytest.mark.parametrize("setting", ["ports=0", "ports=70000", "ports=any"])
def test_an_invalid_port_is_a_mistake(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, setting)
    assert "expected auto or a whole number from 1 to 65535" in caught.value.problems[0].summary


@pytest.mark.parametrize(
    ("more", "job", "places"),
    [
        ("", "worker", 4),
        ("strategy: sync-ps", "worker", 4),
        ("strategy: kvstore", "worker", 4),
        ("strategy: sync-ps\ntf_config: {sparse: true}", "worker", 2),
        ("strategy: sync-ps", "ps", 2),
    ],
)
def test_tasks_beyond_replicas_keep_their_places_where_they_can_be_let_run_later(
    tmp_path: Path, more: str, job: str, places: int
) -> None:
    jobs = {"ps": '"h[1-4]"', "worker": '"h[1-4]"', job: '"h[1-4]", replicas: 2'}
    lines = [f"  {name}: {{hosts: {said}}}" for name, said in jobs.items()]
    text = ['name: d\nhosts: {"h[1-4]": {}}', "jobs:", *lines, "trainer: {command: [python, t.py]}", more]
    (tmp_path / "t.py").touch()
    (tmp_path / "cluster.yaml").write_text("\n".join(text))
    found = load_cluster(tmp_path / "cluster.yaml").jobs[job]
    assert (len(found.hosts), found.replicas) == (places, 2 if places == 4 else None)

"""Hosts that are new in the cluster file: which run they join, with what, and when they cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.spec import Moved, Spec, inventory_of
from dtctl.agent.run import gang
from dtctl.bundle.scanning import scan
from dtctl.config.cluster import Cluster, Recovery
from dtctl.errors import AgentError, DtctlError, PreflightError
from dtctl.operations.credentials import Authority
from dtctl.operations.run_record import record_of
from dtctl.operations.up.adding import Addition, add_hosts, addition, new_in_file, without_hosts
from dtctl.operations.up.launch import Start
from dtctl.plan import RunPlan
from dtctl.plan.run import plan_run
from dtctl.plan.spec import digest, host_spec, run_spec
from tests.unit.clusters import cluster, job, ssh_host
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.operations.test_up import READY, Notes, agents, launch

__all__ = ["launch"]

OLD = "digits-0"
AUTHORITY = Authority(OLD)
BEFORE = cluster(hosts=[ssh_host(name) for name in "abcd"])
SPARED = dataclasses.replace(
    cluster(hosts=[ssh_host(name) for name in "abcde"]), spares=("e",), recovery=Recovery(replace_s=300.0)
)
MORE = cluster(
    job("ps", ["a", "b"], [2222, 2222]),
    job("worker", ["c", "d", "e"], [2222, 2222, 2222]),
    hosts=[ssh_host(name) for name in "abcde"],
)


@pytest.mark.parametrize("now", [SPARED, MORE, dataclasses.replace(MORE, spares=("e",), recovery=SPARED.recovery)])
def test_without_its_new_hosts_the_file_is_that_of_the_run(now: Cluster) -> None:
    assert new_in_file(now, BEFORE.hosts) == ("e",)
    assert new_in_file(now, now.hosts) == ()
    before = without_hosts(now, ["e"])
    assert before is not None
    assert digest(before, "b") == digest(BEFORE, "b")


def test_a_host_that_was_listed_without_a_part_is_new_too() -> None:
    listed = cluster(hosts=[ssh_host(name) for name in "abcde"])
    before = without_hosts(SPARED, ["e"], listed=True)
    assert before is not None
    assert digest(before, "b") == digest(listed, "b") != digest(BEFORE, "b")


def test_a_file_that_differs_in_more_is_not_that_of_the_run() -> None:
    slower = dataclasses.replace(SPARED, grace_s=77.0)
    before = without_hosts(slower, ["e"])
    assert before is not None
    assert digest(before, "b") != digest(BEFORE, "b")
    assert without_hosts(dataclasses.replace(SPARED, arbiters=("e",)), ["e"]) is None
    assert without_hosts(MORE, "cde") is None, "no job is without a host"


class Live:
    """The agents of digits-0, of which the file has hosts more. `known`: what the coordinator's host reports of it."""

    def __init__(
        self, launch: Start, now: Cluster = SPARED, *, began: Cluster = BEFORE, lead: str = "c", **known: Any
    ) -> None:
        names = {name: name for name in "abcde"}

        def planned(one: Cluster) -> RunPlan:
            return plan_run(one, names, local_python="python3")

        before, plan = planned(began), planned(now)
        record = record_of(plan, "digits-1", 1000.0)
        self.launch = dataclasses.replace(launch, plan=plan, record=record, digest="another", replan=planned)
        self.record = record_of(before, OLD, 7.0)
        self.keys = Notes()
        self.keys.keep_authority(OLD, AUTHORITY)
        digest_before = digest(began, launch.bundle.id)
        fields: dict[str, Any] = {"digest": digest_before, "bundle": None, "controller": "x", "replaced": {}}
        self.spec: Any = host_spec(before, lead, run_spec(before, run=OLD, created=7.0, **fields))
        self.known: dict[str, Any] = {
            "digest": digest_before,
            "bundle": launch.bundle.id,
            "file": None,
            "movable": True,
            "coordinator": before.coordinator,
            "voters": list(before.voters),
            "replace_s": None,
            "awaited": [],
            **known,
        }
        self.requests: list[tuple[str, str, Mapping[str, Any]]] = []
        self.failing: dict[str, DtctlError] = {}
        self._agents = agents()

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Any:
        host, kind = session.host.name, str(fields["type"])
        self.requests.append((host, kind, fields))
        if kind == "join":
            joined: dict[str, Any] = {**self.spec["moved"]["joined"], **fields["joins"]}
            self.spec = gang.with_moves(self.spec, made(Moved, number=1, joined=joined, replace_s=fields["replace_s"]))
            return [{"type": "result", "run": OLD, "inventory": inventory_of(self.spec), **self.known}]
        if kind in self.failing:
            return [self.failing[kind]]
        session.run = OLD  # type: ignore[attr-defined]
        answer = self._agents(session, fields)
        return [{**READY, "run": OLD}] if kind == "up" else answer

    def addition(self) -> Addition | None:
        return addition(self.launch, self.record, FakeTransport(self))

    def add(self) -> tuple[tuple[str, ...], Mapping[str, DtctlError]]:
        adding = self.addition()
        assert adding is not None
        return add_hosts(adding, self.record, FakeTransport(self), lambda progress: None, self.keys)

    def asked(self, kind: str) -> list[Mapping[str, Any]]:
        return [fields for _, name, fields in self.requests if name == kind]


@pytest.mark.parametrize("now", [SPARED, MORE])
def test_a_new_host_is_prepared_added_by_the_coordinator_and_then_started(launch: Start, now: Cluster) -> None:
    live = Live(launch, now)
    assert live.add() == (("e",), {})
    steps = [(host, kind) for host, kind, _ in live.requests]
    assert steps == [("c", "join"), ("e", "up"), ("c", "join"), ("e", "start"), ("e", "keep")]
    spare = live.asked("join")[1]["joins"]["e"]
    assert (set(spare["addresses"]), spare["address"]) == ({"ps:0", "ps:1", "worker:0", "worker:1"}, "e")
    spec = checked(Spec, live.asked("up")[0]["spec"])
    assert (spec["run"], spec["digest"], list(spec["moved"]["joined"])) == (OLD, live.known["digest"], ["e"])
    assert [voter["host"] for voter in spec["voters"]] == [voter["host"] for voter in live.known["voters"]]
    assert set(spec["slots"]) == set("abcd")
    assert live.asked("join")[1]["replace_s"] == spec["recovery"]["replace_s"] == 300.0
    certificate = x509.load_pem_x509_certificate(live.asked("up")[0]["credentials"]["certificate"].encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(AUTHORITY.to_json()["certificate"].encode()))


def test_more_tasks_than_the_run_has_places_for_are_named(launch: Start) -> None:
    adding = Live(launch, MORE).addition()
    assert adding is not None
    assert (adding.hosts, adding.places) == (("e",), {"worker": 3})


def test_a_host_that_has_joined_is_not_added_again(launch: Start) -> None:
    live = Live(launch)
    live.add()
    live.requests.clear()
    assert live.add() == ((), {})
    assert [kind for _, kind, _ in live.requests] == ["join"]


def test_a_host_whose_join_was_cut_off_is_started_again(launch: Start) -> None:
    live = Live(launch)
    live.add()
    live.known["awaited"] = ["e"]
    assert live.add()[0] == ("e",)


def test_a_host_that_cannot_be_prepared_is_not_added(launch: Start) -> None:
    live = Live(launch)
    live.failing["up"] = full = AgentError("disk_full", "there is no room", host="e")
    assert live.add() == ((), {"e": full})
    assert [kind for _, kind, _ in live.requests] == ["join", "up"]


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"movable": False}, "its tasks were started with fixed addresses"),
    ],
)
def test_a_run_that_no_host_can_join_is_named_with_the_command_that_starts_it_again(
    launch: Start, known: dict[str, Any], why: str
) -> None:
    with pytest.raises(PreflightError, match=f"e cannot join run {OLD}") as error:
        Live(launch, **known).addition()
    assert error.value.detail == why
    assert "dtctl up --replace" in error.value.hint


def test_only_the_machine_that_has_the_key_of_the_run_adds_hosts(launch: Start) -> None:
    live = Live(launch)
    live.keys = Notes()
    with pytest.raises(PreflightError, match=f"e cannot join run {OLD} from this machine"):
        live.add()
    assert [kind for _, kind, _ in live.requests] == ["join"], "nothing but the run was asked about"


@pytest.mark.parametrize("known", [{"digest": "of another file"}, {"bundle": "0" * 64}])
def test_a_run_that_differs_in_more_is_left_to_the_refusal_of_its_hosts(launch: Start, known: dict[str, Any]) -> None:
    assert Live(launch, **known).addition() is None


def test_a_coordinator_that_names_strangers_is_not_believed(launch: Start) -> None:
    stranger = {"host": "x", "address": "x:1", "port": 1}
    with pytest.raises(DtctlError) as error:
        Live(launch, coordinator=stranger).addition()
    assert "c names x, which has no part in run" in error.value.detail


def test_the_cluster_file_among_the_code_may_be_another_one(launch: Start, tmp_path: Path) -> None:
    """It is the file into which the host was written; each host keeps the one that it was sent."""
    file = tmp_path / "cluster.yaml"
    file.write_text("before")
    bundle = scan(tmp_path)
    before = next(one for one in bundle.manifest.files if one.path == "cluster.yaml")
    live = Live(dataclasses.replace(launch, bundle=bundle))
    file.write_text("after, which is longer")
    changed = dataclasses.replace(live.launch.plan.cluster, file=file)
    now = scan(tmp_path)
    plan = dataclasses.replace(live.launch.plan, cluster=changed)
    live.launch = dataclasses.replace(live.launch, bundle=now, plan=plan)
    live.known["file"] = {"mode": before.mode, "size": before.size, "sha256": before.sha256}
    assert live.addition() is not None
    (tmp_path / "train.py").write_text("print(1)")
    live.launch = dataclasses.replace(live.launch, bundle=scan(tmp_path))
    assert live.addition() is None


TRAINING = cluster(job("worker", ["a", "b", "c"], [2222, 2222, 2222]), hosts=[ssh_host(name) for name in "abc"])
LARGER = cluster(
    job("worker", ["a", "b", "c", "d", "e"], [2222, 2222, 2222, 2222, 2300]), hosts=[ssh_host(name) for name in "abcde"]
)
MIDDLE = cluster(job("worker", ["a", "d", "b", "c"], [2222] * 4), hosts=[ssh_host(name) for name in "abcd"])


@pytest.mark.parametrize(
    ("now", "tasks"),
    [(LARGER, {"d": ("worker:3",), "e": ("worker:4",)}), (MIDDLE, {"d": ("worker:3",)})],
    ids=["two at the end", "one in the middle"],
)
def test_a_host_brings_the_tasks_that_the_file_gives_it_where_tasks_train_together(
    launch: Start, now: Cluster, tasks: dict[str, tuple[str, ...]]
) -> None:
    live = Live(launch, now, began=TRAINING, lead="a")
    adding = live.addition()
    assert adding is not None
    assert {host: tuple(map(str, own)) for host, own in adding.tasks.items()} == tasks
    assert adding.places == {}
    assert live.add() == (tuple(tasks), {})
    for host, [task] in tasks.items():
        spec = checked(Spec, next(one for one in live.asked("up") if one["host"] == host)["spec"])
        assert [one["id"] for one in spec["tasks"]] == [task]
        [member] = spec["moved"]["joined"][host]["tasks"]
        assert (member["task"], member["host"], member["role"]) == (task, host, "worker")
        ports = {str(address).rpartition(":")[2] for address in spec["moved"]["joined"][host]["addresses"].values()}
        assert str(member["address"]).rpartition(":")[2] not in ports, "it may take the tasks of others, too"
    assert [one["task"] for one in live.spec["roster"]][3:] == [task for [task] in tasks.values()]
    again = live.addition()
    assert again is not None
    assert (again.hosts, again.tasks, again.places) == ((), {}, {})

"""Whether what one host saves is seen where it is needed, and which hosts have the odd data."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.values import HOME
from dtctl.agent.rooms.check.storage import filesystem_of
from dtctl.config.cluster import Recovery
from dtctl.errors import DtctlError
from dtctl.model import Host, Local
from dtctl.operations.findings import Cost, fails
from dtctl.render.findings import remedies
from dtctl.rooms.check import Answers, Line, Statement
from dtctl.rooms.check.programs import Needs
from dtctl.rooms.check.storage import TOPIC, data_findings, data_text
from tests.unit.checks.contexts import GB, context, hosts_by_signature, judged, sentence, storage
from tests.unit.clusters import cluster, job, ssh_host

SAVED = {"path": "/saved", "at": "/saved", "free_bytes": 100 * GB}
WROTE = {host: storage(written=[SAVED]) for host in "abcd"}


def looked(*hosts: str, sees: tuple[str, ...] = ()) -> dict[str, Any]:
    return {host: storage(looked=[{"path": "/saved", "seen": ["c"] if host in sees else []}]) for host in hosts}


def with_evaluator() -> Any:
    jobs = [job("chief", ["c"], [2222]), job("worker", ["a", "b"], [2222] * 2), job("evaluator", ["d"], [2222])]
    return context(cluster(*jobs, dirs={"output": "/saved"}))


def test_all_hosts_write_first_and_then_the_others_look_for_the_leads() -> None:
    value = context()
    first = TOPIC.questions(value, Answers())
    assert {host: one["write"] for host, one in first.items()} == {host: ["/saved"] for host in "abcd"}
    second = TOPIC.questions(value, Answers([WROTE]))
    assert {host: [(one["path"], one["hosts"]) for one in asked["look"]] for host, asked in second.items()} == {
        "a": [("/saved", ["c"])],
        "b": [("/saved", ["c"])],
    }
    assert TOPIC.questions(value, Answers([WROTE, looked("a", "b")])) == {}


def test_a_start_asks_no_more_than_who_sees_what_the_lead_saves() -> None:
    value = context(cluster(dirs={"output": "/saved", "data": "/data"}), brief=True)
    first = TOPIC.questions(value, Answers())
    assert {host: (one["write"], one["checkpoints"], one["data"]) for host, one in first.items()} == {
        "c": (["/saved"], [], [])
    }
    assert set(TOPIC.questions(value, Answers([WROTE]))) == {"a", "b"}


@pytest.mark.parametrize("place", ["gs://b/saved", None])
def test_a_start_writes_nothing_where_all_see_it_or_nothing_is_saved(place: str | None) -> None:
    value = context(cluster(dirs={"output": place} if place else {}), brief=True)
    assert TOPIC.questions(value, Answers()) == {}


def test_a_start_on_one_machine_writes_nothing_as_all_tasks_see_it() -> None:
    here = [Host(name, Local()) for name in "abcd"]
    assert TOPIC.questions(context(cluster(hosts=here, dirs={"output": "/saved"}), brief=True), Answers()) == {}
    apart = [*(Host(name, Local(), address=name) for name in "abc"), ssh_host("d")]
    jobs = [job("ps", ["d"], [2222]), job("worker", ["c"], [2222])]
    assert set(
        TOPIC.questions(context(cluster(*jobs, hosts=apart, dirs={"output": "/saved"}), brief=True), Answers())
    ) == {"c"}


def test_a_start_and_a_check_judge_what_they_know_by_the_same_rules() -> None:
    for brief in (False, True):
        value = context(uses=["saves_sharded"], brief=brief)
        (one,) = judged(TOPIC, value, {"c": WROTE["c"]}, looked("a", "b", sees=("a",)))
        assert (one.signature.name, one.signature.cost) == ("checkpoints_not_shared", Cost.START)
        first, bucket, host = remedies(one)[:3]
        assert first.startswith("dirs.output in cluster.yaml: a directory that all of them share")
        assert bucket.startswith("dirs.output: gs://BUCKET/PATH")
        assert host.startswith("jobs.ps.hosts: c ")


@pytest.mark.parametrize(
    ("uses", "signature", "is_problem"),
    [
        (["saves_sharded"], "checkpoints_not_shared", True),
        ([], "checkpoints_perhaps_not_shared", False),
        (["saves_alone"], None, False),
    ],
)
def test_ps_that_save_their_parts_need_one_directory(uses: list[str], signature: str | None, is_problem: bool) -> None:
    found = judged(TOPIC, context(uses=uses), WROTE, looked("a", "b", sees=("a",)))
    assert hosts_by_signature(found) == ({signature: ("b",)} if signature else {})
    assert all(fails(one) is is_problem for one in found)


@pytest.mark.parametrize(("paths", "setting"), [({}, "dirs.output"), ({"checkpoint_dir": "/saved"}, "checkpoint.dir")])
def test_what_is_to_be_changed_is_the_key_that_says_where_checkpoints_lie(paths: dict[str, Any], setting: str) -> None:
    value = context(cluster(dirs={"output": "/saved"}, **paths), uses=["saves_sharded"])
    (found,) = judged(TOPIC, value, WROTE, looked("a", "b", sees=("a",)))
    assert remedies(found)[0].startswith(f"{setting} in cluster.yaml: a directory that all of them share")


def test_an_evaluator_has_to_see_what_the_lead_saves() -> None:
    found = judged(TOPIC, with_evaluator(), WROTE, looked("a", "b", "d", sees=("a", "b")))
    assert hosts_by_signature(found) == {"checkpoints_not_seen": ("d",)}
    assert sentence(found[0]).startswith("evaluator:0 waits for checkpoints that it will never see")


def test_workers_in_step_are_warned_that_a_restart_tears_them_apart() -> None:
    found = judged(TOPIC, with_evaluator(), WROTE, looked("a", "b", "d", sees=("d",)))
    assert hosts_by_signature(found) == {"restarts_apart": ("a", "b")}
    assert not fails(found[0])


@pytest.mark.parametrize(
    ("uses", "signature"), [("saves_by_rank", "ranks_not_shared"), ("deepspeed", "ranks_perhaps_not_shared")]
)
def test_ranks_that_save_their_parts_need_one_directory(uses: str, signature: str) -> None:
    value = dataclasses.replace(with_evaluator(), needs={"chief": Needs(uses=frozenset([uses]))})
    found = judged(TOPIC, value, WROTE, looked("a", "b", "d", sees=("d", "a")))
    assert hosts_by_signature(found) == {signature: ("b",)}
    assert fails(found[0]) is (uses == "saves_by_rank")
    assert found[0].signature.cost is Cost.START, "`up` says it, too"


def test_spare_without_the_checkpoints_is_named_and_an_arbiter_is_not_asked() -> None:
    hosts = [ssh_host(name) for name in "abcdstz"]
    value = cluster(hosts=hosts, dirs={"output": "/saved"}, recovery=Recovery(replace_s=300.0))
    value = dataclasses.replace(value, spares=("s", "t"), arbiters=("z",))
    spared = context(value, uses=["saves_alone"])
    assert set(TOPIC.questions(spared, Answers())) == set("abcdst")
    found = judged(TOPIC, spared, WROTE, looked("a", "b", "s", "t", sees=("a", "b", "t")))
    assert hosts_by_signature(found) == {"spares_blind": ("s",)}
    assert not fails(found[0])


def test_unwritable_directory_is_reported_with_the_system_error() -> None:
    wrote = {**WROTE, "d": storage(written=[{**SAVED, "at": "/", "up": 1, "problem": "Permission denied"}])}
    found = judged(TOPIC, context(), wrote)
    assert hosts_by_signature(found) == {"place_unwritable": ("d",)}
    assert sentence(found[0]) == "d cannot write to /saved: Permission denied (of that path only / exists)"


DATA = {"path": "/data", "there": True, "files": 3, "size_bytes": 300, "digest": "aa"}


@pytest.mark.parametrize(
    ("odd", "signature"),
    [
        ({"there": False}, "data_missing"),
        ({"problem": "Permission denied"}, "data_unreadable"),
        ({"files": 0, "size_bytes": 0, "digest": "bb"}, "data_empty"),
        ({"files": 2, "digest": "bb"}, "data_differs"),
        ({"digest": "bb"}, "data_changed"),
        ({"files": 2, "digest": "", "whole": False}, None),
        ({}, None),
    ],
)
def test_data_has_to_be_there_and_the_same(odd: dict[str, Any], signature: str | None) -> None:
    value = context(cluster(dirs={"data": "/data"}))
    facts = {host: storage(data=[{**DATA, **(odd if host == "d" else {})}]) for host in "bcd"}
    found = judged(TOPIC, value, facts)
    assert hosts_by_signature(found) == ({signature: ("d",)} if signature else {})


def test_what_may_be_saved_is_written_where_it_may_be_saved_and_nowhere_else() -> None:
    jobs = [job("chief", ["c"], [1]), job("ps", ["a"], [2]), job("worker", ["d"], [3]), job("evaluator", ["b"], [4])]
    asked = TOPIC.questions(context(cluster(*jobs, dirs={"output": "/saved", "data": "/data"})), Answers())
    saved = {host: one["checkpoints"] for host, one in asked.items()}
    assert saved == {"a": ["/saved"], "b": [], "c": ["/saved"], "d": []}
    assert {tuple(one["write"]) for one in asked.values()} == {("/saved",)}


def test_a_home_may_lie_elsewhere_on_another_host() -> None:
    hosts = [*(ssh_host(name) for name in "bcd"), ssh_host("a", dirs={"output": "/own"})]
    value = context(cluster(hosts=hosts, dirs={"output": "/saved"}))
    (look,) = TOPIC.questions(value, Answers([WROTE]))["a"]["look"]
    assert (look["path"], look["up"], look["hosts"]) == ("/own", 0, ["c"])


ROOM = {"path": "/saved", "size_bytes": 10 * GB}


@pytest.mark.parametrize(
    ("free", "name", "fit"),
    [
        (9 * GB, "no_room_to_save", 0),
        (10 * GB, "little_room_to_save", 1),
        (29 * GB, "little_room_to_save", 2),
        (30 * GB, None, 3),
    ],
)
def test_three_checkpoints_are_enough(free: int, name: str | None, fit: int) -> None:
    written = {**SAVED, "path": HOME + "/s", "free_bytes": free}
    facts = {"c": storage(written=[written], checkpoints=[{**ROOM, "path": HOME + "/s"}])}
    found = judged(TOPIC, context(), facts)
    assert [one.signature.name for one in found] == ([name] if name else [])
    fields = {"where": "~/s", "free_bytes": free, "last_bytes": 10 * GB, "fit": fit}
    assert all(one.seen.fields == fields for one in found)
    assert lines(facts)["checkpoints that fit"] == {"c": fit}


def lines(*rounds: Any) -> dict[str, Any]:
    return {one.what: one.values for one in TOPIC.lines(context(), Answers(rounds)) if isinstance(one, Line)}


def test_room_is_reported_by_the_directory_with_the_least_and_data_by_host() -> None:
    written = [SAVED, {**SAVED, "path": "/more", "free_bytes": 50 * GB}, {**SAVED, "path": "/gone", "at": ""}]
    saved = [ROOM, {**ROOM, "path": "/more"}, {**ROOM, "path": "/gone", "size_bytes": 100 * GB}]
    facts = {"c": storage(written=written, checkpoints=saved), "d": storage(data=[DATA])}
    assert lines(facts) == {"checkpoints that fit": {"c": 5}, "data": {"d": "3 files, 0.0 MB"}}


def test_hosts_that_see_the_leads_checkpoints_are_reported_after_the_check() -> None:
    def statements(*rounds: Any) -> list[tuple[str, Any]]:
        return [
            (one.kind, dict(one.fields))
            for one in TOPIC.lines(context(), Answers(rounds))
            if isinstance(one, Statement)
        ]

    assert statements(WROTE) == []
    for filesystem, reported in (("nfs4", "nfs4"), ("", "unknown file system")):
        wrote = {**WROTE, "c": storage(written=[{**SAVED, "filesystem": filesystem}])}
        fields = {"where": "/saved", "hosts": ("c", "b"), "filesystem": reported}
        assert statements(wrote, looked("a", "b", sees=("b",))) == [("shared", fields)]
    assert statements(WROTE, looked("a", "b")) == [("not_shared", {"where": "/saved", "lead": "c"})]


def test_sharing_is_unknown_without_the_leads_host() -> None:
    without = {host: facts for host, facts in WROTE.items() if host != "c"}
    heard = Answers([without], errors={"c": DtctlError("c does not answer")})
    assert Statement("sharing_not_known", {"lead": "c"}) in list(TOPIC.lines(context(), heard))
    assert not any(isinstance(one, Statement) for one in TOPIC.lines(context(), Answers([WROTE])))


DATASET = {"path": "/data", "there": True, "files": 3, "size_bytes": 3_000_000, "digest": "aa"}
JOBS = (job("ps", ["a"], [1]), job("server", ["b"], [2]), job("worker", ["a", "b", "c"], [3] * 3))
SCENE = context(cluster(*JOBS, dirs={"data": "/data"}))


def found(*answers: tuple[str, dict[str, Any]]) -> list[tuple[str, tuple[str, ...], tuple[str, ...], dict[str, Any]]]:
    facts = {host: storage(data=[{**DATASET, **each}]) for host, each in answers}
    return [
        (one.signature.name, one.seen.hosts, tuple(map(str, one.seen.tasks)), dict(one.seen.fields))
        for one in data_findings(SCENE, facts)
    ]


def test_data_that_is_missing_is_reported_with_those_who_would_read_it_there() -> None:
    gone = {"there": False, "path": HOME + "/data"}
    assert found(("a", gone), ("b", gone), ("c", {"path": HOME + "/data"})) == [
        ("data_missing", ("a", "b"), ("worker:0", "worker:1"), {"where": "~/data"})
    ]


@pytest.mark.parametrize(
    ("disks", "expected"),
    [
        ([{}], "3 files, 3.0 MB"),
        ([{}, {"files": 2, "size_bytes": 500_000}], "5 files, 3.5 MB"),
        ([{}, {"whole": False}], "6 files, 6.0 MB or more"),
        ([{}, {"there": False}], "missing"),
    ],
)
def test_facts_of_a_host_are_summarized(disks: list[dict[str, Any]], expected: str) -> None:
    assert data_text(storage(data=[{**DATASET, **each} for each in disks])) == expected


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:41 / /data rw - nfs4 nas:/data rw,vers=4.2
41 40 0:42 / /data/my\\040runs rw shared:2 - lustre mgs:/runs rw
42 22 0:43 / /home rw - autofs auto rw
43 22 0:44 / /home rw - ceph mon:/home rw
a line of another form
"""


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/", "ext4"),
        ("/srv/data", "ext4"),
        ("/data", "nfs4"),
        ("/data2/out", "ext4"),
        ("/data/my runs/digits", "lustre"),
        ("/home/ada", "ceph"),
    ],
)
def test_a_file_system_is_that_of_the_nearest_mount_point(path: str, filesystem: str) -> None:
    assert filesystem_of(path, MOUNTS) == filesystem
    assert filesystem_of(path, "") == ""

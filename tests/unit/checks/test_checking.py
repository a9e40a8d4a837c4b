"""`check` asks round by round in one conversation a host, `up` in passing; what is so takes one line."""

from __future__ import annotations

import ast
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import dtctl.rooms.check as check_room
from dtctl.agent.records.answers import Facts, Prepared
from dtctl.agent.records.kinds import InvalidValue, made
from dtctl.agent.rooms.network.records import NetworkFacts, SshFacts
from dtctl.config.cluster import Recovery
from dtctl.errors import DtctlError, PreflightError, TransportError
from dtctl.operations.client import Progress, silent
from dtctl.operations.findings import Checked, Cost, table
from dtctl.operations.run_record import record_of
from dtctl.render import checked as checked_screen
from dtctl.render.machine import status as machine_form
from dtctl.rooms.check import CheckContext, Line, Statement
from dtctl.rooms.check.checking import InPassing, _Rounds, check, topics
from dtctl.rooms.check.screen import shown
from tests.unit.checks.contexts import GB, context, disk, machine, software, storage
from tests.unit.checks.network.networks import listening, reaching
from tests.unit.clusters import cluster
from tests.unit.fakes import FakeSession, FakeTransport

SAVED = {"path": "/saved", "at": "/saved", "free_bytes": 100 * GB}
OF_THE_NETWORK = ("network", "ssh")
"""Topics with tests of their own: tests/unit/checks/network."""
GONE = TransportError("cannot reach b")
ROOM = Path(check_room.__file__).parent


class Hosts:
    """Agents that answer what they are asked; `off_s`: whose clocks are ahead by how much."""

    def __init__(self, **off_s: float) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self._off_s = off_s

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        host, asked = session.host.name, fields["ask"]
        own = sorted(name for name, question in asked.items() if question is not None and name not in OF_THE_NETWORK)
        self.asked.append((host, own))
        facts = {name: self.facts(name, question) for name, question in asked.items() if question is not None}
        now = time.time() + self._off_s.get(host, 0.0)
        return [{"type": "result", "time": now, "facts": facts}]

    def facts(self, topic: str, question: Mapping[str, Any]) -> Any:
        if topic == "software":
            return software(tensorflow="2.21.0")
        if topic == "machine":
            return machine(disks=[disk()])
        if topic == "network":
            return made(NetworkFacts)
        if topic == "ssh":
            return made(SshFacts)
        looked = [{"path": one["path"], "seen": one["hosts"]} for one in question["look"]]
        return storage(written=[SAVED] if question["write"] else [], looked=looked)


def checked(hosts: FakeTransport, value: CheckContext | None = None, report: Any = silent) -> Checked:
    value = value or context()
    return check(value, record_of(value.plan), hosts, report)


def test_one_conversation_a_host_has_all_topics_and_rounds() -> None:
    hosts = Hosts()
    transport = FakeTransport(hosts)
    found = checked(transport)
    assert sorted(transport.opened) == ["a", "b", "c", "d"]
    first = ["machine", "software", "storage"]
    assert sorted(hosts.asked) == sorted([*((host, first) for host in "abcd"), ("a", ["storage"]), ("b", ["storage"])])
    assert (found.found, found.errors, found.failed) == ((), {}, False)
    assert all(session.closed for session in transport.sessions.values())


def test_a_host_that_cannot_be_asked_does_not_hinder_the_others() -> None:
    found = checked(FakeTransport(Hosts(), {"b": GONE}))
    assert found.errors == {"b": GONE}
    assert found.found == ()
    assert checked_screen.summary(found).startswith("a,c,d checked in ")


def test_a_host_that_answers_something_else_is_not_trusted() -> None:
    class Silent(Hosts):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
            (answer,) = super().__call__(session, fields)
            assert isinstance(answer, dict)
            if session.host.name == "d":
                del answer["facts"]["machine"]
            return [answer]

    found = checked(FakeTransport(Silent()))
    assert list(found.errors) == ["d"]
    assert "invalid record: facts: expected machine" in found.errors["d"].detail + found.errors["d"].summary


def test_progress_of_a_check_is_reported_by_host() -> None:
    reports: list[Progress] = []
    checked(FakeTransport(Hosts()), report=reports.append)
    assert [one.phase for one in reports if one.host == "d"] == ["connect", "check", "prepared"]


def test_the_machine_form_has_all_that_was_found() -> None:
    document = machine_form.checked(checked(FakeTransport(Hosts(d=300.0), {"b": GONE})))
    assert document["passed"] is False
    assert [one["signature"] for one in document["problems"]] == ["clock_wrong"]
    assert document["problems"][0]["remedies"][0].startswith("dtctl exec @d -- timedatectl")
    assert [one["host"] for one in document["errors"]] == ["b"]
    assert {"what": "tensorflow", "hosts": dict.fromkeys("acd", "2.21.0")} in document["topics"]["software"]


def test_greeting_shows_a_wrong_clock() -> None:
    value = context(brief=True)
    passing = InPassing(value)

    def late() -> FakeSession:
        session = FakeSession(value.host("d"), lambda session, fields: [])
        session.facts = {"time": time.time() + 300}
        return session

    passing.met(passing.opened("d", late))
    own = {"machine": machine()}
    passing.add({"d": made(Prepared, unchanged=False, run="r", current=None, replaces=None, facts=own, facts_s=0.2)})
    findings = passing.judged()
    assert findings is not None
    assert [one.signature.name for one in findings.found] == ["clock_wrong"]
    assert findings.seconds == 0.2
    assert findings.hosts == ("d",), "nobody else has reported anything"


def test_in_passing_a_second_round_is_asked_of_those_who_have_answered_the_first() -> None:
    passing = InPassing(context(brief=True))
    first = listening({host: question["network"] for host, question in passing.questions.items()})
    facts = {host: made(Facts, facts={"network": each}, facts_s=0.1) for host, each in first.items() if host != "d"}
    passing.add(facts)
    assert set(passing.questions) == {"a", "b", "c"}
    question = passing.question("a")
    assert question is not None
    assert [name for name, asked in question.items() if asked is not None] == ["network"]
    network = question["network"]
    assert network is not None
    assert {peer["host"] for peer in network["reach"]} == {"b", "c"}
    answer = reaching({"a": network}, lambda source, peer: "refused")
    passing.check("a", made(Facts, facts={"network": answer["a"]}))
    with pytest.raises(InvalidValue, match="facts: expected network"):
        passing.check("a", made(Facts, facts={"ssh": made(SshFacts)}))
    passing.add({"a": made(Facts, facts={"network": answer["a"]}, facts_s=0.3)})
    assert passing.questions == {}
    checked_all = passing.judged()
    assert checked_all is not None
    assert checked_all.failed
    assert checked_all.seconds == pytest.approx(0.4)


def test_findings_and_signatures_have_the_same_names() -> None:
    paths = [*ROOM.rglob("*.py"), *ROOM.parent.glob("*/check.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "found"]
    found = {node.args[0].value for node in calls if isinstance(node.args[0], ast.Constant)}
    assert found <= {row.name for each in topics() for row in each.rows} <= texts


def passed(*, brief: bool, **fields: Any) -> Checked:
    """A check of hosts of which one does not see what the lead's saves, one resolves its own name to a loopback
    address, and one has a port that is taken."""
    value = context(cluster(dirs={"output": "/saved"}, **fields), uses=["saves_sharded"], brief=brief)
    rounds = _Rounds(value, topics())
    first = listening({host: asked["network"] for host, asked in rounds.next().items()})
    first["d"]["resolved"] = [{"name": "d", "addresses": ["127.0.1.1"], "own": True}]
    first["a"]["bound"][0].update({"state": "taken", "holder": "nginx"})
    rounds.add({host: {"network": each, "storage": storage(written=[SAVED])} for host, each in first.items()})
    sees = {"a": ["c"], "b": []}
    questions = rounds.next()
    second = {
        host: {
            **({"network": reaching({"a": asked["network"]})["a"]} if "network" in asked else {}),
            **({"storage": storage(looked=[{"path": "/saved", "seen": sees[host]}])} if host in sees else {}),
        }
        for host, asked in questions.items()
    }
    rounds.add(second)
    return rounds.judged(0.1)


def test_what_a_start_leaves_out_is_left_out_by_its_cost_alone() -> None:
    all_of_them = {one.signature.name: one.signature.cost for one in passed(brief=False).found}
    assert all_of_them.keys() >= {"port_taken", "own_loopback", "checkpoints_not_shared"}
    at_start = [one.signature.name for one in passed(brief=True).found]
    assert sorted(at_start) == sorted(name for name, cost in all_of_them.items() if cost is Cost.START)
    assert "port_taken" not in at_start, "which a start refuses by itself"


def test_parts_of_a_checkpoint_on_several_hosts_stop_a_start() -> None:
    found = passed(brief=True)
    with pytest.raises(PreflightError, match="no host would have a whole checkpoint") as refused:
        checked_screen.refuse_certain_failure(found, hint="dtctl up --force    starts them anyway")
    assert refused.value.summary == "no host would have a whole checkpoint"
    assert refused.value.detail.startswith(
        "problem: /saved is not one directory: what c writes there is not seen on b."
    )
    lines = refused.value.hint.splitlines()
    assert lines[1].startswith("dirs.output: gs://BUCKET/PATH")
    assert lines[2].startswith("jobs.ps.hosts: c ")
    assert lines[-1] == "dtctl up --force    starts them anyway"


def test_a_file_that_lets_a_run_start_over_accepts_parts_on_several_hosts() -> None:
    found = passed(brief=True, recovery=Recovery(allow_scratch=True))
    assert found.failed, "it is said all the same"
    checked_screen.refuse_certain_failure(found, hint="")


def test_a_start_shows_no_notes_and_each_problem_once(capsys: pytest.CaptureFixture[str]) -> None:
    checked_screen.show_brief(passed(brief=True), refused=True)
    assert "warning" not in capsys.readouterr().err
    checked_screen.show_brief(passed(brief=True))
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count("is not one directory") == 1
    assert "127.0.1.1" not in shown


EIGHT = [f"gpu-{number}" for number in range(1, 9)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (Line("tensorflow", dict.fromkeys(EIGHT, "2.21.0")), [("tensorflow", "2.21.0")]),
        (
            Line("tensorflow", {**dict.fromkeys(EIGHT, "2.21.0"), "gpu-8": "2.19.0"}),
            [("tensorflow", "gpu-[1-7]: 2.21.0; gpu-8: 2.19.0")],
        ),
        (Line("torch", dict.fromkeys(EIGHT, "")), []),
        (Line("torch", {**dict.fromkeys(EIGHT, "2.2"), "gpu-3": ""}), [("torch", "gpu-[1-2,4-8]: 2.2; gpu-3: none")]),
        (Line("memory_bytes", dict.fromkeys(EIGHT, 16 * 10**9)), [("memory", "16.0 GB")]),
        (Line("memory_bytes", {"gpu-1": 16 * 10**9}), [("memory", "gpu-1: 16.0 GB")]),
        (
            Line("memory_bytes", {host: number * 10**9 for number, host in enumerate(EIGHT, 1)}),
            [("memory", "1.0 GB (gpu-1) to 8.0 GB (gpu-8)")],
        ),
        (
            Line("multiplies at_flops", {host: 1e9 * number or None for number, host in enumerate(EIGHT)}),
            [("multiplies at", "1 GFLOP/s (gpu-2) to 7 GFLOP/s (gpu-8); gpu-1: none")],
        ),
        (
            Statement("not_shared", {"where": "~/saved", "lead": "gpu-1"}),
            [("", "checkpoints: ~/saved is on gpu-1 alone")],
        ),
    ],
)
def test_hosts_of_one_value_are_folded_in_a_line(line: Line | Statement, expected: list[tuple[str, str]]) -> None:
    assert shown([line], 8) == expected


def test_facts_of_a_host_that_was_not_asked_are_refused_with_its_name() -> None:
    passing = InPassing(context(brief=True))
    passing.add({})  # this round is over: nobody is asked any more
    with pytest.raises(TransportError, match="d sent invalid facts"):
        passing.add({"d": made(Facts, facts={"machine": machine()}, facts_s=0.1)})


def test_a_brief_check_claims_no_more_than_it_has_tested(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = dataclasses.replace(passed(brief=True), found=(), seconds=2.0)
    checked_screen.show_brief(nothing)
    shown = " ".join(capsys.readouterr().err.split())
    assert "checked in 2.0 s: no problem found (brief check; --no-check skips it)" in shown
    assert "dtctl check also tests for exposed ports" in shown
    assert "nothing is wrong" not in shown


LEFT_OUT = {
    "exposed ports": "exposed public_address",
    "taken ports": "port_taken ports_of_own_run ports_set_to_those_of_own_run",
    "limits": "few_files few_processes cpu_time_limited file_size_limited",
    "memory": "memory_short memory_taken",
    "shared GPUs": "gpus_shared",
    "room for checkpoints": "no_room_to_save little_room_to_save",
    "data": "data_missing data_unreadable data_empty data_differs data_changed",
    "slow logins": "noisy_start_up slow_start_up start_up_fails slow_login max_startups killed_at_logout",
}


def test_a_brief_check_names_all_that_a_check_tests_besides() -> None:
    rows = table(Path(check_room.__file__).with_name("signatures.ini"))
    besides = {row.name.partition(".")[2] for row in rows if row.cost is Cost.CHECK}
    assert besides == set(" ".join(LEFT_OUT.values()).split())
    assert all(word in checked_screen.CLOSER for word in LEFT_OUT)

"""The topic `network`: who is asked what, round by round, and what is made of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.rooms.network.records import Measured, NetworkFacts
from dtctl.config.cluster import Launch
from dtctl.errors import DtctlError
from dtctl.model import Host, Local
from dtctl.operations.findings import Level, fails
from dtctl.render.findings import remedies
from dtctl.rooms.check import Answers, CheckContext, Statement
from dtctl.rooms.check.network.tasks import TOPIC
from dtctl.rooms.check.screen import shown
from tests.unit.checks.contexts import context, hosts_by_signature, judged, sentence
from tests.unit.checks.network.networks import listening, reaching
from tests.unit.clusters import COMMAND, cluster, job


def listened(value: CheckContext, **others: Any) -> Any:
    """The answers of the first round, to be changed."""
    return listening(asked(value), **others)


def asked(value: CheckContext, *rounds: Any) -> Any:
    return TOPIC.questions(value, Answers(rounds))


def played(value: CheckContext, lost: Any = lambda source, peer: "", **others: Any) -> list[Any]:
    """The answers of the first two rounds."""
    first = listening(asked(value), **others)
    return [first, reaching(asked(value, first), lost)]


def test_hosts_listen_on_the_ports_of_their_tasks_and_voters_on_the_coordinators() -> None:
    first = asked(context())
    assert {host: [slot["whose"] for slot in one["listen"]] for host, one in first.items()} == {
        "a": ["ps:0", "coordinator"],
        "b": ["ps:1", "coordinator"],
        "c": ["worker:0", "coordinator"],
        "d": ["worker:1", "coordinator"],
    }
    assert {one["cluster"] for one in first.values()} == {"digits"}
    assert {one["nonce"] for one in first.values()} == {"0" * 32}


def test_then_each_connects_to_the_ports_of_the_others_that_are_listened_on() -> None:
    first = listened(context())
    first["b"] = checked(
        NetworkFacts, {"bound": [{"whose": "ps:1", "port": 2222, "state": "taken", "holder": "nginx"}]}
    )
    second = asked(context(), first)
    assert {host: [peer["whose"] for peer in one["reach"]] for host, one in second.items()} == {
        "a": ["worker:0", "coordinator", "worker:1", "coordinator"],
        "b": ["ps:0", "coordinator", "worker:0", "coordinator", "worker:1", "coordinator"],
        "c": ["ps:0", "coordinator", "worker:1", "coordinator"],
        "d": ["ps:0", "coordinator", "worker:0", "coordinator"],
    }
    assert asked(context(), first, reaching(second)) == {}


def test_ports_that_hosts_choose_are_connected_to_as_they_were_chosen() -> None:
    value = context(cluster(job("worker", ["a", "b"], [0, 0])))
    second = asked(value, listened(value))
    assert [peer["address"] for peer in second["b"]["reach"] if peer["whose"] == "worker:0"] == ["a:9000"]


@pytest.mark.parametrize(
    ("own_port", "signature", "level"),
    [(False, "ports_of_own_run", Level.NOTE), (True, "ports_set_to_those_of_own_run", Level.ENDS)],
)
def test_ports_of_ones_own_run_are_a_problem_only_where_a_start_does_not_take_others(
    own_port: bool, signature: str, level: Level
) -> None:
    jobs = [dataclasses.replace(job(name, ["a", "b"], [port] * 2), own_port=own_port)
            for name, port in (("ps", 2222), ("worker", 2223))]  # fmt: skip
    value = context(cluster(*jobs))
    first = listened(value)
    for facts in first.values():
        for slot in facts["bound"]:
            slot.update({"state": "taken", "holder": "pid 7", "run": "other-1", "cluster": "other"})
    (one,) = judged(TOPIC, value, first)
    assert (one.signature.name, one.signature.level, one.seen.hosts) == (signature, level, ("a", "b"))
    assert len(sentence(one)) < 150
    assert remedies(one)[-1] == "dtctl stop --cluster other    stops that run"


def test_in_brief_two_rounds_are_enough_and_the_same_is_found() -> None:
    value = dataclasses.replace(context(), brief=True)
    first = listened(value, proxies={"http_proxy": "http://p:1"})
    first["d"]["bound"][0].update(state="taken", holder="which `up` refuses itself")
    second = asked(value, first)
    assert {one["limit_s"] for one in second.values()} == {1.5}
    rounds = [first, reaching(second)]
    assert asked(value, *rounds) == {}
    assert judged(TOPIC, value, *rounds) == judged(TOPIC, context(), *rounds)
    assert list(TOPIC.lines(value, Answers(rounds))) == []
    lost = [first, reaching(second, lambda source, peer: "timeout" if peer["host"] == "b" else "")]
    assert len(judged(TOPIC, value, *lost)) == 1 + len(judged(TOPIC, value, *rounds))


def test_in_brief_sixteen_connections_a_host_are_tried() -> None:
    names = [f"h{number}" for number in range(100)]
    value = context(cluster(job("worker", names, [2222] * 100)), brief=True)
    tries = [len(one["reach"]) for one in asked(value, listened(value)).values()]
    assert len(tries) == 100
    assert 1400 <= sum(tries) <= 1600


def test_in_brief_hosts_that_are_all_this_machine_try_nothing() -> None:
    here = [Host(name=name, reach=Local()) for name in "ab"]
    value = context(cluster(job("worker", ["a", "b"], [2222, 2223]), hosts=here), brief=True)
    assert asked(value) == {}


def test_of_many_hosts_a_part_is_tried_and_how_much_is_said() -> None:
    names = [f"h{number}" for number in range(200)]
    value = context(cluster(job("worker", names, [2222] * 200)))
    rounds = played(value)
    (statement,) = TOPIC.lines(value, Answers(rounds))
    ((_, text),) = shown([statement], 200)
    assert text.startswith("3993 of 3993 ")
    assert "connections between h[0-199] work; dtctl tried these of 41193" in text


@pytest.mark.parametrize(
    ("problem", "message"),
    [("timeout", "drops packets: no answer within 3s"), ("refused", "refuses them (Connection refused)")],
)
def test_a_firewall_is_reported_with_how_it_acts(problem: str, message: str) -> None:
    value = context()
    first = listened(value)
    second = reaching(asked(value, first), lambda source, peer: problem if peer["host"] == "b" else "")
    for facts in second.values():
        for one in facts["reached"]:
            one["place"] = first[one["host"]]["interfaces"][0]["address"]
            one["text"] = "Connection refused" if one["problem"] == "refused" else ""
    (finding,) = judged(TOPIC, value, first, second)
    assert (finding.signature.name, finding.seen.hosts, fails(finding)) == ("firewall_in", ("b",), True)
    assert message in sentence(finding)


def test_a_port_that_is_taken_is_reported_with_the_task_that_needs_it() -> None:
    value = context()
    first = listened(value)
    first["d"]["bound"][0].update(state="taken", holder="pid 7 (nginx) of www")
    (finding,) = judged(TOPIC, value, first, reaching(asked(value, first)))
    assert [str(task) for task in finding.seen.tasks] == ["worker:1"]
    assert sentence(finding) == "port 2222 of worker:1 on d is taken: pid 7 (nginx) of www listens there"


def test_login_proxy_is_a_note_only() -> None:
    value = context()
    (finding,) = judged(TOPIC, value, *played(value, proxies={"http_proxy": "http://p:1", "no_proxy": "x"}))
    assert (finding.signature.name, finding.seen.hosts, fails(finding)) == ("proxy_left_out", tuple("abcd"), False)


def test_proxy_of_tasks_is_a_problem_unless_the_hosts_are_exempted() -> None:
    def proxied(**env: str) -> CheckContext:
        launch = Launch(command=COMMAND, env=env)
        return context(cluster(job("ps", ["a"], [2222]), job("worker", ["b", "c"], [2222, 2222], launch=launch)))

    value = proxied(http_proxy="http://p:1")
    (finding,) = judged(TOPIC, value, *played(value))
    assert (finding.signature.name, finding.seen.hosts, fails(finding)) == ("proxy", ("b", "c"), True)
    assert "would send its traffic to a,b,c through the proxy http://p:1" in sentence(finding)
    assert (finding.seen.fields["variable"], finding.seen.fields["exempt"]) == ("http_proxy", "a,b,c")
    value = proxied(http_proxy="http://p:1", no_grpc_proxy="a,b,c")
    assert judged(TOPIC, value, *played(value)) == []


@pytest.mark.parametrize(
    ("strategy", "dialect", "signature"),
    [
        ("auto", "tensorflow", "own_loopback"),
        ("ddp", "none", "own_loopback_told"),
        ("auto", "pytorch", "own_loopback_told"),
    ],
)
def test_own_name_resolving_to_loopback_breaks_tasks_that_announce_their_address(
    strategy: Any, dialect: Any, signature: str
) -> None:
    workers = job("worker", ["a", "b"], [2222, 2222])
    workers = dataclasses.replace(workers, launch=dataclasses.replace(workers.launch, dialect=dialect))
    value = context(cluster(workers, strategy=strategy))
    rounds = played(value)
    rounds[0]["b"]["resolved"][0].update(addresses=["127.0.1.1"])
    assert hosts_by_signature(judged(TOPIC, value, *rounds)) == {signature: ("b",)}


def live_run(second_look: Any) -> tuple[CheckContext, list[Any]]:
    """Three rounds: ps:0 on a is the live run's, and nobody reached it; what its host says when asked once more."""
    value = context()
    first = listened(value)
    first["a"]["bound"][0].update(state="live", sockets=[71, 72])
    rounds = [first, reaching(asked(value, first), lambda source, peer: "refused" if peer["whose"] == "ps:0" else "")]
    again = asked(value, *rounds)
    assert {host: [slot["whose"] for slot in one["listen"]] for host, one in again.items()} == {"a": ["ps:0"]}
    answers: Any = listening(again)
    answers["a"]["bound"][0].update(second_look)
    return value, [*rounds, answers]


def test_a_run_that_ends_or_starts_its_task_again_while_it_is_checked_is_no_firewall() -> None:
    for second_look in ({"state": "bound"}, {"state": "idle"}, {"state": "live", "sockets": [80]}):
        value, rounds = live_run(second_look)
        assert judged(TOPIC, value, *rounds) == []
        (statement,) = (line for line in TOPIC.lines(value, Answers(rounds)) if isinstance(line, Statement))
        assert (statement.fields["reached"], statement.fields["tried"]) == (21, 21)
        assert asked(value, *rounds) == {}


def test_a_run_that_continues_and_is_not_reached_is_behind_a_firewall() -> None:
    value, rounds = live_run({"state": "live", "sockets": [72]})
    (finding,) = judged(TOPIC, value, *rounds)
    assert (finding.signature.name, finding.seen.hosts) == ("firewall_in", ("a",))


def test_a_host_that_is_lost_while_it_is_checked_is_no_firewall() -> None:
    rounds = played(context(), lambda source, peer: "timeout" if peer["host"] == "b" else "")
    assert judged(TOPIC, context(), *rounds)
    del rounds[1]["b"]
    lost = DtctlError("the connection to b was lost")
    assert judged(TOPIC, context(), *rounds, errors={"b": lost}) == []


def test_ports_that_another_check_tries_are_no_problem() -> None:
    first = listened(context())
    first["b"]["bound"][0].update(state="tried", holder="pid 7 (a dtctl check, for some seconds)")
    rounds = [first, reaching(asked(context(), first))]
    (finding,) = judged(TOPIC, context(), *rounds)
    assert hosts_by_signature([finding]) == {"tried_by_another": ("b",)}
    assert not fails(finding)
    assert "listens on port 2222 of b now" in sentence(finding)


def exchanged(value: CheckContext, rate: Any = lambda source, target: 1e9) -> list[Any]:
    """All rounds of a deep check."""
    rounds = played(value)
    while question := asked(value, *rounds):
        rounds.append(
            {
                host: checked(NetworkFacts, {"measured": [one_measured(rate, host, peer) for peer in each["measure"]]})
                for host, each in question.items()
            }
        )
    return rounds


def one_measured(rate: Any, source: str, peer: Any) -> Measured:
    speed = rate(source, peer["host"])
    measured = {"problem": "timed out"} if speed is None else {"latency_s": 0.0002, "sent": speed, "received": speed}
    return made(Measured, whose=peer["whose"], host=peer["host"], **measured)


def test_deep_check_reports_the_slow_host_and_its_differences() -> None:
    value = dataclasses.replace(context(), deep=True)
    rounds = exchanged(value, lambda source, target: 1e8 if "b" in (source, target) else 1e9)
    for host, facts in rounds[0].items():
        link = {"mbits": 1000 if host == "b" else 10_000, "mtu": 1500, "queue": "mq"}
        facts["interfaces"] = checked(NetworkFacts, {"interfaces": [{**facts["interfaces"][0], "link": link}]})[
            "interfaces"
        ]
    (finding,) = judged(TOPIC, value, *rounds)
    assert hosts_by_signature([finding]) == {"host_exchanges_slowly": ("b",)}
    assert sentence(finding) == (
        "b is slow to exchange data with every other host; it sends 100 MB a second, the others 1.0 GB; it receives "
        "100 MB a second, the others 1.0 GB; its link has 1,000 Mbit/s, theirs 10,000 Mbit/s"
    )
    text = "\n".join(f"{label} {line}" for label, line in shown(TOPIC.lines(value, Answers(rounds)), 4))
    assert "sends a second " in text


def test_host_without_any_data_exchange_is_reported() -> None:
    value = dataclasses.replace(context(), deep=True)
    rounds = exchanged(value, lambda source, target: None if "b" in (source, target) else 1e9)
    (finding,) = judged(TOPIC, value, *rounds)
    assert (hosts_by_signature([finding]), finding.seen.fields["said"]) == ({"exchange_failed": ("b",)}, "timed out")
    assert judged(TOPIC, value, *rounds, errors={"b": DtctlError("the connection to b was lost")}) == []


def test_reports_about_unknown_peers_are_ignored() -> None:
    value = dataclasses.replace(context(), deep=True)
    rounds = exchanged(value)
    for answers in rounds[2:]:
        for facts in answers.values():
            facts["measured"] = [made(Measured, whose="ps:0", host="evil", latency_s=1.0, sent=1.0, received=1.0)]
    assert judged(TOPIC, value, *rounds) == []


def test_hosts_that_are_all_this_machine_exchange_nothing() -> None:
    here = [Host(name=name, reach=Local()) for name in "abc"]
    value = context(cluster(job("worker", ["a", "b", "c"], [2222, 2223, 2224]), hosts=here), deep=True)
    assert asked(value, *played(value)) == {}


def test_data_exchange_is_skipped_during_a_live_run() -> None:
    value = dataclasses.replace(context(), deep=True)
    first = listened(value)
    for facts in first.values():
        for slot in facts["bound"]:
            slot.update(state="live", sockets=[7])
    rounds = [first, reaching(asked(value, first))]
    assert asked(value, *rounds) == {}
    assert Statement("not_exchanged") in list(TOPIC.lines(value, Answers(rounds)))
    assert Statement("not_exchanged") not in list(TOPIC.lines(value, Answers(exchanged(value))))

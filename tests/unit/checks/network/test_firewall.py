"""Rules for a plan. (A fleet loads them and tries them: tests/fleet/test_check_network.py.)"""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.network.records import SshFacts
from dtctl.config.cluster import Recovery
from dtctl.errors import PreflightError
from dtctl.operations.client.persistent import Greeted
from dtctl.operations.findings import fails
from dtctl.plan.run import plan_run
from dtctl.rooms.check import Answers
from dtctl.rooms.check.network.firewall import Kind, Rules, addresses_of, firewall, rules_of
from dtctl.rooms.check.screen import shown
from dtctl.rooms.check.ssh import TOPIC
from tests.unit.checks.contexts import context, hosts_by_signature, judged, sentence
from tests.unit.clusters import cluster, job, ssh_host


def test_a_name_stands_for_each_of_its_addresses_once() -> None:
    assert addresses_of("127.0.0.1") == ("127.0.0.1",)


ADDRESSES = {"a": ["10.0.0.1"], "b": ["10.0.0.2", "fd00::2"], "c": ["10.0.0.3"]}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_host_of_the_cluster_is_let_in_before_the_others_are_shut_out(kind: Kind) -> None:
    lines = firewall("demo", {"a": [2222]}, ADDRESSES, kind)[0].lines
    if kind == "ufw":  # whose lines go to the top, one after the other
        lines = lines[::-1]
    text = "\n".join(lines)
    for addresses in ADDRESSES.values():
        for address in addresses:
            assert (
                0 <= text.index(address) < max(text.rindex(word) for word in ("drop", "DROP", "deny") if word in text)
            )


def test_undo_commands_of_firewall_rules_are_reported() -> None:
    undo = {kind: firewall("demo", {"a": [2222]}, ADDRESSES, kind)[0].undo for kind in get_args(Kind)}
    assert undo["nftables"] == ("nft delete table inet dtctl_demo",)
    assert undo["iptables"][:2] == ("iptables -w -D INPUT -p tcp -j DTCTL-demo", "iptables -w -F DTCTL-demo")
    assert undo["ufw"][0] == "ufw delete deny proto tcp from any to any port 2222"
    assert len(undo["ufw"]) == 1 + 4


def test_a_name_that_is_a_word_to_no_shell_never_becomes_part_of_a_rule() -> None:
    for kind in ("nftables", "iptables"):
        text = "\n".join(firewall("a;b $(x)", {"a": [1]}, ADDRESSES, kind)[0].lines)
        assert ";b" not in text
        assert "$(" not in text


def test_rules_name_the_ports_of_tasks_wherever_they_may_be_and_of_voters() -> None:
    value = cluster(hosts=[ssh_host(name) for name in "abcdsz"], recovery=Recovery(replace_s=300.0))
    value = dataclasses.replace(value, spares=("s",), arbiters=("z",))
    plan = plan_run(value, {name: name for name in "abcdsz"}, local_python="python3")
    rules = rules_of(plan, "ufw", lambda name: (f"10.0.0.{ord(name)}",))
    assert {host: one.ports for one in rules for host in one.hosts} == {
        **dict.fromkeys("abcd", (2221, 2222)),
        "z": (2221,),
        "s": (2222, 2223, 2224, 2225),
    }


def test_ports_that_hosts_choose_have_no_rules() -> None:
    chosen = cluster(job("worker", ["a", "b"], [0, 0]))
    plan = plan_run(chosen, {"a": "a", "b": "b"}, local_python="python3")
    with pytest.raises(PreflightError, match="no rule can name them"):
        rules_of(plan, "ufw", lambda name: ("10.0.0.1",))


FRIENDS = {"a": ["10.0.0.10", "fd00::2"], "b": ["10.0.0.9", "gpu-b"], "c": ["10.0.0.9"]}
"""An address that two hosts have is named once, and a name not at all; they stand in the order of their numbers."""


def test_nftables_table_is_recreated_and_admits_each_address_family() -> None:
    assert firewall("demo-1", {"a": [2223, 2222, 2222], "b": []}, FRIENDS, "nftables") == (
        Rules(
            ("a",),
            (2222, 2223),
            (
                "table inet dtctl_demo_1",
                "delete table inet dtctl_demo_1",
                "table inet dtctl_demo_1 {",
                "  chain input {",
                "    type filter hook input priority -10; policy accept;",
                '    tcp dport { 2222, 2223 } iifname "lo" accept',
                "    tcp dport { 2222, 2223 } ip saddr { 10.0.0.9, 10.0.0.10 } accept",
                "    tcp dport { 2222, 2223 } ip6 saddr { fd00::2 } accept",
                "    tcp dport { 2222, 2223 } drop",
                "  }",
                "}",
            ),
            ("nft delete table inet dtctl_demo_1",),
        ),
    )
    (alone,) = firewall("demo", {"a": [1]}, {"a": ["10.0.0.1"]}, "nftables")
    assert not any("ip6" in line for line in alone.lines)


def test_iptables_chain_is_recreated_for_each_address_family() -> None:
    (rules,) = firewall("demo", {"a": [2222]}, FRIENDS, "iptables")

    def chain(program: str, *friends: str) -> list[str]:
        one, rule = f"{program} -w", "INPUT -p tcp -j DTCTL-demo"
        ports = "-p tcp -m multiport --dports 2222"
        return [
            f"{one} -N DTCTL-demo 2>/dev/null || {one} -F DTCTL-demo",
            f"{one} -A DTCTL-demo {ports} -i lo -j ACCEPT",
            *(f"{one} -A DTCTL-demo {ports} -s {friend} -j ACCEPT" for friend in friends),
            f"{one} -A DTCTL-demo {ports} -j DROP",
            f"{one} -C {rule} 2>/dev/null || {one} -I {rule}",
        ]

    assert list(rules.lines) == [*chain("iptables", "10.0.0.9", "10.0.0.10"), *chain("ip6tables", "fd00::2")]


def test_a_long_name_is_cut_to_what_a_chain_may_be_called() -> None:
    (rules,) = firewall("c" * 40, {"a": [1]}, FRIENDS, "iptables")
    chain = f"DTCTL-{'c' * 20}"
    assert f"iptables -w -A {chain} -p tcp -m multiport --dports 1 -i lo -j ACCEPT" in rules.lines


def test_all_unresolved_names_are_reported_at_once_with_hosts_that_may_know_them() -> None:
    value = cluster()
    plan = plan_run(value, {name: name for name in value.hosts}, local_python="python3")

    def look(name: str) -> tuple[str, ...]:
        if name == "a":
            return ("10.0.0.1",)
        raise OSError(-2, "Name or service not known")

    with pytest.raises(PreflightError) as caught:
        rules_of(plan, "iptables", look)
    assert caught.value.summary == "this machine cannot look up b, c, d, so no rule can name those hosts"
    assert caught.value.hint.startswith("dtctl exec @b -- getent hosts b c d    ")
    assert "hosts.b.address" in caught.value.hint


WELL = {
    "shell": "/bin/bash",
    "start_up_s": 0.01,
    "max_startups": "10:30:100",
    "max_sessions": 10,
    "limits_from": "file",
}


def facts(host: str = "a", **changed: Any) -> SshFacts:
    return checked(SshFacts, {**WELL, "machine": host, **changed})


def well() -> dict[str, SshFacts]:
    return {host: facts(host) for host in "abcd"}


def test_logins_that_are_as_they_should_be_are_reported_in_four_lines() -> None:
    assert judged(TOPIC, context(), well()) == []
    heard = Answers([well()], greeted={host: Greeted({}, 0.3) for host in "abcd"})
    assert shown(TOPIC.lines(context(), heard), 4) == [
        ("login shell", "/bin/bash"),
        ("", "a login takes 0.3 to 0.3 s with the start of Python (the slowest: a); up to 24 at once"),
        ("MaxStartups", "10:30:100"),
        ("MaxSessions", "10"),
    ]


def test_output_of_start_up_files_is_reported_with_its_first_line() -> None:
    noise = {"noise": "\nWelcome to the cluster\nmore", "noise_bytes": 99}
    (finding,) = judged(TOPIC, context(), {**well(), "b": facts("b", **noise), "c": facts("c", **noise)})
    assert (finding.seen.hosts, fails(finding)) == (("b", "c"), False)
    assert "print output in non-interactive sessions: Welcome to the cluster. dtctl ignores it" in sentence(finding)


def test_a_slow_or_broken_start_up_is_reported() -> None:
    slow, broken = facts("b", start_up_s=4.2), facts("c", problem="exit code 1")
    found = judged(TOPIC, context(), {**well(), "b": slow, "c": broken})
    assert hosts_by_signature(found) == {"slow_start_up": ("b",), "start_up_fails": ("c",)}
    assert "take 4.2 s" in sentence(found[0])


def test_what_start_up_files_of_many_hosts_do_is_one_finding_of_a_kind() -> None:
    """Each host prints its own name, and takes its own time."""
    hosts = [f"gpu-{number}" for number in range(1, 45)]
    many = {
        host: facts(
            host, noise=f"Welcome to {host}", noise_bytes=20, start_up_s=2.0 + number / 44, problem=f"exit {number}"
        )
        for number, host in enumerate(hosts)
    }
    found = judged(TOPIC, context(), many)
    assert hosts_by_signature(found) == dict.fromkeys(
        ("slow_start_up", "start_up_fails", "noisy_start_up"), tuple(hosts)
    )
    slow, broken, noisy = map(sentence, found)
    assert "take 2.0 to 3.0 s" in slow
    assert broken.endswith("[1-44] fails to run the command `true`, on gpu-1: exit 0")
    assert "in non-interactive sessions, on gpu-1: Welcome to gpu-1. dtctl ignores it" in noisy


def test_a_login_that_takes_far_longer_than_the_others_is_reported() -> None:
    greeted = {host: Greeted({}, 0.4) for host in "abc"} | {"d": Greeted({}, 11.0)}
    (finding,) = judged(TOPIC, context(), well(), greeted=greeted)
    assert (finding.signature.name, finding.seen.hosts) == ("slow_login", ("d",))
    assert judged(TOPIC, context(), well(), greeted=greeted | {"d": Greeted({}, 2.0)}) == []


def test_hosts_that_are_one_machine_are_compared_with_what_its_server_takes() -> None:
    one = {host: facts("machine", max_startups="3:30:100") for host in "abcd"}
    (finding,) = judged(TOPIC, context(), one)
    assert (finding.seen.hosts, finding.seen.fields["logins"]) == (tuple("abcd"), 4)
    assert judged(TOPIC, context(), {host: facts(host, max_startups="3:30:100") for host in "abcd"}) == []


def test_unreadable_limit_is_shown_as_unknown() -> None:
    unknown = {host: facts(host, max_startups=None, max_sessions=None, limits_from="") for host in "abcd"}
    rows = dict(shown(TOPIC.lines(context(), Answers([unknown])), 4))
    assert rows["MaxStartups"] == rows["MaxSessions"] == "not known"


def test_ssh_facts_are_requested_once_and_not_in_brief_checks() -> None:
    assert set(TOPIC.questions(context(), Answers())) == set("abcd")
    assert TOPIC.questions(context(), Answers([well()])) == {}
    assert TOPIC.questions(context(brief=True), Answers()) == {}

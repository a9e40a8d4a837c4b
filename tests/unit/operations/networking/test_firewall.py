"""Rules for a plan. (A fleet loads them and tries them: tests/fleet/test_check_network.py.)"""

from __future__ import annotations

from typing import get_args

import pytest

from dtctl.errors import PreflightError
from dtctl.operations.networking.firewall import Kind, firewall
from dtctl.operations.networking.rules import rules_of
from dtctl.plan.run import plan_run
from tests.unit.clusters import cluster, job

ADDRESSES = {"a": ["10.0.0.1"], "b": ["10.0.0.2", "fd00::2"], "c": ["10.0.0.3"]}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_hosts_with_the_same_ports_have_the_same_rules(kind: Kind) -> None:
    rules = firewall("demo", {"a": [2222], "b": [2222], "c": [2223, 2222]}, ADDRESSES, kind)
    assert [(one.hosts, one.ports) for one in rules] == [(("a", "b"), (2222,)), (("c",), (2222, 2223))]


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


def test_what_takes_rules_away_again_is_told() -> None:
    undo = {kind: firewall("demo", {"a": [2222]}, ADDRESSES, kind)[0].undo for kind in get_args(Kind)}
    assert undo["nftables"] == ("nft delete table inet dtctl_demo",)
    assert undo["iptables"][:2] == ("iptables -w -D INPUT -p tcp -j DTCTL-demo", "iptables -w -F DTCTL-demo")
    assert undo["ufw"][0] == "ufw delete deny proto tcp from any to any port 2222"
    assert len(undo["ufw"]) == 1 + 4


def test_iptables_takes_many_ports_in_groups_of_fifteen() -> None:
    lines = firewall("demo", {"a": range(2222, 2262)}, ADDRESSES, "iptables")[0].lines
    groups = [
        line.split("--dports ")[1].split(" ")[0].split(",")
        for line in lines
        if line.startswith("iptables ") and line.endswith("-j DROP")
    ]
    assert [len(group) for group in groups] == [15, 15, 10]


def test_a_name_that_is_a_word_to_no_shell_never_becomes_part_of_a_rule() -> None:
    for kind in ("nftables", "iptables"):
        text = "\n".join(firewall("a;b $(x)", {"a": [1]}, ADDRESSES, kind)[0].lines)
        assert ";b" not in text
        assert "$(" not in text


def test_rules_name_the_ports_of_the_tasks_and_of_the_coordinator() -> None:
    plan = plan_run(cluster(), {name: name for name in "abcd"}, local_python="python3")
    rules = rules_of(plan, "ufw", lambda name: (f"10.0.0.{ord(name)}",))
    assert {host: one.ports for one in rules for host in one.hosts} == {
        "a": (2222,),
        "b": (2222,),
        "c": (2221, 2222),
        "d": (2222,),
    }


def test_ports_that_hosts_choose_have_no_rules() -> None:
    chosen = cluster(job("worker", ["a", "b"], [0, 0]))
    plan = plan_run(chosen, {"a": "a", "b": "b"}, local_python="python3")
    with pytest.raises(PreflightError, match="no rule can name them"):
        rules_of(plan, "ufw", lambda name: ("10.0.0.1",))


def test_a_name_that_is_not_known_here_is_an_error_that_says_what_to_write() -> None:
    plan = plan_run(cluster(), {name: name for name in "abcd"}, local_python="python3")

    def unknown(name: str) -> tuple[str, ...]:
        raise OSError("Name or service not known")

    with pytest.raises(PreflightError) as raised:
        rules_of(plan, "nftables", unknown)
    assert "hosts.a.address" in raised.value.hint

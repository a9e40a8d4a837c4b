"""Who exchanges data with whom under `--deep`, and who is slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.records.kinds import made
from dtctl.agent.records.network import Measured
from dtctl.operations.checks.network.measuring import ROUNDS, Round, judged, meeting, next_round
from tests.fuzz import cases
from tests.unit.checks.network.networks import names


def measured(sent: float = 1e9, received: float = 1e9, latency_s: float = 0.0001, **fields: Any) -> Measured:
    return made(Measured, whose="ps:0", host="p", sent=sent, received=received, latency_s=latency_s, **fields)


def played(hosts: list[str], network: Callable[[str, str], Measured]) -> list[Round]:
    """All rounds, as the hosts would measure them."""
    rounds: list[Round] = []
    while pairs := next_round(hosts, rounds):
        rounds.append({pair: network(*pair) for pair in pairs})
    return rounds


def shaped(*slow: str, rate: float = 1e8) -> Callable[[str, str], Measured]:
    """These hosts have a tenth of the others' bandwidth in both directions."""

    def network(source: str, target: str) -> Measured:
        return measured(rate, rate) if {source, target} & set(slow) else measured()

    return network


@cases
@given(st.integers(2, 60))
def test_everybody_meets_another_one_in_each_round(count: int) -> None:
    hosts = names(count)
    met: set[frozenset[str]] = set()
    for number in range(count - 1 + count % 2):
        pairs = meeting(hosts, number)
        at_once = [host for pair in pairs for host in pair]
        assert len(at_once) == len(set(at_once)) == count - count % 2
        fresh = {frozenset(pair) for pair in pairs}
        assert not fresh & met
        met |= fresh
    assert len(met) == count * (count - 1) // 2


@cases
@given(st.integers(3, 40), st.data())
def test_the_slow_host_is_named_and_none_of_its_partners(count: int, data: st.DataObject) -> None:
    hosts = names(count)
    slow = data.draw(st.sampled_from(hosts))
    assert [behind.host for behind in judged(played(hosts, shaped(slow)))] == [slow]


def test_a_direction_that_is_slow_is_reported_alone() -> None:
    def network(source: str, target: str) -> Measured:
        return measured(1e8 if source == "gpu-3" else 1e9, 1e8 if target == "gpu-3" else 1e9)

    (behind,) = judged(played(names(8), network))
    assert behind.host == "gpu-3"
    assert (behind.sends_slowly, behind.receives_slowly, behind.answers_late) == (True, False, False)
    assert (behind.own.sends, behind.usual.sends) == (1e8, 1e9)


def test_a_host_that_answers_late_is_named_though_it_is_fast() -> None:
    def network(source: str, target: str) -> Measured:
        return measured(latency_s=0.02 if "gpu-3" in (source, target) else 0.0001)

    (behind,) = judged(played(names(8), network))
    assert (behind.host, behind.answers_late, behind.sends_slowly) == ("gpu-3", True, False)


def test_a_host_slow_by_chance_passes_the_second_measurement() -> None:
    rounds: list[Round] = []
    while pairs := next_round(names(8), rounds):
        chance = 5e8 if len(rounds) < ROUNDS else 1e9
        rounds.append({pair: measured(chance, chance) if "gpu-3" in pair else measured() for pair in pairs})
    assert len(rounds) == ROUNDS + 1
    assert rounds[-1].keys() == {pair for pair in rounds[-1] if "gpu-3" in pair}
    assert judged(rounds) == []

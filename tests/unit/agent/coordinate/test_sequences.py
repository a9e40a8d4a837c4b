"""Faults in pairs and sequences in every way of training: no run stays unhealed.

Processes, hosts and network are in memory, the decisions those of the agents and of the coordinator. A failure prints
its seed and its story: SEQUENCES_FROM=SEED SEQUENCES=1 tells it again. The same with processes, on hosts:
tests/faults/test_sequences.py.
"""

from __future__ import annotations

import os

import pytest

from tests.unit.agent.coordinate.sequences import Sequence

pytestmark = pytest.mark.usefixtures("processes_that_train")

COUNT = int(os.environ.get("SEQUENCES", "30"))
FROM = int(os.environ.get("SEQUENCES_FROM", "0"))
AT_ONCE = 10
"""In one test, so that tests run beside each other."""

ONCE_UNHEALED = (84, 114, 179, 281, 294, 349, 1858)
"""Seeds of stories that did not end well in their time."""


@pytest.mark.parametrize("first", range(FROM, FROM + COUNT, AT_ONCE))
def test_every_run_trains_again_after_faults_in_pairs_and_sequences(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, FROM + COUNT)):
        Sequence(seed).run()


@pytest.mark.parametrize("seed", ONCE_UNHEALED)
def test_failure_of_an_earlier_sequence_now_recovers(seed: int) -> None:
    Sequence(seed).run()


def test_seed_reproduces_the_same_sequence() -> None:
    histories = []
    for sequence in (Sequence(7) for _ in range(2)):
        histories.append((sequence.run(), sequence.events))
    assert histories[0] == histories[1]


def test_failed_sequence_is_reported_with_its_seed() -> None:
    sequence = Sequence(3)
    sequence.trial.request("stop")
    with pytest.raises(AssertionError, match=r"FAULTS_SEED=3 .*\n(.*\n)*now .* last step at"):
        sequence.run()

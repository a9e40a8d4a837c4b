"""The election of a run's coordinator: thousands of faults by seed, every order of few events, and bugs put in.

A violation prints its seed and its story: ELECTIONS_FROM=SEED ELECTIONS=1 tells it again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate import election
from dtctl.agent.coordinate.claims import claim_in
from dtctl.agent.coordinate.election import SILENT_S, Election
from dtctl.agent.records.kinds import made
from dtctl.agent.records.whole_run import Ballot
from tests.nights import at_night
from tests.unit.agent.coordinate.electing import Message, Violation, Voter, Witness, first_disk
from tests.unit.agent.coordinate.election_bugs import BUGS, LIARS_BUGS, STEPS_DOWN, Bug, altered
from tests.unit.agent.coordinate.election_liars import LiarTrial, stance
from tests.unit.agent.coordinate.election_search import Limits, Search
from tests.unit.agent.coordinate.election_trial import MOST_LINES, Trial, reported
from tests.unit.agent.coordinate.election_world import Caller, Network

COUNT = int(os.environ.get("ELECTIONS", "400"))
AMONG_LIARS = int(os.environ.get("ELECTIONS", "200")) // 2
FROM = int(os.environ.get("ELECTIONS_FROM", "0"))
AT_ONCE = 100
"""In one test, so that tests run beside each other."""

PAGE = Path(__file__).parents[4] / "docs" / "agent.md"
RECOVERY = PAGE.with_name("recovery.md")

ONCE_VIOLATED = (6, 315, 331)
"""Seeds of what went wrong once."""

SEARCHES = {
    "one timeout, clocks of their own": Limits(1, 0, 0),
    "one timeout, one restart, one decision, clocks of their own": Limits(1, 1, 1, most_states=15_000),
    "two timeouts, one clock": Limits(2, 0, 0, has_one_clock=True),
    "two timeouts, clocks of their own, to the end": Limits(2, 0, 0),
    "a timeout, a restart and a decision": Limits(1, 1, 1, most_states=2_000_000),
    "two timeouts, a restart and a decision": Limits(2, 1, 1, most_states=2_000_000),
    "three timeouts, one clock": Limits(3, 0, 0, has_one_clock=True, most_states=2_000_000),
}
BY_DAY = tuple(SEARCHES)[:3]


@pytest.mark.parametrize("first", range(FROM, FROM + COUNT, AT_ONCE))
def test_elections_keep_their_promises_under_faults(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, FROM + COUNT)):
        _keeps_its_promises(seed)


@pytest.mark.parametrize("seed", ONCE_VIOLATED)
def test_formerly_violated_promises_hold(seed: int) -> None:
    _keeps_its_promises(seed)


def _keeps_its_promises(seed: int) -> None:
    trial = Trial(seed)
    try:
        trial.run()
    except Violation:
        pytest.fail(reported(trial), pytrace=False)


@pytest.mark.parametrize("name", at_night(SEARCHES, but=BY_DAY))
def test_no_order_of_few_events_breaks_an_election(name: str) -> None:
    search = Search(SEARCHES[name])
    search.run()
    print(f"{search.states} states, {search.depth} actions deep{', all' if search.is_whole else ''}")
    assert search.states > 300


@pytest.mark.parametrize("first", range(FROM, FROM + AMONG_LIARS, AT_ONCE))
def test_elections_keep_their_promises_among_liars(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        trial = LiarTrial(seed)
        try:
            trial.run()
        except Violation:
            pytest.fail(reported(trial, kind=LiarTrial), pytrace=False)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found_by_a_seed(name: str) -> None:
    bug = BUGS[name]
    assert any(_is_violated(seed, bug) for seed in (bug.seed, *range(6000)))
    Trial(bug.seed).run()


@pytest.mark.parametrize("name", LIARS_BUGS)
def test_liars_find_a_bug_of_which_only_they_make_use(name: str) -> None:
    bug = LIARS_BUGS[name]
    assert any(_is_violated(seed, bug, LiarTrial) for seed in (bug.seed, *range(1000)))
    LiarTrial(bug.seed).run()


def _is_violated(seed: int, bug: Bug, kind: type[Trial] = Trial) -> bool:
    try:
        kind(seed, bug.caller).run()
    except Violation:
        return True
    return False


def test_the_search_finds_a_coordinator_that_votes_for_another_and_still_leads() -> None:
    first_grants = ("max(self._promised_until, now + TRIAL_S)", "self._promised_until")
    caller = Caller(altered((STEPS_DOWN, STEPS_DOWN.replace("self._leads, ", "_, ")), first_grants))
    with pytest.raises(
        Violation, match=r"(?s)a1 and b1 coordinate in term 2\n.*b waits, and acts\n.*a receives from b"
    ):
        Search(Limits(2, 0, 0), caller).run()


def test_violation_is_reported_with_its_seed() -> None:
    bug = BUGS["a promise as short as a lease"]
    trial = Trial(bug.seed, bug.caller)
    story = reported(trial, bug.caller)
    assert story.startswith(f"seed {bug.seed}, voters ")
    assert "have a lease" in story
    assert len(story.splitlines()) <= MOST_LINES + 2
    assert story == reported(Trial(bug.seed, bug.caller), bug.caller)


def test_a_single_voter_is_elected_once() -> None:
    alone = Network(0, "a", "", Caller())
    alone.begin()
    alone.run_until(100.0)
    assert alone.coordinator()
    assert alone.machines["a"].voter.election.ballot["term"] == 1


def voters_that_may_be_gone() -> dict[int, int]:
    """The table of docs/recovery.md: how many of so many voters may be gone at once."""
    table = RECOVERY.read_text().partition("| voters | may be gone at once |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([\d or]+) \| (none|\d+)", table, re.MULTILINE)
    return {int(count): int(gone.replace("none", "0")) for counts, gone in rows for count in counts.split(" or ")}


@pytest.mark.parametrize(("count", "gone"), voters_that_may_be_gone().items())
def test_so_many_voters_may_be_gone_as_the_documentation_says_and_no_more(count: int, gone: int) -> None:
    for lost in range(1, count):
        network = Network(lost, "abcdefg"[:count], "", Caller())
        network.begin()
        network.run_until(5.0)
        first = network.coordinator()
        assert first
        away = {first.voter.name, *"abcdefg"[count - lost + 1 : count]}
        network.cut.update((one, other) for one in "abcdefg" for other in away)
        network.cut.update((one, other) for one in away for other in "abcdefg")
        network.run_until(60.0)
        found = network.coordinator()
        assert (found is not None and found.voter.name not in away) == (lost <= gone), (away, found)


def test_the_documentation_says_how_many_voters_may_be_gone_for_every_number() -> None:
    assert sorted(voters_that_may_be_gone()) == [1, 2, 3, 4, 5, 6, 7]


def test_coordinator_without_outgoing_connections_renews_its_lease_over_open_links() -> None:
    network = OnlyLinks(0, "abc", "", Caller())
    network.begin()
    network.run_until(5.0)
    links = [(one, other) for one in "abc" for other in "abc" if one != other]
    network.cut.update(links)
    network.run_until(30.0)
    assert network.coordinator() is None
    network.cut.subtract(links)
    network.run_until(30.0 + SILENT_S + 5.0)
    coordinator = network.coordinator()
    assert coordinator
    assert coordinator.voter.election.ballot["term"] == 1


class OnlyLinks(Network):
    """The voters' ports are closed to each other."""

    def _send(self, sender: str, host: str, message: Message) -> None:
        if message["type"] != "canvass":
            super()._send(sender, host, message)


def test_an_answer_of_a_host_that_does_not_vote_counts_for_nothing() -> None:
    candidate = _voter("a", coordinator="c")
    candidate.step(20.0)
    candidate.take()
    vote = {**stance(1, "c"), "type": "vote", "asked": 2, "trial": True, "granted": True}
    candidate.receive("stranger", vote, 20.1)
    assert candidate.ballot["term"] == 1
    candidate.receive("b", vote, 20.2)
    assert candidate.ballot["term"] == 2


def test_candidate_never_uses_a_term_older_than_one_that_a_majority_confirms() -> None:
    voter = _voter("a", coordinator="b")
    voter.hear("c", claim_in(stance(7, "c")), 1.0)
    voter.hear("b", claim_in(stance(7, "c")), 1.0)
    assert (voter.ballot["term"], voter.coordinator) == (7, "c")
    voter.step(30.0)
    assert {message["term"] for _, message in voter.take()} == {8}


def test_coordinator_that_missed_an_election_follows_whom_two_voters_back() -> None:
    missed = _voter("a", coordinator="a")
    missed.step(20.0)
    refused = {**stance(3, "c"), "type": "vote", "asked": 2, "trial": True, "granted": False}
    missed.receive("b", refused, 20.1)
    assert (missed.ballot["term"], missed.coordinator) == (1, "a")
    missed.receive("c", refused, 20.2)
    assert (missed.ballot["term"], missed.coordinator, missed.leads) == (3, "c", False)


@pytest.mark.parametrize("term", [2, 3000, 2**53])
def test_what_one_voter_claims_moves_no_coordinator_and_is_reported_with_its_name(term: int) -> None:
    coordinator = _coordinating("abc")
    beat = dict(coordinator.take()[0][1])["beat"]
    for now in (2.0, 4.0, 9.0):
        lie = {**stance(term, "c"), "type": "granted", "beat": beat, "memo": [0, 0]}
        coordinator.receive("c", lie, now)
        coordinator.receive("c", {**lie, "type": "vote", "asked": 2, "trial": True, "granted": True}, now)
        coordinator.hear_of_coordinator("c", term, now)
    assert (coordinator.ballot["term"] <= 3, coordinator.coordinator in (None, "a")) == (True, True)
    assert coordinator.unconfirmed(15.0)["c", "coordinator"] == term


def test_a_claim_of_the_largest_term_leaves_room_for_every_later_election() -> None:
    follower = _voter("a", coordinator="b")
    for now in range(100, 3000, 5):
        follower.receive("c", {**stance(2**53, "c"), "type": "granted", "beat": 1, "memo": [0, 0]}, float(now))
        follower.receive("c", {"type": "canvass", "term": 2**53, "trial": False, "memo": [2**53, 0]}, float(now))
        follower.step(float(now))
        follower.take()
    assert follower.ballot["term"] < 100


def test_a_memo_from_the_future_is_not_what_a_later_one_is_measured_by() -> None:
    """The caller keeps none of a term after that of its lease."""
    voter = Voter("b", "abc", "abc", first_disk("a"), Witness())
    voter.begin(0.0, lambda: 0.0)
    lease = {"type": "lease", "term": 1, "beat": 1, "memo": [2**53, 7], "decisions": ("by the liar",)}
    voter.receive("a", lease, 1.0)
    assert voter.election.memo == (0, 0)


def _coordinating(voters: str) -> Election:
    ballot = made(Ballot, term=1, voted="a", coordinator="a")
    coordinator = Election("a", voters, ballot, (0, 0), 0.0, lambda: 0.0, begins=True)
    coordinator.step(0.0)
    return coordinator


def test_a_coordinator_that_has_restarted_stands_at_once() -> None:
    restarted = _voter("a", coordinator="a")
    restarted.step(0.0)
    assert {message["term"] for _, message in restarted.take()} == {2}


def test_a_memo_of_a_term_is_its_coordinators() -> None:
    follower = _voter("a", coordinator="b")
    with pytest.raises(AssertionError):
        follower.publish(5, 1.0)


def _voter(own: str, coordinator: str) -> Election:
    ballot = made(Ballot, term=1, voted=coordinator, coordinator=coordinator)
    return Election(own, "abc", ballot, (0, 0), 0.0, lambda: 0.0)


def test_the_page_shows_the_messages_that_are_sent_and_the_changes_that_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    section = PAGE.read_text().partition("### Election of the coordinator\n")[2].partition("\n### ")[0]
    sent: set[str] = set()
    changes: set[str] = set()
    step = Voter.step
    states: dict[Any, str] = {}

    def watched(voter: Voter, now: float) -> Any:
        messages = step(voter, now)
        sent.update(message["type"] for _, message in messages)
        before, after = states.get(voter.election, "follower"), _state(voter.election)
        states[voter.election] = after
        if before != after:
            changes.add(f"{before} to {after}")
        return messages

    monkeypatch.setattr(Voter, "step", watched)
    for seed in range(300):
        states.clear()
        Trial(seed).run()
    assert set(re.findall(r"^\| `([a-z]+)` \|", section, re.M)) == sent - {"order"}
    shown = set(re.findall(r"^\| (\w+ to \w+) \|", section, re.M))
    assert changes - {"follower to coordinator"} == shown, changes  # the first one begins as that
    for name, seconds in re.findall(r"\| `([A-Z_]+_S)` \| (\d+) s \|", section):
        assert getattr(election, name) == float(seconds)


def _state(voter: Election) -> str:
    if vars(voter)["_granted"] is not None:
        return "candidate"
    return "coordinator" if voter.leads else "follower"

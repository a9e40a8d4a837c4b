"""The grammar of tasks and hosts on the command line."""

from __future__ import annotations

import pytest

from dtctl.errors import UsageError
from dtctl.operations.history.record import RunRecord, record_of
from dtctl.operations.selection import select_hosts, select_tasks
from dtctl.plan.roster import plan_roster
from tests.unit.clusters import cluster, job

RECORD = record_of(
    plan_roster(cluster(job("ps", ["n1", "n2"], [1, 1]), job("worker", ["n1", "n2", "n3", "n3"], [2, 2, 2, 3])))
)


@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        ([], "ps:0 ps:1 worker:0 worker:1 worker:2 worker:3"),
        (["worker:1"], "worker:1"),
        (["worker"], "worker:0 worker:1 worker:2 worker:3"),
        (["worker:0-2"], "worker:0 worker:1 worker:2"),
        (["worker:0,3"], "worker:0 worker:3"),
        (["@n3"], "worker:2 worker:3"),
        (["@n[1-2]"], "ps:0 ps:1 worker:0 worker:1"),
        (["worker:3", "ps", "worker:3"], "ps:0 ps:1 worker:3"),
    ],
)
def test_words_mean_tasks_in_the_order_of_the_file(words: list[str], tasks: str) -> None:
    assert " ".join(map(str, select_tasks(RECORD, words))) == tasks


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("wroker:1", "there is no job 'wroker'", "worker"),
        ("worker:9", "there is no task worker:9", "worker:3"),
        ("worker:x", "'worker:x' is not a task", "worker:0-3"),
        ("@n9", "there is no host 'n9'", "n"),
        ("worker:", "'worker:' is not a task", "worker:1"),
    ],
)
def test_a_word_that_means_nothing_says_what_would(word: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        select_tasks(RECORD, [word])
    assert message in error.value.summary
    assert hint in error.value.hint


def test_hosts_are_named_plainly_or_by_their_tasks() -> None:
    assert select_hosts(RECORD, ["n2", "@n1"]) == ("n1", "n2")
    assert select_hosts(RECORD, ["worker:2"]) == ("n3",)
    assert select_hosts(RECORD, []) == ("n1", "n2", "n3")


def test_a_record_goes_through_json_unchanged() -> None:
    assert RunRecord.from_json(RECORD.to_json()) == RECORD

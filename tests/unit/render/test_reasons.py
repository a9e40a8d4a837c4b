"""Every sentence that tells a reason, by its kind: to be read in one sitting. And that nobody decides by one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dtctl
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import (
    MOST_FACTS,
    SENTENCES,
    Because,
    Fact,
    because,
    fact,
    fields_of,
    headline,
    named,
    sentence,
    why_of,
)

BEFORE: dict[str, Fact] = {
    "asked_of": fact("asked_stop"),
    "firewall": fact("hosts_silent", text="gpu-b, gpu-c", count=2, what="10.0.0.1:2221"),
    "told_anew": fact("put_aside", text="cluster.json is damaged", what="cluster.json.damaged-1"),
    "steps_lost": fact("back_to_step", step=1200),
    "and_more": fact("waits_in_state", task="worker:1", text="starting"),
}
"""What stands before facts that continue a sentence, where that is not an exit."""

TABLE: list[tuple[str, dict[str, Any], str]] = [
    ("exited", {"code": 1}, "exit code 1"),
    ("killed", {"signal": 9}, "killed by SIGKILL"),
    ("cannot_run", {"text": "no such file", "what": "/opt/train"}, "cannot run /opt/train: no such file"),
    ("cannot_enter", {"text": "no such file", "what": "/opt/train"}, "cannot enter /opt/train: no such file"),
    ("cannot_open_log", {"text": "no such file"}, "cannot open the log: no such file"),
    ("cannot_start", {"text": "no such file"}, "cannot be started: no such file"),
    ("cannot_record", {"text": "no such file"}, "cannot record the start: no such file"),
    ("given_up", {}, "given up before it was started"),
    ("keeper_killed", {}, "exit status unknown (its keeper was killed)"),
    ("never_started", {}, "its keeper was killed before the start"),
    ("host_restarted", {}, "exit status unknown (the host was restarted)"),
    ("exit_damaged", {"text": "exit.json is damaged"}, "exit status unknown (exit.json is damaged)"),
    ("exit_unknown", {}, "its exit is unknown"),
    ("ps_ended", {}, "exit code 0, but a ps is needed to the end"),
    ("stalled", {"seconds": 600.0}, "stalled: no sign of progress for 10 min"),
    ("hung", {}, "stalled: no sign of progress"),
    ("frozen", {"seconds": 60.0}, "stalled: frozen (stopped by a signal) for 60 s"),
    ("still_silent", {}, "still no sign of progress after its restart"),
    ("never_began", {"seconds": 600}, "nobody has told a step since the start, nor done anything for 10 min"),
    ("hung_in", {"text": "wait (train.py:9)"}, "exit code 1; its stack ends in wait (train.py:9)"),
    ("port_held", {"port": 2222, "text": "pid 7 (nc)"}, "exit code 1; port 2222 is held by pid 7 (nc)"),
    (
        "left_behind",
        {"count": 1, "text": "pid 123, python serve.py"},
        "left 1 process behind (pid 123, python serve.py), which was ended",
    ),
    ("cause", {"text": "ImportError: no tensors"}, "exit code 1 (ImportError: no tensors)"),
    ("shortage", {}, "exit code 1, a shortage on its host"),
    ("cannot_restore", {}, "exit code 1, a file that cannot be read"),
    (
        "out_of_memory",
        {"count": 1},
        "exit code 1; the host ran out of memory meanwhile, and its kernel killed 1 process",
    ),
    ("permanent", {}, "exit code 1, which is not tried again"),
    ("early", {}, "exit code 1; those that it needs were not ready"),
    (
        "same_way",
        {"count": 3},
        "exit code 1; it has failed the same way 3 times in a row and come no further (recovery.repeat)",
    ),
    ("after_restarts", {"count": 3}, "exit code 1, after 3 restarts"),
    ("after_run_restarts", {"count": 3}, "exit code 1, after 3 restarts in the run"),
    (
        "no_checkpoint",
        {},
        "exit code 1, and there is no complete checkpoint to go back to (recovery.allow_scratch: true starts over)",
    ),
    (
        "damaged_checkpoint",
        {"what": "/out/model.ckpt-200", "text": "the index is cut short"},
        "exit code 1; /out/model.ckpt-200 is damaged (the index is cut short), and there is no older one beside it that"
        " is complete: choose another directory (dirs.output, checkpoint.dir), or start over with"
        " recovery.allow_scratch: true",
    ),
    ("complete_elsewhere", {"what": "/old/model.ckpt-50"}, "exit code 1; /old/model.ckpt-50 is complete"),
    ("stopped", {}, "stopped"),
    ("stopped_by", {"by": "ann@desk"}, "stopped by ann@desk"),
    ("killed_after", {"seconds": 30.0}, "killed after 30 s: exit code 1"),
    ("taken_down", {"by": "ann@desk"}, "taken down by ann@desk"),
    ("restart", {}, "restart"),
    ("replaced", {"run": "digits-2"}, "replaced by run digits-2"),
    ("start_failed", {}, "the start was cancelled: a task failed the same way again"),
    ("makes_room", {}, "stopped to make room for another run"),
    ("rolled_back", {}, "rolled back"),
    ("ending", {}, "ending"),
    ("restarted_with", {"task": "worker:1"}, "restarted with worker:1 (exit code 1)"),
    ("session_lost", {}, "the controller was lost before the start was complete"),
    ("isolated", {"seconds": 61.4}, "no message from the coordinator for 61 s"),
    ("ended_meanwhile", {}, "the run was ended while this host was away"),
    ("no_task_runs", {}, "no task runs yet"),
    ("tasks_run", {"count": 3, "of": 4}, "3 of 4 tasks run"),
    ("task_lost", {"task": "worker:1"}, "worker:1: exit code 1"),
    ("task_stopped", {"task": "worker:1"}, "worker:1 was stopped"),
    ("lead_finished", {"task": "worker:1"}, "worker:1 finished"),
    ("workers_finished", {}, "every worker finished"),
    ("task_failed", {"task": "worker:1"}, "worker:1 failed: exit code 1"),
    ("host_gone", {"host": "gpu-b", "seconds": 61.4}, "gpu-b has been away for 61 s"),
    ("deadline", {"seconds": 61.4}, "the deadline of 61 s is over"),
    ("not_ready", {"seconds": 61.4}, "not ready after 61 s: exit code 1"),
    ("run_succeeded", {}, "the run has succeeded"),
    ("run_failed", {}, "the run has failed: exit code 1"),
    ("run_stopped", {}, "the run has stopped: exit code 1"),
    ("hosts_unreachable", {"count": 2, "text": "gpu-1, gpu-2"}, "exit code 1; 2 hosts unreachable: gpu-1, gpu-2"),
    (
        "hosts_silent",
        {"count": 2, "text": "gpu-b, gpu-c", "what": "10.0.0.1:2221"},
        "2 hosts not connected to the coordinator on 10.0.0.1:2221 yet: gpu-b, gpu-c",
    ),
    (
        "firewall",
        {},
        "2 hosts not connected to the coordinator on 10.0.0.1:2221 yet: gpu-b, gpu-c"
        "; is there a firewall between the hosts? (coordinator.port chooses another)",
    ),
    (
        "asks_others",
        {"count": 2},
        "nothing is started before 2 more of the run's hosts have called the coordinator: the run may have been "
        "replaced while its host was away",
    ),
    ("waits_for_host", {"host": "gpu-b", "task": "worker:1"}, "worker:1: its host gpu-b is away"),
    (
        "waits_to_listen",
        {"task": "worker:1", "what": "10.0.0.2:2222"},
        "worker:1 runs but does not listen on 10.0.0.2:2222 yet",
    ),
    ("starts_again", {"task": "worker:1"}, "worker:1 is to start again: exit code 1"),
    ("waits_in_state", {"task": "worker:1", "text": "starting"}, "worker:1 is starting"),
    ("and", {}, "exit code 1; exit code 2"),
    ("and_more", {}, "worker:1 is starting ..."),
    ("goes_alone", {}, "exit code 1: it is restarted alone"),
    ("goes_in", {"seconds": 1.04}, "exit code 1: it is restarted in 1.0 s"),
    ("goes_with", {"seconds": 1.04, "task": "worker:1"}, "exit code 1: restarted with worker:1 in 1.0 s"),
    ("all_go", {"count": 3, "seconds": 1.04}, "exit code 1: all 3 tasks are restarted in 1.0 s"),
    ("lost_again", {"task": "worker:1"}, "worker:1 was lost again"),
    ("lost_too", {"task": "worker:1"}, "worker:1 was lost too"),
    ("back_to_step", {"step": 1200}, "back to step 1200"),
    ("steps_lost", {"count": 3}, "back to step 1200, 3 steps lost"),
    ("trains_again", {"seconds": 61.4}, "training again after 61.4 s"),
    ("runs_again", {"seconds": 61.4}, "running again after 61.4 s"),
    (
        "short_of_target",
        {"of": 2000, "step": 1200},
        "the newest complete checkpoint is of step 1200, short of the 2000 that were asked for",
    ),
    ("goodput", {"count": 93}, "goodput 93 %: exit code 1"),
    ("spent_start", {"count": 4}, "starts 4 %"),
    ("spent_wait", {"count": 4}, "waits 4 %"),
    ("spent_again", {"count": 4}, "steps done again 4 %"),
    ("spent_stall", {"count": 4}, "stalls 4 %"),
    ("spent_away", {"count": 4}, "hosts away 4 %"),
    ("spent_end", {"count": 4}, "after the last step 4 %"),
    ("spent_unsaved", {"count": 4}, "steps not saved at the end 4 %"),
    ("comma", {}, "exit code 1, exit code 2"),
    ("asked_up", {}, "up"),
    ("asked_stop", {}, "stop"),
    ("asked_restart", {}, "restart"),
    ("asked_of", {"tasks": ["ps:0", "ps:1"]}, "stop ps:0, ps:1"),
    ("away", {"host": "gpu-b", "text": "no word for 10 s"}, "gpu-b is away: no word for 10 s"),
    ("not_back", {"host": "gpu-b"}, "gpu-b is away: it has not called the coordinator since that restarted"),
    ("begins_without", {"text": "gpu-b, gpu-c"}, "the run begins without gpu-b, gpu-c"),
    ("joined", {"host": "gpu-b"}, "gpu-b has joined the run, which had begun without it"),
    ("join_undone", {"host": "gpu-b"}, "gpu-b is out of the run again: its `up` was given up"),
    ("back", {"host": "gpu-b", "seconds": 61.4}, "gpu-b is back after 61 s"),
    (
        "not_believed",
        {"host": "gpu-b", "text": "it tells of ps:9, which is not its own task"},
        "gpu-b said something that cannot be true, and was hung up on: it tells of ps:9, which is not its own task",
    ),
    (
        "came_back_with",
        {"host": "gpu-b", "run": "digits-2"},
        "gpu-b has come back with run digits-2, and was told that it is over",
    ),
    (
        "events_left_out",
        {"count": 3, "host": "gpu-b"},
        "gpu-b sends more events than the story takes: 3 of them are left out",
    ),
    (
        "coordinator_deaf",
        {"text": "Address already in use"},
        "agents cannot reach the coordinator: Address already in use",
    ),
    (
        "agent_gone",
        {"host": "gpu-b"},
        "gpu-b answers, but its agent does not call: it was killed, or cannot reach the coordinator "
        "(dtctl up    starts it again)",
    ),
    ("coordinator_heard", {}, "agents can reach the coordinator again"),
    ("coordinator_restarted", {"seconds": 61.4}, "the coordinator restarted after 61 s"),
    (
        "hook_refused",
        {"what": "slack", "text": "404 Not Found"},
        "hook slack did not receive the message: it answers 404 Not Found",
    ),
    (
        "hook_redirects",
        {"what": "slack", "text": "302 Found"},
        "hook slack did not receive the message: it answers 302 Found; redirections are not followed",
    ),
    ("hook_unreached", {"what": "slack", "text": "timed out"}, "hook slack did not receive the message: timed out"),
    ("hook_late", {"what": "./tell.sh", "seconds": 10.0}, "./tell.sh took longer than 10 s, and was ended"),
    ("hook_tried", {"count": 4}, "exit code 1 (tried 4 times)"),
    (
        "hook_behind",
        {"what": "slack", "count": 1},
        "hook slack is behind: it is not told of the oldest 1 event",
    ),
    ("hook_works", {"what": "slack"}, "hook slack can be told again"),
    (
        "put_aside",
        {"text": "cluster.json is damaged", "what": "cluster.json.damaged-1"},
        "cluster.json is damaged; it was put aside as cluster.json.damaged-1",
    ),
    (
        "told_anew",
        {},
        "cluster.json is damaged; it was put aside as cluster.json.damaged-1, and rebuilt from what the agents tell",
    ),
    ("no_part", {}, "its host has no part in the run"),
    ("absent", {}, "the run was started without its host"),
    ("not_heard", {}, "its host has not been heard yet"),
    ("task_unknown", {}, "its host knows no such task"),
    ("run_unknown", {}, "its host knows no such run"),
    ("no_run", {}, "no host has a run"),
    ("other_run", {}, "its host has another run"),
    ("no_answer", {}, "its host gives no answer"),
    ("way_unknown", {"host": "gpu-b"}, "how to reach gpu-b is not known here"),
    ("host_away", {"host": "gpu-b", "text": "running"}, "gpu-b is away; it was running"),
    ("said", {"text": "killed by SIGKILL"}, "killed by SIGKILL"),
]


def in_its_place(kind: str, fields: dict[str, Any]) -> list[Fact]:
    """With an exit code before it, if it continues a sentence, or after it, if it begins one."""
    exit_code = fact("exited", code=1)
    continues = not SENTENCES[kind][0].isalpha() and not SENTENCES[kind].startswith("%")
    begins = any(word in SENTENCES[kind] for word in ("%(rest)s", "%(because)s"))
    before = [BEFORE.get(kind, exit_code)] if continues else []
    after = [exit_code] if begins else [fact("exited", code=2)] if kind in ("and", "comma") else []
    return [*before, fact(kind, **fields), *after]


@pytest.mark.parametrize(("kind", "fields", "words"), TABLE, ids=[kind for kind, _, _ in TABLE])
def test_a_kind_has_its_fields_and_its_sentence(kind: str, fields: dict[str, Any], words: str) -> None:
    assert sorted(fields) == fields_of(kind)
    assert sentence(in_its_place(kind, fields)) == words


@pytest.mark.parametrize(("kind", "fields", "words"), TABLE, ids=[kind for kind, _, _ in TABLE])
def test_a_fact_is_a_record_of_its_fields_and_no_others(kind: str, fields: dict[str, Any], words: str) -> None:
    one = fact(kind, **fields)
    assert checked(Fact, one) == one == {"kind": kind, **fields}
    assert why_of(made(Because, reason=words, why=[one])) == [one]


def test_every_kind_is_in_the_table() -> None:
    assert [kind for kind, _, _ in TABLE] == list(SENTENCES)


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (
            [
                fact("run_failed"),
                fact("task_failed", task="worker:1"),
                fact("exited", code=1),
                fact("port_held", port=2222, text="pid 7 (nc)"),
                fact("after_restarts", count=1),
            ],
            "the run has failed: worker:1 failed: exit code 1; port 2222 is held by pid 7 (nc), after 1 restart",
        ),
        (
            [fact("exited", code=1), fact("all_go", count=3, seconds=0.0)],
            "exit code 1: all 3 tasks are restarted",
        ),
        (
            [fact("exited", code=1), fact("cause", text="ImportError: x"), fact("permanent")],
            "exit code 1 (ImportError: x), which is not tried again",
        ),
        (
            [fact("restarted_with", task="ps:0"), fact("stalled", seconds=300.0)],
            "restarted with ps:0 (stalled: no sign of progress for 5 min)",
        ),
        (
            [
                fact("not_ready", seconds=60.0),
                fact("starts_again", task="ps:0"),
                fact("killed", signal=15),
                fact("and"),
                fact("waits_in_state", task="ps:1", text="starting"),
            ],
            "not ready after 60 s: ps:0 is to start again: killed by SIGTERM; ps:1 is starting",
        ),
        (
            [
                fact("back_to_step", step=7),
                fact("steps_lost", count=2),
                fact("and"),
                fact("trains_again", seconds=9.44),
            ],
            "back to step 7, 2 steps lost; training again after 9.4 s",
        ),
        ([fact("run_failed")], "the run has failed"),
        ([fact("killed", signal=63)], "killed by signal 63"),
        ([fact("stopped_by", by="")], "stopped by somebody"),
        ([], ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_facts_make_one_sentence(why: list[Fact], words: str) -> None:
    assert sentence(why) == words


def test_a_reason_of_an_older_build_is_its_sentence() -> None:
    older = checked(Because, {"reason": "killed by SIGKILL"})
    assert why_of(older) == [{"kind": "said", "text": "killed by SIGKILL"}]
    assert sentence(why_of(older)) == "killed by SIGKILL"
    assert why_of(checked(Because, {})) == []


@pytest.mark.parametrize(
    "why",
    [
        [{"kind": "not_yet_known", "text": "x"}],
        [{"kind": "exited"}],
        [{"kind": "killed", "signal": 9}, {"kind": "new"}],
    ],
    ids=["kind", "field", "one of them"],
)
def test_a_reason_of_a_newer_build_is_its_sentence(why: list[dict[str, Any]]) -> None:
    """Its record holds all the same: a build that tells one kind more is not one that tells nothing."""
    newer = checked(Because, {"reason": "words of its own", "why": [{**one, "new_field": 1} for one in why]})
    assert sentence(why_of(newer)) == "words of its own"


def test_a_reason_is_limited_whatever_goes_into_it() -> None:
    why = [fact("task_failed", task="worker:1")] * 100 + [fact("said", text="x" * 10_000)]
    assert len(because(why)["why"]) == MOST_FACTS
    told = because([fact("run_failed"), fact("said", text="x" * 10_000)])
    assert checked(Because, told) == told
    assert told["reason"].endswith(" ...")


def test_what_lacks_a_field_is_no_fact() -> None:
    with pytest.raises(KeyError):
        fact("exited")
    with pytest.raises(KeyError):
        fact("no_such_kind")


def test_the_first_fact_is_the_headline_and_all_of_them_name_who() -> None:
    why = [fact("asked_stop"), fact("asked_of", tasks=["ps:0", "ps:1"])]
    assert (headline(why), named(why)) == ("asked_stop", ["ps:0", "ps:1"])
    assert (headline([]), named([fact("away", host="b", text="silent")])) == (None, ["b"])


REASONS = {"reason", "why", "closed", "missing", "deaf", "problem", "error"}
"""What fields and variables are called that hold a sentence."""


def decisions_by_text(code: str) -> Iterator[str]:
    """Where a text that tells a reason is looked into: `reason.startswith(...)`, `"..." in reason`, `== "..."`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            looks = node.func.attr in ("startswith", "endswith", "removeprefix", "removesuffix", "partition", "split")
            if looks and _names_of(node.func.value) & REASONS:
                yield ast.unparse(node)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            told = any(_names_of(side) & REASONS for side in sides)
            if (told and any(_english(side) for side in sides)) or (
                any(isinstance(op, ast.In | ast.NotIn) for op in node.ops) and _names_of(node.comparators[0]) & REASONS
            ):
                yield ast.unparse(node)


def _names_of(node: ast.AST) -> set[str]:
    """`reason` of reason, one.reason, entry["reason"] and sentence(entry["reason"])."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return {str(node.slice.value)}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sentence":
        return {"reason"}
    return set()


def _english(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('one["reason"].startswith("stalled")', 1),
        ("who in one.reason", 1),
        ('task.reason == "stopped"', 1),
        ('"away" in sentence(one.why)', 1),
        ('why.removesuffix(": gone")', 1),
        ('one["why"] == other["why"]', 0),
        ('headline(one["why"]) in HUNG', 0),
        ('entry["reason"] != ""', 0),
    ],
)
def test_a_decision_by_text_is_found(code: str, found: int) -> None:
    assert len(list(decisions_by_text(code))) == found


def test_nobody_decides_by_a_sentence() -> None:
    files = sorted(Path(dtctl.__path__[0]).rglob("*.py"))
    looked_into = {str(path): list(decisions_by_text(path.read_text("utf-8"))) for path in files}
    assert {name: found for name, found in looked_into.items() if found} == {}

"""Every sentence of a reason, by its kind, in one table. And no code decides by a sentence."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import dtctl
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import (
    MOST_FACTS,
    SENTENCES,
    Because,
    Fact,
    FactFields,
    because,
    fact,
    fields_of,
    headline,
    named,
    read,
    sentence,
    why_of,
)

BEFORE: dict[str, Fact] = {
    "asked_of": fact("asked_stop"),
    "firewall": fact("hosts_unconnected", text="gpu-b, gpu-c", what="10.0.0.1:2221"),
    "rebuilt": fact("put_aside", text="cluster.json is damaged", what="cluster.json.damaged-1"),
    "holds": fact("drained", host="gpu-b", by="ann@desk"),
    "steps_lost": fact("back_to_step", step=1200),
    "and_more": fact("waits_in_state", task="worker:1", text="starting"),
}
"""Text before facts that continue a sentence, if that is not an exit."""

ROWS = Path(__file__).with_name("reasons.yaml").read_text("utf-8")
TABLE: list[tuple[str, dict[str, Any], str]] = yaml.safe_load(ROWS)
SENTENCE_ROWS = yaml.safe_load(Path(__file__).with_name("sentences.yaml").read_text("utf-8"))


def in_its_place(kind: str, fields: dict[str, Any]) -> list[Fact]:
    """The fact with an exit code before it, if it continues a sentence, or after it, if it begins one."""
    exit_code = fact("exited", code=1)
    continues = not SENTENCES[kind][0].isalpha() and not SENTENCES[kind].startswith("%")
    begins = any(word in SENTENCES[kind] for word in ("%(rest)s", "%(because)s"))
    before = [BEFORE.get(kind, exit_code)] if continues else []
    after = [exit_code] if begins else [fact("exited", code=2)] if kind in ("and", "comma") else []
    return [*before, fact(kind, **fields), *after]


@pytest.mark.parametrize(("kind", "fields", "expected"), TABLE, ids=[kind for kind, _, _ in TABLE])
def test_each_kind_has_its_fields_and_its_sentence(kind: str, fields: dict[str, Any], expected: str) -> None:
    assert sorted(fields) == fields_of(kind)
    assert sentence(in_its_place(kind, fields)) == expected


@pytest.mark.parametrize(("kind", "fields", "expected"), TABLE, ids=[kind for kind, _, _ in TABLE])
def test_a_fact_is_a_record_of_its_fields_and_no_others(kind: str, fields: dict[str, Any], expected: str) -> None:
    one = fact(kind, **fields)
    assert checked(FactFields, read(one)) == read(one) == {"kind": kind, **fields}
    assert why_of(made(Because, why=[one])) == [one]


def test_every_kind_is_in_the_table() -> None:
    assert [kind for kind, _, _ in TABLE] == list(SENTENCES)


@pytest.mark.parametrize("row", SENTENCE_ROWS, ids=lambda row: row["sentence"])
def test_facts_make_one_sentence(row: dict[str, Any]) -> None:
    assert sentence([fact(**one) for one in row["facts"]]) == row["sentence"]


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        ([{"kind": "not_yet_known", "text": "x"}], "not yet known (x)"),
        ([{"kind": "exited"}], "exited"),
        ([{"kind": "run_failed"}, {"kind": "new", "host": "b"}], "the run has failed: new"),
        ([], ""),
    ],
    ids=["kind", "field", "one of them", "nothing"],
)
def test_fact_of_another_build_is_shown_as_its_kind(why: list[dict[str, Any]], shown: str) -> None:
    """Its record is valid: a build with one more kind can still be understood."""
    newer = checked(Because, {"why": [{**one, "new_field": 1} for one in why]})
    assert sentence(why_of(newer)) == shown


def test_the_length_of_a_reason_is_limited() -> None:
    why = [fact("task_failed", task="worker:1")] * 100 + [fact("said", text="x" * 10_000)]
    assert len(because(why)["why"]) == MOST_FACTS
    reason = because([fact("run_failed"), fact("said", text="x" * 10_000)])
    assert checked(Because, reason) == reason
    assert sentence(why_of(reason)).endswith(" ...")


def test_fact_without_a_required_field_is_unknown() -> None:
    with pytest.raises(KeyError):
        fact("exited")
    with pytest.raises(KeyError):
        fact("no_such_kind")


def test_the_headline_is_the_first_fact_and_names_are_from_all() -> None:
    why = [fact("asked_stop"), fact("asked_of", tasks=["ps:0", "ps:1"])]
    assert (headline(why), named(why)) == ("asked_stop", ["ps:0", "ps:1"])
    assert (headline([]), named([fact("away", host="b", text="silent")])) == (None, ["b"])


REASONS = {"reason", "why", "closed", "missing", "problem", "error"}
"""Names of fields and variables that hold a sentence."""


def decisions_by_text(code: str) -> Iterator[str]:
    """Places where the text of a reason is inspected: `reason.startswith(...)`, `"..." in reason`, `== "..."`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            looks = node.func.attr in ("startswith", "endswith", "removeprefix", "removesuffix", "partition", "split")
            if looks and _names_of(node.func.value) & REASONS:
                yield ast.unparse(node)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            compares_reasons = any(_names_of(side) & REASONS for side in sides)
            if (compares_reasons and any(_english(side) for side in sides)) or (
                any(isinstance(op, ast.In | ast.NotIn) for op in node.ops) and _names_of(node.comparators[0]) & REASONS
            ):
                yield ast.unparse(node)


def _names_of(node: ast.AST) -> set[str]:
    """The name in an expression: `reason` of reason, one.reason, entry["reason"] and sentence(entry["reason"])."""
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


def test_no_code_decides_by_a_sentence() -> None:
    files = sorted(Path(dtctl.__path__[0]).rglob("*.py"))
    looked_into = {str(path): list(decisions_by_text(path.read_text("utf-8"))) for path in files}
    assert {name: found for name, found in looked_into.items() if found} == {}

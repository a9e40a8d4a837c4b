"""Every record against every value that JSON can hold."""

from __future__ import annotations

import json
import random
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.records import kinds, messages, run_state, spec, starting, values, whole_run
from dtctl.agent.records.kinds import InvalidValue, Kind, Missing, checked, fields_of, kind_of, made
from dtctl.agent.records.values import is_storage_url, normal_url, paths_of, urls_of
from dtctl.agent.rooms import EXCHANGES, FRAMES, TOPICS, WORDS, load
from dtctl.plan.hosts import on_host
from tests.fuzz import few

FILES = [
    spec.Spec,
    run_state.IntentFile,
    run_state.State,
    run_state.Start,
    run_state.Ending,
    run_state.Holder,
    starting.PendingHosts,
    whole_run.RunView,
    whole_run.RequestBook,
    whole_run.Event,
    whole_run.HistoryEvent,
    values.Variables,
]
RECORDS: list[Any] = [
    *map(load, dict.fromkeys(one.request for one in EXCHANGES.values())),
    *map(load, WORDS.values()),
    *map(load, dict.fromkeys(one.result for one in EXCHANGES.values())),
    *map(load, FRAMES.values()),
    *map(load, (one for row in TOPICS.values() for one in (row.request, row.result))),
    *messages.FROM_AGENT.values(),
    *messages.FROM_COORDINATOR.values(),
    *FILES,
]
RULED = (
    *("SeriesPoints", "FolderPoints", "Points", "MetricsResult", "UpRequest", "DataPushRequest"),
    *("DataRequest", "ExecRequest", "LoginCommandRequest", "LogsRequest", "StoreRequest", "GcRequest", "Spec"),
    *("Profile", "Inventory", "Prepared", "StatusResult", "StopResult", "RestartResult", "JoinResult"),
)
"""Have rules about several fields, which few of the values below keep; or hold a record that has."""

SOME = 3
"""Entries of a list at most: what is wrong with a long one is wrong with a short one."""

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["", "\0", "\ud800", "..", "a/b", "a\n", "\x1b]0;x\a", "x" * 10_000, 2**53 + 1, 10**400, -1, 1e308]
    ),
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
seeds = st.integers(0, 2**32)


def like(kind: Kind, dice: random.Random) -> Any:
    """A value of a kind. By dice: hypothesis itself would need a second for a state with all that is in it."""
    sort, *parts = kind.parts
    return _MAKERS[sort](dice, *parts)


def _record(dice: random.Random, record: Any) -> Any:
    return {
        name: like(kind, dice)
        for name, (kind, usual) in fields_of(record).items()
        if isinstance(usual, Missing) or dice.random() < 0.7
    }


def _text(dice: random.Random, most: int) -> str:
    return "".join(dice.choices("az09 .:/-_\0\n\x1b\xe4\u8bad\ud800", k=dice.randint(0, min(most, 8))))


def _form(dice: random.Random, most: int, pattern: str) -> str:
    """One of some examples: between them they have every form."""
    fitting = [text for text in EXAMPLES if re.fullmatch(pattern, text) and len(text) <= most]
    return dice.choice(fitting)


def _several(dice: random.Random, inner: Kind, most: int) -> list[Any]:
    return [like(inner, dice) for _ in range(dice.randint(0, min(most, SOME)))]


_MAKERS: dict[str, Callable[..., Any]] = {
    "bool": lambda dice: dice.random() < 0.5,
    "whole": lambda dice, low, high: dice.choice([low, high, dice.randint(low, high)]),
    "number": lambda dice, low, high: dice.choice([low, high, dice.uniform(low, high)]),
    "text": _text,
    "pattern": _form,
    "one of": lambda dice, names: dice.choice(names),
    "optional": lambda dice, inner: None if dice.random() < 0.3 else like(inner, dice),
    "any": lambda dice: dice.choice([None, True, 7, "text", [1], {"a": None}]),
    "list": _several,
    "mapping": lambda dice, names, inner, most: {like(names, dice): one for one in _several(dice, inner, most)},
    "record": _record,
}
EXAMPLES = [
    "3.11",
    "events.out.tfevents.1.host",
    "0x7f099aafc6c0",
    "r-1",
    "a" * 200,
    "0",
    "worker:1",
    "chief:999999",
    "0" * 32,
    "0" * 64,
    "0123456789abcdef" * 4,
    "PATH",
    "A B",
    "task_failed",
    "gs://bucket/run",
    "2026_11_30_13_49_09",
]


def name_of(record: Any) -> str:
    return kind_of(record).description.partition("{")[0].strip()


def accepted(record: Any, raw: object) -> bool:
    """Whether it holds; then it is accepted again as it is, and JSON takes it, and gives it back."""
    try:
        value = checked(record, raw)
    except InvalidValue as wrong:
        text = str(wrong)
        assert text.isprintable(), text
        assert len(text) < 2_000, text[:2_000]
        return False
    assert checked(record, value) == value
    assert checked(record, kinds.parse_json(json.dumps(value, allow_nan=False))) == value
    return True


@few
@given(raw=anything)
def test_any_input_is_either_refused_with_a_message_or_valid(raw: object) -> None:
    for record in RECORDS:
        accepted(record, raw)


@few
@given(seed=seeds)
def test_generated_records_are_valid(seed: int) -> None:
    for record in RECORDS:
        raw = like(kind_of(record), random.Random(seed))
        assert accepted(record, raw) or name_of(record) in RULED, (name_of(record), raw)


@few
@given(seed=seeds, other=anything)
def test_record_with_any_value_replaced_is_refused_with_a_message_or_valid(seed: int, other: object) -> None:
    for record in RECORDS:
        dice = random.Random(seed)
        raw = {"": 0, **like(kind_of(record), dice)}
        holder, key = dice.choice(list(_places(raw)))
        if dice.random() < 0.8:
            holder[key] = other
        else:
            del holder[key]
        accepted(record, raw)


def _places(value: Any) -> Any:
    """Every list or object within a value, with every index or name in it."""
    if isinstance(value, (list, dict)):
        for key, inner in enumerate(value) if isinstance(value, list) else list(value.items()):
            yield value, key
            yield from _places(inner)


@few
@given(data=st.binary(max_size=200) | st.text(max_size=200) | anything.map(json.dumps))
def test_the_reader_of_json_gives_a_value_or_says_that_it_is_none(data: str | bytes) -> None:
    try:
        value = kinds.parse_json(data)
    except ValueError:
        return
    assert kinds.parse_json(json.dumps(value, allow_nan=False)) == value


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "9" * 5_000, "[" * 100_000, "{", "", b"\xff", "1 2"])
def test_invalid_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        kinds.parse_json(text)


RECOVERY = {"max_restarts": 0, "backoff_min_s": 1, "backoff_max_s": 1, "reset_after_s": 1}
WORKER = {"id": "worker:0", "argv": ["true"], "env": {}, "secrets": [], "code": False}
MEMBER = {"task": "worker:0", "host": "a"}
ELSEWHERE = {"task": "worker:1", "host": "b"}
LED: dict[str, Any] = {
    "version": spec.VERSION,
    "run": "r",
    "cluster": "c",
    "host": "a",
    "digest": "",
    "created": 0,
    "controller": "",
    "tasks": [WORKER],
    "grace_s": 1,
    "recovery": RECOVERY,
    "coordinator": {"host": "a", "address": "a:1", "port": 1},
    "lead": "worker:0",
    "roster": [MEMBER],
}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"version": 2}, "version"),
        ({"run": "../r"}, "run"),
        ({"tasks": [WORKER, WORKER]}, "tasks"),
        ({"tasks": [{**WORKER, "argv": []}]}, "tasks.worker:0.argv"),
        ({"tasks": [{**WORKER, "argv": ["a\0b"]}]}, "tasks.worker:0.argv"),
        ({"tasks": [{**WORKER, "env": {"A": "\ud800"}}]}, "tasks.worker:0.env"),
        ({"tasks": [{**WORKER, "env": {"A=B": "x"}}]}, "tasks.0.env.A=B"),
        ({"tasks": [{**WORKER, "env": {"": "x"}}]}, "tasks.0.env."),
        ({"tasks": [{**WORKER, "id": "worker:1"}]}, "tasks.worker:1"),
        ({"dirs": ["/a\0b"]}, "dirs"),
        ({"checkpoint_dirs": ["\0HOME/\0X"]}, "checkpoint_dirs"),
        ({"setup": {"text": "a\0b"}}, "setup.text"),
        ({"setup": {"text": "", "env": {"A": "\0"}}}, "setup.env"),
        ({"lead": "worker:7"}, "lead"),
        ({"roster": [MEMBER, MEMBER]}, "roster"),
        ({"stages": [{"name": "x", "tasks": [], "after": [0]}]}, "stages.0"),
        ({"recovery": {**RECOVERY, "retry": [256]}}, "recovery.retry.0"),
        ({"slots": {"a": []}}, "slots.a"),
        ({"slots": {"b": [WORKER]}}, "slots.b"),
        ({"slots": {"a": [{**WORKER, "argv": []}]}}, "slots.a.worker:0.argv"),
        ({"spares": {"c": {"address": "c", "addresses": {"worker:1": "c:1"}}}}, "spares.c.addresses"),
        ({"absent": ["c"]}, "absent"),
    ],
)
def test_a_spec_that_cannot_be_carried_out_is_refused_with_the_place(fields: dict[str, Any], where: str) -> None:
    made(spec.Spec, **LED)
    with pytest.raises(InvalidValue) as wrong:
        made(spec.Spec, **{**LED, **fields})
    assert wrong.value.field == where


CREDENTIALS = {"key": "", "certificate": "", "authority": "", "port_token": "0" * 64}
UP = {"type": "up", "cluster": "c", "host": "a", "spec": LED, "credentials": CREDENTIALS}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"cluster": "d"}, "spec.cluster"),
        ({"host": "b"}, "spec.host"),
        ({"bundle": "0" * 64}, "spec.bundle"),
        ({"credentials": None, "spec": {**LED, "roster": [MEMBER, ELSEWHERE]}}, "credentials"),
        ({"credentials": {**CREDENTIALS, "key": "\ud800"}}, "credentials"),
        ({"credentials": {**CREDENTIALS, "port_token": "0" * 63}}, "credentials.port_token"),
        ({"secrets": {"A": "b\0"}}, "secrets"),
    ],
)
def test_a_request_is_about_what_its_spec_is_about(fields: dict[str, Any], where: str) -> None:
    checked(starting.UpRequest, UP)
    with pytest.raises(InvalidValue) as wrong:
        checked(starting.UpRequest, {**UP, **fields})
    assert wrong.value.field == where


@pytest.mark.parametrize("unit", ["{}", "[]", '{"":[]}'])
def test_json_of_millions_of_empty_objects_is_refused_before_it_is_kept(unit: str) -> None:
    text = "[" + ",".join([unit] * 1_100_000) + "]"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than 1000000 objects and lists"):
            kinds.parse_json(text)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


URLS = (
    *("gs://b", "gs://b/run/", "s3://b/a%20b", "hdfs:///user/ada", "hdfs://name:8020/user/ada"),
    *("abfs://container@account.dfs.core.windows.net/run", "webhdfs://name:9870/x", "http://h:8000/x", "https://h/x"),
)
PATHS = ("/data/gs:/b", "out", "~/gs", "a:b", "c://x", "gs:b")


@pytest.mark.parametrize("url", URLS)
def test_a_storage_url_stays_as_it_is(url: str) -> None:
    assert is_storage_url(url)
    assert on_host(url, "digits") == url


@pytest.mark.parametrize(
    "text",
    [
        *PATHS,
        *("gs://", "gs:///x", "GS://b", "ftp://h/x", "file:///x", "s3://key:secret@b/x", "s3://@b/x"),
        *("gs://b/a b", "gs://b/x\n", "https://h/x?sig=abc", "gs://b/x#1", "gs://b/$HOME", "gs://b/${X}", ""),
        "gs://b::file:///etc",
    ],
)
def test_text_that_is_no_storage_url_is_not_taken_for_one(text: str) -> None:
    assert not is_storage_url(text)


def test_places_are_parted_into_paths_and_urls() -> None:
    assert (paths_of([*URLS, *PATHS]), urls_of([*URLS, *PATHS])) == (list(PATHS), list(URLS))


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("gs://b/run///", "gs://b/run"),
        ("gs://b//run", "gs://b//run"),  # another object
        ("s3://b/", "s3://b"),
        ("webhdfs://Name:9870//user/ada/", "webhdfs://name:9870/user/ada"),
        ("hdfs:///user//ada", "hdfs:///user/ada"),
        ("abfss://C@Account.dfs.core.windows.net/Run", "abfs://C@account.dfs.core.windows.net/Run"),
        ("/data/x/", "/data/x"),
        ("/", "/"),
    ],
)
def test_urls_of_one_place_are_normalized_to_the_same(written: str, same: str) -> None:
    assert normal_url(written) == normal_url(same) == same


@pytest.mark.parametrize(
    ("old", "field"),
    [
        ({"type": "refused", "reason": "not in the roster"}, "text"),
        ({"type": "refused", "reason": "not in the roster", "text": "not in the roster"}, "text"),
        ({"type": "orders", "intents": {}, "mending": True, "over": False}, "recovering"),
    ],
)
def test_message_of_a_coordinator_of_an_older_version_is_read(old: dict[str, object], field: str) -> None:
    found: Any = checked(messages.FROM_COORDINATOR[str(old["type"])], old)
    assert found[field] == old.get("reason", True)
    assert not {"reason", "mending"} & found.keys()

"""YAML 1.2 and places: what a text says, and how a text that is not YAML is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dtctl.config.document import Scalar
from dtctl.config.yaml12 import parse
from dtctl.errors import ConfigError, Place


def values(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: values(value) for key, value in data.items()}
    if isinstance(data, list):
        return [values(value) for value in data]
    return data.value if isinstance(data, Scalar) else data


def read(text: str) -> Any:
    document = parse(text, "c.yaml")
    assert document.problems == []
    return values(document.data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("-3", -3),
        ("1_000", "1_000"),
        ("2222:22", "2222:22"),
        ("12:30:45", "12:30:45"),
        ("2001-01-01", "2001-01-01"),
        ("1.10", 1.1),
        ("1e-4", 1e-4),
        (".5", 0.5),
        ("-.inf", -math.inf),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("'5'", "5"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("=", "="),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_values_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    found = read(f"key: {text}")["key"]
    assert (found, type(found)) == (value, type(value))


def test_a_value_keeps_the_text_that_was_written() -> None:
    data = parse("{a: 1.10, b: 1e-4, c: True, d: 0x10, e: 'x y'}", "c.yaml").data
    assert [value.text for value in data.values()] == ["1.10", "1e-4", "True", "0x10", "x y"]


def test_keys_are_text_as_written() -> None:
    assert read("{1: a, 0x10: b, true: c, no: d}") == {"1": "a", "0x10": "b", "true": "c", "no": "d"}


def test_every_key_and_value_has_a_place() -> None:
    document = parse("a:\n  b: [x,\n    y]\n", "c.yaml")
    assert document.key_place(("a", "b")) == Place("c.yaml", 2, 3)
    assert document.value_place(("a", "b")) == Place("c.yaml", 2, 6)
    assert document.value_place(("a", "b", 1)) == Place("c.yaml", 3, 5)
    assert document.value_place(("a", "missing")) == Place("c.yaml", 1, 1), "that of the key that lacks it"


def test_aliases_and_merge_keys_are_followed() -> None:
    text = """\
a: &base {x: 1, y: 2}
b: {<<: *base, y: 3}
c: {y: 4, <<: [{z: 5, x: 6}, *base]}
d: *base
"""
    assert read(text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": {"x": 6, "y": 4, "z": 5},
        "d": {"x": 1, "y": 2},
    }


def test_a_quoted_merge_key_is_a_key() -> None:
    assert read("'<<': 1") == {"<<": 1}


def test_no_document_is_no_data() -> None:
    assert [parse(text, "c.yaml").data for text in ("", "# nothing\n", "---\n", "null")] == [None] * 4


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "c.yaml:3:1: a is here a second time; the first is at line 1, column 1"),
        ("h: {p: 1, 'p': 2}", "c.yaml:1:11: h.p is here a second time; the first is at line 1, column 5"),
        ("[1-4]: x", "c.yaml:1:1: a key must be text"),
        ("a: &x [*x]", "c.yaml:1:4: an alias stands inside what it stands for"),
        ("a: &x {<<: *x}", "c.yaml:1:4: an alias stands inside what it stands for"),
        ("<<: 3", "c.yaml:1:5: '<<' takes an alias of a mapping, or a list of such"),
        ("a: !!int x", "c.yaml:1:4: the tag !!int does not fit 'x', or is not known here"),
        (
            "a: !!python/name:os.system x",
            "c.yaml:1:4: the tag !!python/name:os.system does not fit 'x', or is not known here",
        ),
        ("a: !thing {}", "c.yaml:1:4: the tag !thing is not known here"),
    ],
)
def test_an_unrecordable_value_is_reported_with_its_place(text: str, problem: str) -> None:
    assert [f"{found.place}: {found.summary}" for found in parse(text, "c.yaml").problems] == [problem]


TAB = "a tab where YAML takes spaces only"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a:\n\tb: 1", f"c.yaml:2:1: {TAB}"),
        ("a:\n  b: 1\n\tc: 2", f"c.yaml:3:1: {TAB}"),
        ("a:\n  \tb: 1", f"c.yaml:2:3: {TAB}"),
        ("a:\t1", f"c.yaml:1:3: {TAB}"),
        ("a: b: c", "c.yaml:1:5: this is not YAML: a ':' where no key can stand"),
        ("a: 1\nb\nc: 2\n", "c.yaml:2:1: this is not YAML: a line without ':'"),
        ("a:\n  - b\n c: 1", "c.yaml:3:2: this is not YAML: this does not line up with what stands above it"),
        ("a: [1,\nb: 2", "c.yaml:1:4: this is not YAML: this list in [...] does not end"),
        ("a: {b: 1", "c.yaml:1:4: this is not YAML: this mapping in {...} does not end"),
        ("a: [b c: d e: f]", "c.yaml:1:13: this is not YAML: this list in [...] is not closed, or lacks a comma"),
        ("a: [n[1-4]]", "c.yaml:1:6: a range inside [...] or {...} needs quotes"),
        ("a: {b: n[1-4]}", "c.yaml:1:9: a range inside [...] or {...} needs quotes"),
        ("a: 'b\nc: d", "c.yaml:1:4: this is not YAML: a quoted text does not end"),
        ('a: "\\q"', "c.yaml:1:6: this is not YAML: an unknown escape after \\"),
        ("a: *b", "c.yaml:1:4: this is not YAML: this alias has no anchor"),
        ("a: @b", "c.yaml:1:4: this is not YAML: no value can begin with this character"),
        ("a: [", "c.yaml:1:5: this is not YAML: a value is missing here"),
        ("a: 1\n--- \nb: 2", "c.yaml:2:1: a second document begins here; a cluster file holds one"),
        ("a: 1\nb: \x00", "c.yaml:2:4: this is not text: it holds the character U+0000"),
        ("[" * 1000, "c.yaml:1:51: brackets or mappings are nested too deeply"),
    ],
)  # fmt: skip
def test_a_text_that_is_not_yaml_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "c.yaml")
    assert [f"{found.place}: {found.summary}" for found in caught.value.problems] == [problem]


def test_a_range_without_quotes_is_shown_with_them() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("jobs:\n  worker: {hosts: gpu-[1-4]}\n", "c.yaml")
    assert caught.value.problems[0].hint == 'write "gpu-[1-4]"'


def test_aliases_that_multiply_are_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError) as caught:
        parse("\n".join(lines), "c.yaml")
    assert caught.value.problems[0].summary == "more than 20000 values, with those that aliases stand for"

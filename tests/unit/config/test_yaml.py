"""YAML 1.2 and places; small files that stand for much, and text that is not YAML, are refused."""

# ruff: noqa: E501
from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.config.document import Scalar
from dtctl.config.load import load_cluster
from dtctl.config.yaml12 import parse
from dtctl.errors import ConfigError, Place
from tests.fuzz import cases
from tests.unit.config.mistakes import GOOD, swap


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
        ("a: &x [*x]", "c.yaml:1:4: an alias refers to itself"),
        ("a: &x {<<: *x}", "c.yaml:1:4: an alias refers to itself"),
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


EXAMPLE = (Path(__file__).resolve().parents[3] / "cluster.yaml.example").read_text()
LONGEST_S = 4.0
"""Of the processor; two are not passed on a machine that does nothing else."""
MOST_KIB = 300_000


@pytest.fixture(scope="module", autouse=True)
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For all cases of a property: hypothesis makes no other for each."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("limits"))
    yield
    os.chdir(before)


def read_file(text: str, *overrides: str) -> list[str]:
    """What is said about the text; nothing if it loads."""
    Path("cluster.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    began = time.process_time()
    try:
        load_cluster(Path("cluster.yaml"), overrides=overrides)
        return []
    except ConfigError as error:
        return [f"{problem.place}: {problem.summary}" for problem in error.problems]
    finally:
        assert time.process_time() - began < LONGEST_S


def merges(levels: int, width: int) -> str:
    lines = ["a0: &a0 {x: 1, y: 2, z: 3}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * width)}]}}" for n in range(1, levels)]
    return "\n".join(lines)


def worker(text: str) -> str:
    return swap('worker: {hosts: "gpu-[1-4]"}', f"worker: {{{text}}}")


ATTACKS = {
    "nested merges": (merges(12, 9), "a0 is not a key here"),
    "wide merges": (merges(3, 8000), "more than 20000 values"),
    "many merge keys": ("a: &a {x: 1}\nb: {" + "<<: *a, " * 12_000 + "}", "more than"),
    "long chains of merges": ("a0: &a0 {k0: 1}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: 1}}\n" for n in range(1, 900)), "more than 20000 values"),
    "aliases of aliases": ("a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)), "more than 20000 values"),
    "deep aliases": ("a0: &a0 " + "[" * 40 + "]" * 40 + "\na1: &a1 " + "[" * 30 + "*a0" + "]" * 30, "nested too deeply"),
    "aliases of a long text": (f"a: &a '{'x' * 100_000}'\nb: [{'*a, ' * 100}]", "more than 1000000 characters"),
    "brackets": ("[" * 900_000, "nested too deeply"),
    "braces": ("{" * 900_000, "nested too deeply"),
    "a file past the limit": ("[" * 4_000_000, "more than 1000000 bytes"),
    "dashes": ("- " * 400_000, "nested too deeply"),
    "question marks": ("? " * 400_000, "nested too deeply"),
    "many values": (f"a: [{'x, ' * 300_000}]", "more than 30000 keys and values"),
    "many wrong keys": ("".join(f"k{n}: 1\n" for n in range(14_000)), "k0 is not a key here"),
    "a key many times": ("a: 1\n" * 10_000, "a is here a second time"),
    "many tags": (f"a: [{'!x y, ' * 10_000}]", "the tag !x does not fit"),
    "ten million tasks": (swap("gpu-[1-4]: {ssh: \"10.0.0.2[1-4]\", gpus: 2}", "n[1-10000]:").replace('hosts: "gpu-[1-4]"', 'hosts: "n[1-10000]", tasks_per_host: 1024'), "jobs.worker is past the 10,000 tasks"),
    "ranges that multiply": (worker('hosts: "g[1-9999][1-9999][1-9999]"'), "expands to more than 10000 names"),
    "many ranges": (worker(f"hosts: [{'g[1-9999], ' * 4000}]".replace("g[1-9999]", "'g[1-9999]'")), "past the 10,000 tasks"),
    "many hosts": (swap("  ps-a:", "  h[1-9999]:\n  i[1-9999]:\n  ps-a:"), "hosts.i[1-9999] is past the 10,000 hosts"),
    "a long name many times": (swap("  ps-a:", f"  ? {'h' * 100_000}[1-9999]\n  : x\n  ps-a:"), "expands to more than"),
    "a long value many times": (swap("10.0.0.2[1-4]", "x" * 100_000 + "[1-9999]"), "expands to more than"),
    "commas": (worker(f"hosts: '{',' * 900_000}'"), "at most 10000 characters"),
    "open brackets in a name": (worker(f"hosts: 'g{'[' * 900_000}'"), "at most 10000 characters"),
    "many spares": (GOOD + f"spares: [{', '.join(['*s'] * 9000)}]\n".replace("*s", '"gpu-[1-4]"'), "spares[0]"),
    "one long word": (swap("[python, train.py]", "x" * 900_000), "at most 10000 characters"),
    "many quotes": (swap("[python, train.py]", "'" + '"' * 900_000 + "'"), "at most 10000 characters"),
    "braces in a template": (GOOD + "  template: '" + "{a " * 300_000 + "'", "at most 10000 characters"),
    "a huge number": (swap("gpus: 2", f"gpus: {'9' * 900_000}"), "expected a whole number"),
    "a huge hexadecimal": (swap("gpus: 2", f"gpus: 0x{'f' * 900_000}"), "expected a whole number"),
    "a number past floats": (GOOD + f"grace: {'9' * 90}", "a duration of at most 3650d"),
    "a duration past floats": (GOOD + f"grace: {'9' * 400}d", "a duration of at most 3650d"),
    "a timeout past the kernel's": (GOOD + "ssh: {connect_timeout: 300d}", "a duration"),
    "a billion GPUs": (swap("gpus: 2", "gpus: 1000000000"), "from 0 to 1024"),
    "a restart without end": (GOOD + f"recovery: {{max_restarts: {'9' * 90}}}", "at most 9007199254740992"),
    "a long key": (f"{'k' * 900_000}: 1", "this is not YAML"),
    "a loop": ("a: &a {b: *a}", "an alias refers to itself"),
    "a loop of merges": ("a: &a {b: &b {<<: *a}, <<: *b}", "an alias refers to itself"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_a_small_text_that_stands_for_much_is_refused(name: str) -> None:
    text, message = ATTACKS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    problems = read_file(text)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB
    assert any(message in problem for problem in problems), problems[:3]
    assert len(problems) <= 51
    assert all(len(problem) < 2000 for problem in problems)


@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, "9" * 100_000, "0x" + "f" * 90_000, "{a: &a {b: *a}}", merges(9, 9)],
    ids=["brackets", "a huge number", "a huge hexadecimal", "a loop", "merges"],
)
def test_a_value_of_the_command_line_is_read_by_the_same_rules(value: str) -> None:
    for path in ("trainer.args", "grace", "hosts", "hosts.ps-a.gpus", "name"):
        assert read_file(GOOD, f"{path}={value}")


def test_a_file_with_thousands_of_hosts_one_by_one_is_no_attack() -> None:
    hosts = "".join(
        f"  h{number}: {{ssh: 10.0.{number // 250}.{number % 250 + 1}, gpus: 2}}\n" for number in range(4000)
    )
    assert read_file(swap("  ps-a:", f"{hosts}  ps-a:")) == []


YAML = st.lists(
    st.sampled_from(
        ["a", "b: ", "- ", "? ", ": ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", ", ", "&a ", "*a", "<<: *a", "!x ", "|\n", "'", '"', "#", "0x1", "%", "---\n"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@cases
@given(st.text(max_size=300) | YAML)
def test_any_text_is_read_or_refused(text: str) -> None:
    read_file(text)


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """The example with some of its pieces replaced, doubled or moved."""
    text = EXAMPLE
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        end = min(end, start + draw(st.integers(0, 60)))
        text = text[:start] + draw(YAML | st.text(max_size=20) | st.just(text[start:end] * 2)) + text[end:]
    return text


@cases
@given(mutations())
def test_any_mutation_of_the_example_is_read_or_refused(text: str) -> None:
    read_file(text)


VALUES = st.text(max_size=40) | st.integers().map(str) | st.floats().map(str) | YAML
PATHS = st.sampled_from(
    ["name", "ssh.user", "ssh.jump", "ssh.known_hosts", "ssh.identity_file", "ssh.connect_timeout", "hosts", "hosts.ps-a", "hosts.ps-a.address",
     "hosts.ps-a.gpus", "jobs.ps.hosts", "jobs.ps.tasks_per_host", "trainer.command", "trainer.args", "trainer.template", "trainer.code",
     "trainer.env_file", "grace", "recovery.backoff", "recovery.retry", "spares", "dirs.data", "keep", "coordinator.port"]
)  # fmt: skip


@cases
@given(PATHS, VALUES)
def test_any_value_in_any_place_is_read_or_refused(path: str, value: str) -> None:
    read_file(GOOD, f"{path}={value}")

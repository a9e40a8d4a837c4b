"""`--set path=value`: what it changes, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.config import load_cluster
from dtctl.config.cluster import Cluster
from dtctl.errors import ConfigError

TEXT = """\
name: digits
hosts:
  a: 10.0.0.1
  b.lan: {gpus: 1}
jobs:
  ps: {hosts: a, port: 3000}
  worker: {hosts: [a, b.lan]}
trainer:
  command: [python, train.py]
  args: {batch_size: 128}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(TEXT)
    return path


def load(file: Path, *overrides: str) -> Cluster:
    return load_cluster(file, overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "read", "expected"),
    [
        (["name=other"], lambda found: found.name, "other"),
        (["name=x", "name=y"], lambda found: found.name, "y"),
        (
            ["trainer.args.train_steps=100", "trainer.args.lr=1e-4", "trainer.args.sync=true"],
            lambda found: found.jobs["worker"].launch.args,
            ("--batch_size=128", "--train_steps=100", "--lr=1e-4", "--sync"),
        ),
        (["dirs.work=/tmp/x"], lambda found: found.dirs, {"work": "/tmp/x"}),
        (["trainer.env.A= two words "], lambda found: found.jobs["ps"].launch.env, {"A": "two words"}),
        (["jobs.worker.hosts=[a,a]"], lambda found: found.jobs["worker"].hosts, ("a", "a")),
        (["hosts.b.lan={gpus: 4, ssh: x}"], lambda found: found.hosts["b.lan"].gpus, 4),
        (["hosts.b.lan.gpus=2"], lambda found: found.hosts["b.lan"].gpus, 2),
        (["jobs.ps.port="], lambda found: found.jobs["ps"].ports, (2222,)),
        (["jobs.ps.port=null"], lambda found: found.jobs["ps"].ports, (2222,)),
    ],
)
def test_override_takes_the_place_of_a_value(
    file: Path, overrides: list[str], read: Callable[[Cluster], object], expected: object
) -> None:
    assert read(load(file, *overrides)) == expected


def test_a_mistake_of_the_file_is_gone_once_it_is_overridden(file: Path) -> None:
    file.write_text(TEXT.replace("port: 3000", "port: many"))
    assert load(file, "jobs.ps.port=3000").jobs["ps"].ports == (3000,)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dirs.wrok=/x", "--set dirs.wrok=/x: dirs.wrok is not a key here"),
        ("jobs.ps.port=many", "--set jobs.ps.port=many: jobs.ps.port is 'many', expected a whole number"),
        ("jobs.ps.hosts=[a,z]", "--set jobs.ps.hosts=[a,z]: jobs.ps.hosts[1] names z, which is not in hosts"),
        ("hosts.a.gpus=2", "--set hosts.a.gpus=2: hosts.a is '10.0.0.1', so gpus cannot be set in it"),
        ("trainer.command.0=x", "--set trainer.command.0=x: trainer.command is a list, so 0 cannot be set in it"),
        ("name", "--set name: 'name' is not an override"),
        ("=x", "--set =x: '=x' is not an override"),
        ("a..b=x", "--set a..b=x: 'a..b=x' is not an override"),
        ("name=[", "--set name=[: this is not YAML: a value is missing here"),
        ("name={a: 1, a: 2}", "--set name={a: 1, a: 2}: a is here a second time; the first is"),
        ("name=x\n---\ny", "--set name=x --- y: a second document begins here; a cluster file holds one"),
        ("grace=" + "x" * 99, f"--set grace={'x' * 51}...: grace is '{'x' * 57}...', expected a duration such as"),
    ],
)  # fmt: skip
def test_a_mistake_of_an_override_has_the_override_as_its_place(file: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, override)
    problem = caught.value.problems[0]
    assert f"{problem.place}: {problem.summary}".startswith(message)


def test_mistakes_of_overrides_and_of_the_file_are_reported_together(file: Path) -> None:
    file.write_text(TEXT.replace("gpus: 1", "gpus: two"))
    with pytest.raises(ConfigError) as caught:
        load(file, "grace=soon", "what")
    assert [problem.summary.split(" ")[0] for problem in caught.value.problems] == [
        "grace",
        "'what'",
        "hosts.b.lan.gpus",
    ]

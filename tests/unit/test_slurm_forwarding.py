"""Commands about a file that names a login node: what is carried out there, and with which words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import dtctl
from dtctl.cli.forwarding import AT_LOGIN
from dtctl.config.load import load_cluster
from dtctl.rooms.slurm import login
from tests.unit.conftest import Typed

CLUSTER = """\
name: digits
on: slurm
slurm: {login: front}
hosts: {gpu-1: , front: {ssh: 10.0.0.9}}
jobs: {worker: {hosts: [gpu-1]}}
trainer: {command: [python, train.py]}
"""

Carried = list[dict[str, Any]]


@pytest.fixture
def carried(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> Carried:
    """What is carried out on the login node, which answers with exit code 7."""
    Path("cluster.yaml").write_text(CLUSTER)
    seen: Carried = []

    def carry_out(cluster: Any, host: Any, words: Sequence[str], bundle: Any, *_: Any, removes: bool) -> int:
        seen.append({"host": host.name, "words": [*words], "bundle": bundle, "removes": removes})
        return 7

    monkeypatch.setattr(login, "carry_out", carry_out)
    return seen


@pytest.mark.parametrize(
    ("typed_words", "words"),
    [
        ("status", ["status"]),
        ("status -c cluster.yaml -u ada -F /dev/null -o json", ["status", "--output=json"]),
        (
            "logs worker:0 worker -f -n 5 -x worker:1",
            ["logs", "--follow", "--tail=5", "--exclude=worker:1", "worker:0", "worker"],
        ),
        ("stop worker:0 --grace 5s", ["stop", "--grace=5s", "worker:0"]),
        ("wait --run digits-1 --timeout 2m", ["wait", "--timeout=2m", "--run=digits-1"]),
        ("checkpoints ls", ["checkpoints", "ls"]),
    ],
)
def test_the_words_are_those_that_were_typed(
    typed_words: str, words: list[str], typed: Typed, carried: Carried
) -> None:
    assert typed(typed_words)[0] == 7
    assert [(one["host"], one["words"][0], sorted(one["words"])) for one in carried] == [
        ("front", words[0], sorted(words))
    ]


def test_up_brings_its_code(typed: Typed, carried: Carried) -> None:
    assert typed("up --set trainer.args.steps=5 cluster.yaml")[0] == 7
    (one,) = carried
    assert one["words"] == ["up", "--set=trainer.args.steps=5"]
    assert "train.py" in [file.path for file in one["bundle"].manifest.files]


def test_values_of_the_env_file_are_sent_and_not_the_file(typed: Typed, carried: Carried) -> None:
    Path("own.env").write_text("TOKEN=very-secret\n")
    Path("cluster.yaml").write_text(CLUSTER.replace("{command", "{env_file: own.env, secrets: [TOKEN], command"))
    cluster = load_cluster(Path("cluster.yaml"))
    assert login.values_of(cluster)["TOKEN"] == "very-secret"
    there = load_cluster(Path("cluster.yaml"), overrides=login.overrides(cluster)[1::2], needs_files=False)
    assert (there.trainer.env_file, there.trainer.code.name) == (None, "code")


def test_down_removes_the_project(typed: Typed, carried: Carried) -> None:
    for words in ("down --yes", "stop"):
        typed(words)
    assert [one["removes"] for one in carried] == [True, False]


@pytest.mark.parametrize("words", ["top", "exec worker:0 -- ls", "checkpoints pull"])
def test_what_needs_this_machine_is_refused(words: str, typed: Typed, carried: Carried) -> None:
    code, _, said = typed(words)
    assert (code, carried) == (2, [])
    assert "is not carried out on the login node" in said


@pytest.mark.parametrize("words", ["plan", "validate", "up --dry-run"])
def test_what_needs_no_host_is_done_here(words: str, typed: Typed, carried: Carried) -> None:
    assert (typed(words)[0], carried) == (0, [])


def test_on_the_login_node_itself_nothing_is_carried_elsewhere(
    typed: Typed, carried: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AT_LOGIN, "1")
    assert (typed("status")[0] != 7, carried) == (True, [])


def test_a_file_that_says_ssh_is_not_submitted_by_an_option_alone(typed: Typed, carried: Carried) -> None:
    Path("cluster.yaml").write_text(CLUSTER.replace("on: slurm", "on: ssh"))
    code, _, said = typed("up --on slurm")
    assert (code, carried) == (2, [])
    assert "the file says where its runs are" in said


def test_python_refuses_a_login_node(typed: Typed, carried: Carried) -> None:
    with pytest.raises(dtctl.errors.UsageError, match="not carried out on the login node"):
        dtctl.up(dtctl.load("cluster.yaml"))


def test_the_project_has_the_same_name_for_each_command_about_a_file(typed: Typed, carried: Carried) -> None:
    name = login.project_of(dtctl.load("cluster.yaml").checked.cluster)
    assert name == login.project_of(dtctl.load(os.path.abspath("cluster.yaml")).checked.cluster)  # noqa: PTH100
    assert name.startswith("digits-")

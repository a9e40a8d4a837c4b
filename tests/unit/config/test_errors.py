"""Mistakes in cluster files: each earns a message with its place, and all of them are told at once."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from dtctl.config import load_cluster
from dtctl.errors import ConfigError, ExitCode, Problem
from tests.unit.config import mistakes
from tests.unit.config.mistakes import GOOD, swap, top, trainer
from tests.unit.privileges import public_directory, without_privileges

FILE = Path("cluster.yaml")


@pytest.fixture(autouse=True)
def _in_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def problems(text: str | None = None, file: Path = FILE) -> list[Problem]:
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_cluster(file)
    assert caught.value.exit_code == ExitCode.CONFIG
    return list(caught.value.problems)


def messages(text: str | None = None, file: Path = FILE) -> list[str]:
    return [f"{problem.place}: {problem.summary}" for problem in problems(text, file)]


def test_the_good_file_is_good() -> None:
    FILE.write_text(GOOD)
    assert load_cluster(FILE).name == "digits"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        *mistakes.KEYS,
        *mistakes.KINDS,
        *mistakes.HOSTS,
        *mistakes.JOBS,
        *mistakes.TRAINER,
        *mistakes.ORDER,
        *mistakes.RECOVERY,
        *mistakes.SPARES,
        *mistakes.COORDINATOR,
    ],
    ids=lambda text: text[:60] if text[0].isdigit() else "",
)
def test_a_mistake_is_told_with_its_place_and_what_was_expected(message: str, text: str) -> None:
    assert [found.replace(str(Path.cwd()), "HERE") for found in messages(text)] == [f"cluster.yaml:{message}"]


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        ("did you mean 'port'?", swap('"gpu-[1-4]"}', '"gpu-[1-4]", prot: 1}')),
        ("did you mean 'dir'?", top("checkpoint: {dirs: /x}")),
        ("it is a key of ssh and of hosts.NAME.ssh and of jobs.NAME and of coordinator", swap("gpus: 2", "port: 22")),
        ("keys here: dir", top("checkpoint: {zebra: /x}")),
        ("did you mean 'lead'?", top("success: led")),
        ("did you mean 'async-ps'?", top("strategy: async")),
        ("did you mean 'worker'?", swap("hosts: ps-a", "hosts: ps-a, depends_on: [workre]")),
        ("write jobs.worker.depends_on: []", swap("hosts: ps-a", "hosts: ps-a, depends_on: worker")),
        ("a spare has no task; take it out of spares, or out of the job", top("spares: gpu-1")),
        (
            "change jobs.worker.port or coordinator.port, or leave one of them out",
            swap('"gpu-[1-4]"}', '"gpu-[1-4]", port: 2221}'),
        ),
        ("did you mean 'ps-a'?", swap("hosts: ps-a", "hosts: ps-b")),
        ("hosts has gpu-[1-4],ps-a", swap("hosts: ps-a", "hosts: zebra")),
        ("did you mean 'ps_hosts'?", trainer("template: '{ps_hots}'")),
        ('put it in quotes if you mean the text: "true"', swap("10.0.0.10", "true")),
        ('write "" for an empty one', trainer("env: {A: }")),
        ("write 1-4", swap("  gpu-[1-4]:", "  gpu-[4-1]:")),
        ("close the quotation", swap("[python, train.py]", "python 'a")),
    ],
)
def test_a_hint_names_the_next_step(hint: str, text: str) -> None:
    assert [problem.hint for problem in problems(text)] == [hint]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    text = """\
name: digits
nmae: x
hosts:
  ps-a: {gpus: two}
  gpu-[1-2]: {ssh: "10.0.0.[1-3]"}
jobs:
  ps: {hosts: [ps-a, ps-b], prot: 1}
  ps: {hosts: ps-a}
  worker: {hosts: gpu-1}
trainer:
  code: nowhere
  env: {KEY: 1}
  secrets: [KEY]
"""
    assert [message.removeprefix("cluster.yaml:") for message in messages(text)] == [
        "2:1: nmae is not a key here",
        "4:16: hosts.ps-a.gpus is 'two', expected a whole number from 0 to 1024",
        "5:20: hosts.gpu-[1-2].ssh: 10.0.0.[1-3] makes 3 values, but gpu-[1-2] makes 2 hosts",
        "7:22: jobs.ps.hosts[1] names ps-b, which is not in hosts",
        "7:29: jobs.ps.prot is not a key here",
        "8:3: jobs.ps is here a second time; the first is at line 7, column 3",
        "10:1: trainer.command is missing, and jobs.ps has no command of its own",
        f"11:9: trainer.code is 'nowhere', but there is no directory {Path.cwd() / 'nowhere'}",
        "12:9: trainer.env.KEY stands in trainer.secrets too, expected in one of them",
    ]


def test_what_is_missing_is_told_in_one_go() -> None:
    assert messages("ssh: {}\n") == [
        "cluster.yaml:1:1: hosts is missing",
        "cluster.yaml:1:1: jobs is missing",
        "cluster.yaml:1:1: name is missing",
        "cluster.yaml:1:1: trainer is missing",
    ]


def test_what_is_empty_is_told_where_it_stands() -> None:
    assert messages("name:\nhosts: {}\njobs:\ntrainer: {}\n") == [
        "cluster.yaml:1:1: name is empty",
        "cluster.yaml:2:1: hosts is empty",
        "cluster.yaml:3:1: jobs is empty",
        "cluster.yaml:4:1: trainer is missing",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # The names of hosts cannot be known, so jobs are not blamed for them.
        (swap("  ps-a:", "  ps a:"), "3:3: hosts has the key 'ps a'"),
        (swap("  gpu-[1-4]:", "  gpu-[1-x]:"), "4:3: hosts: 'gpu-[1-x]'"),
        # A wrong command is still a command, and wrong hosts are still hosts.
        (swap("[python, train.py]", "[python, [x]]"), "9:21: trainer.command[1]"),
        (swap("hosts: ps-a", "hosts: [ps-a, [x]]"), "6:22: jobs.ps.hosts[1]"),
        (swap("digits", "a b"), "1:7: name"),
        # A job with a mistake is still a job: its field is known to templates.
        (swap("{hosts: ps-a}", "[]") + "  template: '{ps_hosts}'\n", "6:7: jobs.ps"),
        (
            swap(GOOD[GOOD.index("jobs:") : GOOD.index("trainer:")], "jobs: [x]\n") + "  template: '{ps_hosts}'\n",
            "5:7: jobs is",
        ),
        # A directory with a mistake is still set.
        (top("dirs: {data: [x]}") + "  template: '{data_dir}'\n", "2:14: dirs.data"),
    ],
)
def test_a_mistake_is_not_told_again_as_another(text: str, message: str) -> None:
    (found,) = messages(text)
    assert found.startswith(f"cluster.yaml:{message}")


def test_one_machine_under_two_names_has_one_listener_on_a_port() -> None:
    hosts = "  one: {transport: local}\n  two: {transport: local}\n"
    text = f"name: n\nhosts:\n{hosts}jobs:\n  ps: {{hosts: one, port: 22}}\n  w: {{hosts: two, port: 22}}\n"
    assert messages(text + "trainer: {command: x}\n") == [
        "cluster.yaml:7:25: jobs.w: ps:0 and w:0 would both listen on port 22 of two, which is the same machine as one"
    ]


def test_all_workers_cannot_succeed_where_there_is_none() -> None:
    text = swap("worker:", "trainee:") + "success: all-workers\n"
    assert messages(text) == ["cluster.yaml:10:10: success is all-workers, but there is no job 'worker'"]


def test_a_secret_must_not_stand_in_the_env_of_a_job_or_a_host() -> None:
    text = swap("hosts: ps-a", "hosts: ps-a, env: {KEY: x}").replace("10.0.0.10", "{env: {KEY: x}}")
    assert messages(text + "  secrets: [KEY]\n") == [
        "cluster.yaml:3:16: hosts.ps-a.env.KEY stands in trainer.secrets too, expected in one of them",
        "cluster.yaml:6:27: jobs.ps.env.KEY stands in trainer.secrets too, expected in one of them",
    ]


ODD_VALUES = (
    "null",
    "5",
    "-1.5",
    "true",
    ".nan",
    "text",
    "''",
    '"\\0"',
    "'[3-1]'",
    "[]",
    "[a, [b]]",
    "{}",
    "{a: {b: 1}}",
)


@pytest.mark.parametrize("value", ODD_VALUES)
def test_no_value_in_any_place_is_more_than_a_mistake(value: str) -> None:
    """The loader gives a cluster or a ConfigError; anything else would be a bug of its own."""
    FILE.write_text(GOOD)
    paths = ["name", "ssh", "hosts", "jobs", "trainer", "hosts.ps-a", "hosts.gpu-[1-4].ssh", "jobs.ps", "jobs.ps.hosts"]
    paths += [f"trainer.{key}" for key in ("code", "command", "args", "args.x", "env", "env.X", "template", "secrets")]
    for path in (*paths, "dirs", "dirs.data", "recovery", "recovery.backoff", "success", "grace", "checkpoint"):
        with contextlib.suppress(ConfigError):
            load_cluster(FILE, overrides=[f"{path}={value}"])


EXPECTED = "expected a mapping with the keys name, hosts, jobs and trainer"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"cluster.yaml: the file is empty, {EXPECTED}"),
        ("# only this\n", f"cluster.yaml: the file is empty, {EXPECTED}"),
        ("- a\n", f"cluster.yaml:1:1: the file is a list, {EXPECTED}"),
        ("\nhello\n", f"cluster.yaml:2:1: the file is 'hello', {EXPECTED}"),
        ("a: 1\n---\nb: 1\n", "cluster.yaml:2:1: a second document begins here; a cluster file holds one"),
        ("hosts:\n\tps-a: x\n", "cluster.yaml:2:1: a tab where YAML takes spaces only"),
        ("{name", "cluster.yaml:1:1: this is not YAML: this mapping in {...} does not end"),
    ],
)
def test_a_file_that_is_no_mapping_is_told_apart(text: str, message: str) -> None:
    assert messages(text) == [message]


def test_a_file_that_is_not_utf_8_is_told_where() -> None:
    FILE.write_bytes("name: digits\n# für\n".encode("latin-1"))
    assert messages() == ["cluster.yaml:2:4: this is not UTF-8 text: byte 0xfc"]


def test_a_file_that_is_much_too_large_is_not_read_whole() -> None:
    with FILE.open("wb") as stream:
        stream.truncate(1_000_001)
    assert messages() == ["cluster.yaml: this is not a cluster file: it has more than 1000000 bytes"]


def test_a_missing_file_is_told() -> None:
    assert messages() == ["cluster.yaml: there is no such file"]


def test_a_directory_is_told_and_the_file_inside_it_is_named() -> None:
    Path("demo").mkdir()
    assert messages(file=Path("demo")) == ["demo: this is a directory, expected a file"]
    Path("demo/cluster.yaml").write_text(GOOD)
    assert problems(file=Path("demo"))[0].hint == "name the file: demo/cluster.yaml"


def test_a_file_that_cannot_be_opened_is_told() -> None:
    FILE.symlink_to(FILE)
    (message,) = messages()
    assert message.startswith("cluster.yaml: the file cannot be read: ")


def test_a_socket_is_told() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("cluster.yaml")
        (message,) = messages()
    assert message.startswith("cluster.yaml: the file cannot be read: ")


def test_a_file_without_permission_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with public_directory() as directory:
        monkeypatch.chdir(directory)
        FILE.write_text(GOOD)
        FILE.chmod(0)
        with without_privileges():
            assert messages() == ["cluster.yaml: you may not read this file"]
        monkeypatch.undo()


def test_a_file_elsewhere_is_named_as_it_was_given(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    os.chdir(here)
    (tmp_path / "c.yaml").write_text("")
    assert problems(file=Path("../c.yaml"))[0].place.file == "../c.yaml"
    assert problems(file=tmp_path / "here" / "x.yaml")[0].place.file == "x.yaml"

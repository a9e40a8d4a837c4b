"""Mistakes in cluster files: each earns a message with its place and a hint, and all are reported at once."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.config import load_cluster
from dtctl.errors import ConfigError, ExitCode, Problem
from dtctl.render.errors import show_error
from tests.unit.config.mistakes import GOOD, MISTAKES, Mistake, swap, top
from tests.unit.privileges import public_directory, without_privileges

FILE = Path("cluster.yaml")


@pytest.fixture(autouse=True)
def _in_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(content: str | bytes | None = None, file: Path = FILE) -> ConfigError:
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as caught:
        load_cluster(file)
    assert caught.value.exit_code == ExitCode.CONFIG
    return caught.value


def problems(content: str | bytes | None = None, file: Path = FILE) -> list[Problem]:
    return list(refusal(content, file).problems)


def messages(text: str) -> list[str]:
    return [f"{problem.place}: {problem.summary}" for problem in problems(text)]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name[:60])
def test_mistake_is_shown_with_place_and_hint(mistake: Mistake, capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(mistake.text)
    found = []
    for problem in error.problems:
        found.append(f"{problem.place}: {problem.summary}".removeprefix("cluster.yaml:").strip())
        found += [f"    hint: {problem.hint}"] if problem.hint else []
    assert "\n".join(found).replace(str(Path.cwd()), "HERE") == mistake.messages
    show_error(error)
    shown = capsys.readouterr().err
    assert all(line[:60] in shown for line in found)
    assert shown.splitlines()[-1].startswith("error: ")


def test_each_problem_has_a_hint() -> None:
    """Those of the groups that were written for it."""
    groups = ("not yaml", "more keys", "more kinds", "sense")
    tables = [mistake for mistake in MISTAKES if mistake.group in groups]
    assert len(tables) >= 80
    for mistake in tables:
        summaries = [line for line in mistake.messages.split("\n") if not line.startswith("    hint: ")]
        assert mistake.messages.count("\n    hint: ") == len(summaries), mistake.name


START = "dtctl init"
UNPRINTABLE: dict[str, tuple[str | bytes, str, str]] = {
    "empty file": ("", ": the file is empty, expected a mapping", START),
    "no end of line": ("{name", ":1:1: this is not YAML: this mapping in {...} does not end", "close it with }"),
    "not UTF-8": (GOOD.encode() + b"# gr\xfc\xdfe\n", ":10:5: this is not UTF-8 text: byte 0xfc", "iconv -f latin1"),
    "UTF-16": (GOOD.encode("utf-16"), ":1:1: this is not UTF-8 text: byte 0xff", "iconv -f latin1"),
    "NUL": (swap("digits", "di\0gits"), ":1:9: this is not text: it holds the character U+0000", "take it out"),
    "control": (swap("digits", "di\agits"), ":1:9: this is not text: it holds the character U+0007", "take it out"),
    "deep": ("name: " + "[" * 5000 + "\n", ":1:56: brackets or mappings are nested too deeply", START),
    "huge": (GOOD + "# x\n" * 300_000, ": this is not a cluster file: it has more than 1000000 bytes", START),
    "no-break space": (
        swap("  ps-a", "\xa0 ps-a"),
        ":3:1: the character U+00A0 looks like a blank, and is none",
        "type a blank in its place",
    ),
    "windows line ends": (
        swap('worker: {hosts: "gpu-[1-4]"}', 'workr: {hosts: "gpu-[1-4]", prot: 1}').replace("\n", "\r\n"),
        ":7:31: jobs.workr.prot is not a key here",
        "did you mean 'port'?",
    ),
}


@pytest.mark.parametrize(("content", "summary", "hint"), UNPRINTABLE.values(), ids=UNPRINTABLE)
def test_unprintable_mistake_is_reported(content: str | bytes, summary: str, hint: str) -> None:
    [problem] = problems(content)
    assert f"{problem.place}: {problem.summary}".startswith(f"cluster.yaml{summary}")
    assert problem.hint.startswith(hint)


def test_byte_order_mark_does_not_shift_places() -> None:
    assert messages("\ufeff" + swap("name:", "nmae:")) == [
        "cluster.yaml:1:1: name is missing",
        "cluster.yaml:1:1: nmae is not a key here",
    ]


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file() -> None:
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
        "12:9: trainer.env.KEY is in trainer.secrets too, expected in one of them",
    ]


def one_machine() -> str:
    hosts = "  one: {transport: local}\n  two: {transport: local}\n"
    jobs = "  ps: {hosts: one, port: 22}\n  w: {hosts: two, port: 22}\n"
    return f"name: n\nhosts:\n{hosts}jobs:\n{jobs}trainer: {{command: x}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ssh: {}\n", [f"1:1: {key} is missing" for key in ("hosts", "jobs", "name", "trainer")]),
        (
            "name:\nhosts: {}\njobs:\ntrainer: {}\n",
            ["1:1: name is empty", "2:1: hosts is empty", "3:1: jobs is empty", "4:1: trainer is missing"],
        ),
        (
            one_machine(),
            ["7:25: jobs.w: ps:0 and w:0 would both listen on port 22 of two, which is the same machine as one"],
        ),
        (
            swap("worker:", "trainee:") + "success: all-workers\n",
            ["10:10: success is all-workers, but there is no job 'worker'"],
        ),
        (
            swap("hosts: ps-a", "hosts: ps-a, env: {KEY: x}").replace("10.0.0.10", "{env: {KEY: x}}")
            + "  secrets: [KEY]\n",
            [
                f"{place}.env.KEY is in trainer.secrets too, expected in one of them"
                for place in ("3:16: hosts.ps-a", "6:27: jobs.ps")
            ],
        ),
    ],
    ids=["missing", "empty", "one machine", "no workers", "secrets"],
)
def test_several_places_of_a_mistake_are_reported(text: str, expected: list[str]) -> None:
    assert messages(text) == [f"cluster.yaml:{line}" for line in expected]


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
            re.sub(r"jobs:\n.*?trainer:", "jobs: [x]\ntrainer:", GOOD, flags=re.S) + "  template: '{ps_hosts}'\n",
            "5:7: jobs is",
        ),
        # A directory with a mistake is still set.
        (top("dirs: {data: [x]}") + "  template: '{data_dir}'\n", "2:14: dirs.data"),
    ],
)
def test_mistake_is_not_reported_again_as_another(text: str, message: str) -> None:
    (found,) = messages(text)
    assert found.startswith(f"cluster.yaml:{message}")


ODD_VALUES = [
    *("null", "5", "-1.5", "true", ".nan", "text", "''", '"\\0"', "'[3-1]'"),
    *("[]", "[a, [b]]", "{}", "{a: {b: 1}}"),
]


@pytest.mark.parametrize("value", ODD_VALUES)
def test_odd_value_in_any_place_is_at_most_a_mistake(value: str) -> None:
    """The loader gives a cluster or a ConfigError; anything else would be a bug of its own."""
    FILE.write_text(GOOD)
    paths = ["name", "ssh", "hosts", "jobs", "trainer", "hosts.ps-a", "hosts.gpu-[1-4].ssh", "jobs.ps", "jobs.ps.hosts"]
    paths += [f"trainer.{key}" for key in ("code", "command", "args", "args.x", "env", "env.X", "template", "secrets")]
    for path in (*paths, "dirs", "dirs.data", "recovery", "recovery.backoff", "success", "grace", "checkpoint"):
        with contextlib.suppress(ConfigError):
            load_cluster(FILE, overrides=[f"{path}={value}"])


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)


PATHS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "nothing": (lambda path: None, "there is no such file", START),
    "directory": (lambda path: path.mkdir(), "this is a directory, expected a file", "rename cluster.yaml"),
    "pipe": (lambda path: os.mkfifo(path), "the file cannot be read: it is a pipe without a writer", "ls -l"),
    "socket": (make_socket, "the file cannot be read: ", "ls -l"),
    "link to itself": (lambda path: path.symlink_to(path), "the file cannot be read: too many", "ls -l"),
    "link to nothing": (lambda path: path.symlink_to("gone"), "there is no such file", START),
    "device": (lambda path: path.symlink_to("/dev/zero"), "this is not a cluster file: it has more", START),
    "/dev/null": (lambda path: path.symlink_to("/dev/null"), "the file is empty, expected a mapping", START),
}


@pytest.mark.parametrize("made", PATHS)
def test_path_that_is_no_file_is_refused(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtctl.config.load.WRITER_S", 0.05)
    make, reason, hint = PATHS[made]
    make(FILE)
    [problem] = problems()
    assert str(problem.place) == "cluster.yaml"
    assert problem.summary.startswith(reason)
    assert problem.hint.startswith(hint)


def test_file_inside_a_directory_is_suggested() -> None:
    Path("demo").mkdir()
    Path("demo/cluster.yaml").write_text(GOOD)
    assert problems(file=Path("demo"))[0].hint == "name the file: demo/cluster.yaml"


def test_pipe_with_a_writer_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, GOOD.encode())
    os.close(writing)
    try:
        assert load_cluster(Path(f"/dev/fd/{reading}")).name == "digits"
    finally:
        os.close(reading)


def test_file_without_permission_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with public_directory() as directory:
        monkeypatch.chdir(directory)
        FILE.write_text(GOOD)
        FILE.chmod(0)
        with without_privileges():
            assert problems()[0].summary == "you may not read this file"
        monkeypatch.undo()


def test_file_elsewhere_is_named_as_it_was_given(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    os.chdir(here)
    (tmp_path / "c.yaml").write_text("")
    assert problems(file=Path("../c.yaml"))[0].place.file == "../c.yaml"
    assert problems(file=tmp_path / "here" / "x.yaml")[0].place.file == "x.yaml"

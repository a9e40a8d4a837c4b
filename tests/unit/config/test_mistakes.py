"""Mistakes in cluster files: each earns a message with its place and a hint, and all are reported at once."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.config.load import load_cluster
from dtctl.errors import ConfigError, ExitCode, Problem
from dtctl.render.errors import show_error
from tests.unit.config.mistakes import GOOD, MISTAKES, Mistake, swap
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
    text = "\n".join(found).replace(str(Path.cwd()), "HERE")
    assert text == mistake.messages or re.fullmatch(mistake.pattern, text)
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
    "UTF-16": (GOOD.encode("utf-16"), ":1:1: this is not UTF-8 text: byte 0xff", "iconv -f utf-16 "),
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

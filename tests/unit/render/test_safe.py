"""Text from outside, made safe: what is kept, what is escaped, and that nothing unsafe remains."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.render.terminal.rich_console import SafeConsole
from dtctl.render.terminal.safe import lines_of, log_lines, one_line
from tests.fuzz import cases
from tests.unit.agent.poisons import COLOR, POISONS, left_in
from tests.unit.test_structure import MODULES, PACKAGE

NASTY = st.lists(
    st.sampled_from([*POISONS.values(), "\x1b[31m", "\x1b[0m", "\x1b", "[", "31", "m", "\r", "\n", "ü", "text", "\x9b"])
    | st.text(max_size=4),
    max_size=12,
).map("".join)
BYTES = st.one_of(st.binary(max_size=60), NASTY.map(lambda text: text.encode(errors="surrogatepass")))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("tab\tstays, ü and 訓練 too", "tab\tstays, ü and 訓練 too"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("two\nlines\r", r"two\nlines\r"),
        ("\x9b2J", r"\x9b2J"),
        ("\u202eabc", r"\u202eabc"),
        ("\udcff", r"\udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("\xad\u3164", r"\xad\u3164"),
        ("x\ufe0f", r"x\ufe0f"),
        ("1\ufe0f\u20e3 \u0645\u06cc\u200c\u062e", "1\ufe0f\u20e3 \u0645\u06cc\u200c\u062e"),
        ("\u2764\ufe0f\u200d\U0001f525", "\u2764\ufe0f\u200d\U0001f525"),
        ("\u2764\ufe0f\ufe0f", "\u2764\ufe0f\\ufe0f"),
        ("family \U0001f469\u200d\U0001f467 \u2764\ufe0f", "family \U0001f469\u200d\U0001f467 \u2764\ufe0f"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert one_line(text) == shown


@pytest.mark.parametrize(
    ("data", "colored", "plain"),
    [
        (b"\x1b[1;31mred\x1b[0m\n", "\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b[31mnever ends\n", "\x1b[31mnever ends\x1b[0m", "never ends"),
        (b"\x1b[38:2::1:2:3mtrue\x1b[m colour\n", "\x1b[38:2::1:2:3mtrue\x1b[m colour\x1b[0m", "true colour"),
        (b"\x1b[8mhidden\x1b[0m\n", "\\x1b[8mhidden\x1b[0m", "hidden"),
        (b"\x1b[1;08;4mhidden\n", "\\x1b[1;08;4mhidden", "hidden"),
        (b"\x1b[38;5;8;48;2;8;8;8mgrey\x1b[m\n", "\x1b[38;5;8;48;2;8;8;8mgrey\x1b[m", "grey"),
        (b"\x1b[38;5;8;8mhidden\n", "\\x1b[38;5;8;8mhidden", "hidden"),
        (b"\x1b[>4;2m\n", r"\x1b[>4;2m", r"\x1b[>4;2m"),
        (b"\x1b[2J\x1b[31mx\n", "\\x1b[2J\x1b[31mx\x1b[0m", r"\x1b[2Jx"),
        (b"\x1b\x1b[1m[31mjoined\n", "\\x1b\x1b[1m[31mjoined\x1b[0m", r"\x1b[31mjoined"),
        (b"\x1b[" + b"1;" * 40 + b"m\n", "\\x1b[" + "1;" * 40 + "m", "\\x1b[" + "1;" * 40 + "m"),
        (b"\xc2\x9b31m \x9b31m\n", "\\x9b31m \ufffd31m", "\\x9b31m \ufffd31m"),
        (b"\xc0\x9b\xe0\x80\x9b overlong\n", "\ufffd\ufffd\ufffd\ufffd\ufffd overlong", "\ufffd" * 5 + " overlong"),
    ],
)
def test_log_keeps_only_colours_which_end_with_their_line(data: bytes, colored: str, plain: str) -> None:
    assert log_lines(data, color=True) == [colored]
    assert log_lines(data, color=False) == [plain]


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_no_poison_is_left(poison: str) -> None:
    assert not left_in(one_line(poison))
    assert "\\" in one_line(poison)
    data = f"before {poison} after\n".encode(errors="surrogatepass")
    for color in (True, False):
        assert not left_in("\n".join(log_lines(data, color=color)))


BLOCK = 0x400


def test_no_character_without_a_shape_passes_in_any_place() -> None:
    every = [chr(code) for code in range(0x110000)]
    for around in ("a{}b", "\u2764{} "):
        for start in range(0, len(every), BLOCK):
            block = every[start : start + BLOCK]
            assert not left_in(one_line("".join(map(around.format, block)))), f"from {hex(start)} on"
    assert not [hex(ord(one)) for one in every[:0x3100] if left_in(one_line(one))]


@cases
@given(st.text() | NASTY)
def test_any_text_is_safe_and_is_not_marked_twice(text: str) -> None:
    safe = one_line(text)
    assert not left_in(safe)
    assert "\n" not in safe
    assert not COLOR.search(safe)
    assert one_line(safe) == safe
    assert not left_in("\n".join(lines_of(text)))


@cases
@given(BYTES, st.booleans())
def test_any_log_is_safe_and_its_colours_end_with_their_line(data: bytes, color: bool) -> None:
    for line in log_lines(data, color=color):
        assert not left_in(line)
        assert "\n" not in line
        codes = COLOR.findall(line)
        assert not codes or (color and codes[-1] in ("\x1b[0m", "\x1b[m"))
        assert log_lines(f"{line}\n".encode(), color=color) == [line]


@cases
@given(BYTES)
def test_the_fast_path_for_harmless_lines_shows_the_same(data: bytes) -> None:
    """A carriage return before the last line end disables the fast path for all of it."""
    lines = log_lines(data, color=True)
    assert log_lines(data + b"\n\r\n", color=True)[: len(lines)] == lines


@pytest.mark.parametrize(
    "piece", [b"\x1b[", b"\x1b[31m", b"\x1b[1;", b"1", b"\xc2\x9b", b"\x1b]0;", b"\r", b"\xe2\x80"]
)
def test_a_line_of_megabytes_takes_linear_time(piece: bytes) -> None:
    data = b"\x1b[" + piece * (3_000_000 // len(piece))
    begun = time.process_time()
    assert len(log_lines(data, color=True)) == 1
    assert time.process_time() - begun < 10


ELSEWHERE = ("agent/", "trainer.py", "rooms/slurm/holder.py", "rooms/slurm/job.py", "rooms/kubectl/holder.py")
"""Modules that run on hosts, whose output comes through a transport, or is a log of Slurm or Kubernetes."""
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
WRITERS = {"print", "echo", "secho", "confirm", "prompt", "StreamHandler"}


def writes_in(path: Path) -> set[str]:
    """Names through which the module could reach a screen."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in STREAMS and ast.unparse(node.value) == "sys":
            found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and node.module == "sys":
            found |= {alias.name for alias in node.names} & STREAMS
        elif isinstance(node, ast.Call):
            called, _, name = ast.unparse(node.func).rpartition(".")
            if name in WRITERS and called in ("", "typer", "click", "logging", "builtins"):
                found.add(ast.unparse(node.func))
    return found


def test_only_the_console_touches_the_streams_and_the_line_that_stays_below() -> None:
    paths = [path for path in MODULES.values() if not str(path.relative_to(PACKAGE)).startswith(ELSEWHERE)]
    writers = {str(path.relative_to(PACKAGE)): writes_in(path) for path in paths if writes_in(path)}
    assert set(writers) == {"render/terminal/console.py", "render/terminal/moving.py"}, writers


def test_only_the_safe_console_makes_text_of_rich() -> None:
    makers = {
        str(path.relative_to(PACKAGE))
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[0] in ("Text", "Console", "TextColumn")
    }
    assert makers == {"render/terminal/rich_console.py"}


def test_text_that_counts_as_safe_comes_from_few_places() -> None:
    users = {str(path.relative_to(PACKAGE)) for path in MODULES.values() if "console.put(" in path.read_text()}
    assert users == {
        *("render/logs.py", "render/machine/document.py", "rooms/metrics/screen.py", "render/awaiting.py"),
        "rooms/pages/report_page/__init__.py",
        "cli/completion.py",  # words that it has checked
    }
    users = {str(path.relative_to(PACKAGE)) for path in MODULES.values() if "console.pass_on(" in path.read_text()}
    assert users == {"render/logs.py", "render/awaiting.py"}


CLUSTER = """\
name: digits
hosts:
  a: {address: 127.0.0.1}
jobs:
  worker: {hosts: [a]}
trainer:
  command: [python, train.py, "größer \\u202e \\e]0;pwned\\a"]
  setup: "echo ü\\n\\e[2J"
  env: {MARK: "–\\u009b2J"}
"""
POOR = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"LC_ALL": "POSIX"},
]


def known_to(project: Path, **env: str) -> dict[str, str]:
    """The environment of a user whose home is not the project."""
    return {"PATH": os.environ["PATH"], "HOME": str(project.parent), "PYTHONPATH": str(PACKAGE.parent), **env}


def dtctl(*args: str | bytes, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "dtctl", *args]
    return subprocess.run(
        argv, cwd=cwd, env=known_to(cwd, **env), capture_output=True, stdin=subprocess.DEVNULL, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    (made / "train.py").touch()
    return made


@pytest.mark.parametrize("env", POOR, ids=str)
@pytest.mark.parametrize("args", [["plan"], ["--color", "always", "plan"]], ids=" ".join)
def test_a_character_that_a_stream_cannot_show_is_escaped(args: list[str], env: dict[str, str], project: Path) -> None:
    done = dtctl(*args, cwd=project, **env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not left_in(done.stdout.decode("latin-1" if "latin-1" in env.values() else "utf-8"))
    assert rb"\u202e" in done.stdout


@pytest.mark.parametrize("env", POOR, ids=str)
@pytest.mark.parametrize(
    "args", [[b"n\xff\xc3\xbc"], [b"--n\xff=\xc3\xbc"], [b"logs", b"w\xff\xe2\x80\xae:0"]], ids=str
)
def test_a_command_line_that_cannot_be_shown_is_a_usage_error(
    args: list[bytes], env: dict[str, str], project: Path
) -> None:
    done = dtctl(*args, cwd=project, **env)
    assert done.returncode == 2, done
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("args", [["schema"], ["plan"], ["plan", "-o", "json"], ["--version"]], ids=" ".join)
def test_a_reader_that_goes_away_ends_the_command_quietly(args: list[str], project: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "dtctl", *args]
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            argv, cwd=project, env=known_to(project), stdout=gone, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_stream_that_was_closed_at_the_start_is_ignored(closed: str, project: Path) -> None:
    script = f'exec "{sys.executable}" -m dtctl plan {closed}>&-'
    done = subprocess.run(["sh", "-c", script], cwd=project, env=known_to(project), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


COMMAND = "dtctl exec @gpu-8 -- /usr/bin/python3 -m pip install"


@pytest.mark.parametrize(
    ("words", "label", "shown"),
    [
        ("gpu-[1-8]: 64 cores, or more", "  cpus  ", "  cpus  gpu-[1-8]: 64\n        cores, or more\n"),
        ("  a hint that is longer than it fits", "", "  a hint that is longer\n  than it fits\n"),
        ("/a/path/that/is/longer/than/the/terminal", "", "/a/path/that/is/longer/than/the/terminal\n"),
        (f"  {COMMAND}    brings what is missing", "", f"  {COMMAND}\n      brings what is\n      missing\n"),
    ],
    ids=["below the first word", "below its own indentation", "a long word is left to the terminal", "a command"],
)
def test_a_terminals_lines_end_between_words(words: str, label: str, shown: str) -> None:
    written = io.StringIO()
    options = {"file": written, "width": 24, "soft_wrap": True, "highlight": False}
    SafeConsole(lambda **_: None, force_terminal=True, color_system=None, **options).prose(words, label=label)
    assert written.getvalue() == shown
    written.seek(0)
    written.truncate()
    SafeConsole(lambda **_: None, force_terminal=False, **options).prose(words, label=label)
    assert written.getvalue() == f"{label}{words}\n", "only a terminal has a width"

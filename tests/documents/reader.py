"""A reader with a shell who types a page on two hosts over SSH, and compares the screens."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.documents.blocks import Typed, Written, blocks, differences
from tests.documents.typing_rules import ANSWERS, CTRL_C, HAS_ENDED, HOSTS, NOT_TYPED, PATIENCE
from tests.hosts.fleet import Fleet

_PATIENCE_S = 600.0
CTRL_D = b"\x04" * 9
"""A question that nobody expects is not answered, and its command ends."""


@dataclass(frozen=True)
class Output:
    """One command of the page, and what became of it."""

    typed: Typed
    code: int
    printed: tuple[str, ...]

    @property
    def wrong(self) -> list[str]:
        found = [f"exit code {self.code}"] if self.code not in (0, 130 if self.typed.command in CTRL_C else 0) else []
        if self.typed.screen is not None:
            found += differences(self.typed.screen, self.printed)
        return found


class Reader:
    """`python` is what the hosts' trainers use; `programs` all that the reader has beside the system's own."""

    def __init__(self, home: Path, fleet: Fleet, *, python: str, programs: Path | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._python = python
        path = f"{programs}:/usr/bin:/bin" if programs else f"{_programs(home)}:{os.environ['PATH']}"
        self.shell = Shell(home, {"PATH": path})
        _write_ssh_config(home, fleet)

    def reads(self, page: str, skip: Mapping[tuple[str, str], str] = NOT_TYPED) -> Iterator[Output]:
        """Each command as soon as it has ended."""
        for block in blocks(page):
            if isinstance(block, Written):
                if not block.is_whole:
                    continue
                (self.shell.directory / "cluster.yaml").write_text(self._own(block.text))
            elif (page, block.command) not in skip:
                yield self._types(block)

    def _types(self, typed: Typed) -> Output:
        command, awaited = typed.command, PATIENCE.get(typed.command, "")
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = ANSWERS.get(command, "")
            code, output = self.shell.run(command, answer=answer, until=CTRL_C.get(command, ""))
            output = output.replace("[y/N]: ", f"[y/N]: {answer}")  # as the terminal echoes it
            if re.search(awaited, output):
                return Output(typed, code, tuple(output.splitlines()))
            assert time.monotonic() < deadline, output
            assert not re.search(HAS_ENDED, output), output

    def _own(self, text: str) -> str:
        """A cluster.yaml of a page with the Python of here."""
        return text.replace("/opt/venv/bin/python ", f"{self._python} ")


def _programs(home: Path) -> Path:
    """A dtctl and a python of this environment."""
    directory = home / ".local" / "bin"
    directory.mkdir(parents=True)
    for name, arguments in {"dtctl": '-m dtctl "$@"', "python3": '"$@"'}.items():
        (directory / name).write_text(f"#!/bin/sh\nexec {sys.executable} {arguments}\n")
        (directory / name).chmod(0o755)
    return directory


def _write_ssh_config(home: Path, fleet: Fleet) -> None:
    config = home / ".ssh" / "config"
    config.parent.mkdir(mode=0o700)
    config.write_text(
        "".join(
            f"Host {address}\n  HostName {fleet[name].address}\n  Port {fleet[name].port}\n  User {fleet[name].user}\n"
            f"  IdentityFile {fleet.key}\n  IdentitiesOnly yes\n\n"
            for address, name in HOSTS.items()
        )
    )


_RUN = """\
source "$1"
cd "$(cat "$2")"
eval "$3"
code=$?
export -p > "$1"
pwd > "$2"
exit $code
"""


class Shell:
    """Commands have a terminal as their stdin, so that they may ask; what they print is caught."""

    def __init__(self, home: Path, variables: Mapping[str, str]) -> None:
        self.home = home
        self._variables, self._directory = home / ".shell-variables", home / ".shell-directory"
        self._variables.write_text("")
        self._directory.write_text(f"{home}\n")
        self._start = {"HOME": str(home), "LANG": "C.UTF-8", "COLUMNS": "100", **variables}

    @property
    def directory(self) -> Path:
        return Path(self._directory.read_text().strip())

    def run(self, command: str, *, answer: str = "", until: str = "", timeout_s: float = 900.0) -> tuple[int, str]:
        """Its exit code and all that it prints. `answer` is typed at once; at `until` somebody types Ctrl-C.

        Raises AssertionError when it does not end in time.
        """
        ours, theirs = pty.openpty()
        argv = ["bash", "-c", _RUN, "bash", str(self._variables), str(self._directory), command]
        with tempfile.TemporaryFile() as output:  # the end of a pipe waits for all who hold it
            process = subprocess.Popen(
                argv,
                env=self._start,
                cwd=self.home,
                stdin=theirs,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
            os.close(theirs)
            os.write(ours, answer.encode() + CTRL_D)
            deadline = time.monotonic() + timeout_s
            while process.poll() is None:
                if until and re.search(until, _text(output)):
                    until = ""
                    os.killpg(process.pid, signal.SIGINT)
                if time.monotonic() > deadline:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    raise AssertionError(f"{command} did not end in {timeout_s:.0f} s: {_text(output)}")
                time.sleep(0.05)
            os.close(ours)
            return process.returncode, _text(output)


def _text(output: IO[bytes]) -> str:
    return os.pread(output.fileno(), 1 << 24, 0).decode(errors="replace")

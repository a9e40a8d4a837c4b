"""A reader who types a page from its top to its end, on two hosts over SSH, and looks whether the screens agree."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.documents.blocks import Typed, Written, blocks
from tests.documents.screens import differences
from tests.documents.shell import Shell
from tests.documents.typing_rules import ANSWERS, CTRL_C, HAS_ENDED, HOSTS, NOT_TYPED, PATIENCE
from tests.hosts.fleet import Fleet

_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Seen:
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

    def reads(self, page: str, skip: Mapping[tuple[str, str], str] = NOT_TYPED) -> Iterator[Seen]:
        """Each command as soon as it has ended."""
        for block in blocks(page):
            if isinstance(block, Written):
                if not block.is_whole:
                    continue
                (self.shell.directory / "cluster.yaml").write_text(self._own(block.text))
            elif (page, block.command) not in skip:
                yield self._types(block)

    def _types(self, typed: Typed) -> Seen:
        command, awaited = typed.command, PATIENCE.get(typed.command, "")
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = ANSWERS.get(command, "")
            code, said = self.shell.run(command, answer=answer, until=CTRL_C.get(command, ""))
            said = said.replace("[y/N]: ", f"[y/N]: {answer}")  # as the terminal echoes it
            if re.search(awaited, said):
                return Seen(typed, code, tuple(said.splitlines()))
            assert time.monotonic() < deadline, said
            assert not re.search(HAS_ENDED, said), said

    def _own(self, text: str) -> str:
        """A cluster.yaml of a page with the Python of here."""
        return text.replace("/opt/venv/bin/python ", f"{self._python} ")


def _programs(home: Path) -> Path:
    """A dtctl and a python of this environment."""
    directory = home / ".local" / "bin"
    directory.mkdir(parents=True)
    for name, words in {"dtctl": '-m dtctl "$@"', "python3": '"$@"'}.items():
        (directory / name).write_text(f"#!/bin/sh\nexec {sys.executable} {words}\n")
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

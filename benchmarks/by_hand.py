"""Trainers that dtctl has started, started once more by hand: the same words, variables and directory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class Process:
    """A trainer as it was found at work, to be started like that again."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    directory: Path

    def start(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """In a session of its own, as in a terminal of its own."""
        return subprocess.Popen(
            self.argv,
            env=self.env,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def found_at_work(pid: int) -> Process:
    proc = Path("/proc", str(pid))
    argv = proc.joinpath("cmdline").read_text().rstrip("\0").split("\0")
    pairs = (line.partition("=") for line in proc.joinpath("environ").read_text().rstrip("\0").split("\0"))
    env = {name: value for name, _, value in pairs if not name.startswith("DTCTL_")}
    return Process(tuple(argv), env, Path(os.readlink(proc / "cwd")))

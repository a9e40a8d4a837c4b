"""A person's shell: remembers its directory and its variables from one command to the next."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

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
        """Its exit code and all that it prints. `answer` is typed at once; at `until` somebody types Ctrl-C."""
        ours, theirs = pty.openpty()
        words = ["bash", "-c", _RUN, "bash", str(self._variables), str(self._directory), command]
        process = subprocess.Popen(
            words,
            env=self._start,
            cwd=self.home,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(theirs)
        timer = threading.Timer(timeout_s, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            os.write(ours, answer.encode())
            return self._read(process, until)
        finally:
            timer.cancel()
            os.close(ours)

    def _read(self, process: subprocess.Popen[bytes], until: str) -> tuple[int, str]:
        said = ""
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                said += line.decode(errors="replace")
                if until and re.search(until, said):
                    until = ""
                    os.killpg(process.pid, signal.SIGINT)
        return process.returncode, said

"""A trainer whose log is written to meddle with the terminal of who reads it."""

from __future__ import annotations

import subprocess

from tests.desk import Desk
from tests.unit.agent.poisons import left_in

LOG = (
    b"\x1b[32mgreen\x1b[0m\n"
    b"\x1b]0;pwned\x07\x1b[2J\x1bc\n"
    b"\x1b]52;c;cm0gLXJm\x07\n"
    b"\xc2\x9b2J \x9b2J \xe2\x80\xae\n"
    b"the end\n"
)
TRAINER = f"import sys\nsys.stdout.buffer.write({LOG!r})\nsys.exit(3)\n"
CLUSTER = """\
name: {name}
{hosts}
jobs:
  worker: {{hosts: [node-1]}}
trainer:
  command: [python, stand_in.py]
recovery: {{max_restarts: 0}}
"""


def test_a_log_meddles_with_no_terminal_and_raw_gives_its_bytes(home: Desk) -> None:
    home.write_cluster(CLUSTER)
    (home.project / "stand_in.py").write_text(TRAINER)
    done = home.run("up", "--local", "-f", timeout_s=120)
    assert done.returncode == 1, done.stderr
    assert r"worker:0 | \x1b]0;pwned\x07\x1b[2J\x1bc" in done.stdout, done.stderr
    account = home.run("wait").stderr
    assert r"worker:0 | \x1b]52;c;cm0gLXJm\x07" in account
    for written in (done.stdout, done.stderr, account, home.dtctl("logs"), home.dtctl("--color", "always", "logs")):
        assert not left_in(written)
    assert "\x1b[32mgreen\x1b[0m\n" in home.dtctl("--color", "always", "logs")
    home.env["PYTHONIOENCODING"] = "ascii"
    assert r"\x9b2J \ufffd2J \u202e" in home.dtctl("logs")
    raw = subprocess.run(home.argv("logs", "--raw"), cwd=home.project, env=home.env, capture_output=True, check=True)
    assert raw.stdout == LOG

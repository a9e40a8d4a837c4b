"""How long one waits for the first word: dtctl and a hello-world of the same Typer."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import Cost, alternate, client_environment, heading, measure, show

ROUNDS = 15
FORBIDDEN = ("fabric", "paramiko", "tensorflow")
"""What commands that reach no host must not import."""

HELLO = """\
import typer

app = typer.Typer()


@app.command()
def hello(name: str = "world") -> None:
    print(f"hello {name}")


app()
"""
# As the script that pip installs.
DTCTL_SCRIPT = "import sys\nfrom dtctl.cli import main\nsys.exit(main())\n"

COMMANDS = {
    "--help": (["--help"], ["--help"]),
    "version": (["--version"], []),
    "completion": (["logs", "wor"], ["--na"]),
}
"""What dtctl is asked, and the nearest thing that hello-world can be asked."""


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    with tempfile.TemporaryDirectory() as directory:
        dtctl, hello = Path(directory, "dtctl"), Path(directory, "hello")
        dtctl.write_text(DTCTL_SCRIPT)
        hello.write_text(HELLO)
        heading("startup", f"medians of {rounds} alternating runs")
        for what, (asked, peer_asked) in COMMANDS.items():
            complete = what == "completion"
            ours, peers = _call(dtctl, asked, complete), _call(hello, peer_asked, complete)
            costs = alternate(rounds, {"dtctl": ours, "hello": peers})
            ours_s, peers_s = costs["dtctl"].wall_s, costs["hello"].wall_s
            value = f"{ours_s * 1000:.0f} ms, {peers_s * 1000:.0f} ms"
            show(f"dtctl {what}, hello-world's", value, ours_s / peers_s, "hello-world", "1.3")
            slow = _forbidden(dtctl, asked, complete)
            show("  of fabric, paramiko, tensorflow", f"imports {', '.join(slow) or 'none'}", goal="none")


def _call(script: Path, words: Sequence[str], complete: bool) -> functools.partial[Cost]:
    argv, environment = _invocation(script, words, complete)
    return functools.partial(measure, argv, env=environment)


def _invocation(script: Path, words: Sequence[str], complete: bool) -> tuple[list[str | Path], dict[str, str]]:
    """As a shell's completion calls a Typer program (typer/_completion_classes.py), or plainly."""
    environment = client_environment(script.parent)
    if not complete:
        return [sys.executable, script, *words], environment
    environment |= {
        f"_{script.name.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": f"{script.name} {' '.join(words)}",
        "COMP_CWORD": str(len(words)),
    }
    return [sys.executable, script], environment


def _forbidden(script: Path, words: Sequence[str], complete: bool) -> list[str]:
    argv, environment = _invocation(script, words, complete)
    traced = subprocess.run(
        [argv[0], "-X", "importtime", *argv[1:]], env=environment, capture_output=True, text=True, check=True
    )
    imported = set(re.findall(r"^import time:.*\|\s*([\w.]+)$", traced.stderr, re.MULTILINE))
    assert "typer" in imported, f"this was not the import of {os.fspath(script)}"
    return [name for name in FORBIDDEN if name in imported]

"""Runs experiments, some beside each other: `python -m tests.speed --results DIR --jobs 4 [PATTERN...]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hosts import private_network
from tests.speed import bare
from tests.speed.cases import CASES, Case
from tests.speed.judging import verdicts
from tests.speed.running import run as whole_run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.speed", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="parts of names of cases; !PART: not these; all by default")
    parser.add_argument("--results", type=Path, required=True, help="the directory for what is found")
    parser.add_argument("--jobs", type=int, default=3, help="how many run beside each other")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument("--program", default="", help="only cases of this one: stand-in, tensorflow, a template")
    parser.add_argument("--bare", action="store_true", help="without agents and sshd: tests/speed/bare.py")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    if options.one:
        _run(options.one, options.results, bare.run if options.bare else whole_run)
        return
    wanted = [part for part in options.patterns if not part.startswith("!")]
    not_these = [part[1:] for part in options.patterns if part.startswith("!")]
    names = [name for name in CASES if not wanted or any(part in name for part in wanted)]
    names = [name for name in names if not any(part in name for part in not_these)]
    names = [name for name in names if options.program in ("", CASES[name].program)]
    names = [name for name in names if options.again or not _file(options.results, name).exists()]
    running: dict[str, subprocess.Popen[bytes]] = {}
    while names or running:
        for name, process in [*running.items()]:
            if process.poll() is not None:
                del running[name]
        while names and len(running) < options.jobs:
            name = names.pop(0)
            words = [sys.executable, "-m", "tests.speed", "--results", str(options.results), "--one", name]
            words += ["--bare"] if options.bare else []
            running[name] = subprocess.Popen(words)
            time.sleep(2)
        time.sleep(0.5)


def _file(results: Path, name: str) -> Path:
    return results / f"{name.replace(', ', '-').replace(' ', '_').replace(':', '')}.json"


def _run(name: str, results: Path, run: Callable[[str, Case, Path], dict[str, Any]]) -> None:
    if reason := private_network.enter():
        sys.exit(reason)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="speed-", dir="/tmp") as directory:
        try:
            found = run(name, CASES[name], Path(directory))
        except BaseException:
            print(f"{name}: not run\n{traceback.format_exc()}", flush=True)
            raise
    _file(results, name).write_text(json.dumps(found))
    kinds = [(one.kind, one.tasks, one.hosts, one.expected) for one in verdicts(found, CASES[name])]
    print(
        f"{name}: expected {found['expected'] or 'nothing'} {' '.join(found['about'])}; found {kinds};"
        f" {found['rate'] or 0:.3g} steps/s, machine busy {found['machine_busy']};"
        f" took {time.monotonic() - began:.0f} s",
        flush=True,
    )


main()

"""What no single value can tell: keys that are missing, and keys that contradict each other."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dtctl.config.sections import ClusterFile
from dtctl.config.yaml.document import Findings
from dtctl.secret_files import rule_of_directory

_NEEDED = {
    "name": "name: digits",
    "hosts": "hosts: {gpu-1: 10.0.0.1}",
    "jobs": "jobs: {worker: {hosts: [gpu-1]}}",
}
_COMMAND = "trainer: {command: [python, train.py]}"

EXAMPLES = {key: f"write, for example, {text}" for key, text in {**_NEEDED, "trainer": _COMMAND}.items()}
"""Of what a file has to have."""


def check_presence(content: ClusterFile, findings: Findings) -> None:
    """A cluster needs a name, hosts, jobs on them, and a command for each job."""
    present = findings.document.data
    for key in _NEEDED:
        if not getattr(content, key) and not findings.has(key):
            state = "empty" if key in present else "missing"
            findings.add((key,), f"{key} is {state}", EXAMPLES[key], at_key=True)
    for name, job in content.jobs.items():
        if not job.hosts and not findings.has("jobs", name, "hosts"):
            findings.add(("jobs", name), f"jobs.{name} has no hosts", "write, for example, hosts: [gpu-1]", at_key=True)
    lacking = [name for name, job in content.jobs.items() if not (job.command or content.trainer.command)]
    sections = [("trainer",), *(("jobs", name) for name in lacking)]
    if any(findings.has(*section, "command") for section in sections) or ("trainer",) in findings:
        return
    if lacking or not (content.jobs or content.trainer.command):
        missing = "trainer.command" if present.get("trainer") else "trainer"
        also = f", and jobs.{lacking[0]} has no command of its own" if lacking else ""
        findings.add(("trainer",), f"{missing} is missing{also}", EXAMPLES["trainer"], at_key=True)


def check_secrets(content: ClusterFile, findings: Findings) -> None:
    """A value in the file is no secret, and would be printed with the plan."""
    envs = [
        (("trainer", "env"), content.trainer.env),
        *((("jobs", name, "env"), job.env) for name, job in content.jobs.items()),
        *((("hosts", name, "env"), host.env) for name, host in content.hosts.items()),
    ]
    for path, env in envs:
        for name in content.trainer.secrets:
            if name in env:
                summary = f"{findings.name(*path, name)} stands in trainer.secrets too, expected in one of them"
                hint = "leave it out here: a secret's value comes from env_file or from your own environment"
                findings.add((*path, name), summary, hint, at_key=True)


def check_success(content: ClusterFile, findings: Findings) -> None:
    if content.success == "all-workers" and content.jobs and "worker" not in findings.names_in("jobs"):
        findings.add(("success",), "success is all-workers, but there is no job 'worker'", "write success: lead")


def check_code(content: ClusterFile, code: Path, home: Path, findings: Findings) -> None:
    """Nobody means to push a home directory, all that lies around a project, or a directory of keys.

    `code` and `home` are real paths.
    """
    if content.trainer.code_anywhere or findings.has("trainer", "code"):
        return
    what = _too_much(code, home)
    if what is not None:
        summary = f"trainer.code is {str(code)!r}, which is {what}: all of it would be pushed to the hosts"
        hint = "name the directory of the training program, or write code_anywhere: true beside it if you mean it"
        findings.add(("trainer", "code"), summary, hint)


def _too_much(code: Path, home: Path) -> str | None:
    if rule := rule_of_directory(str(code)):
        return f"in {rule}, where secrets usually are"
    for place in _homes(code):
        if place.is_relative_to(code):
            return "a home directory" if place == code else f"above the home directory {place}"
    return f"above the directory of this file, {home}" if code in home.parents else None


def _homes(code: Path) -> Iterator[Path]:
    """The user's, by the environment and by the system, and that of the code's owner."""
    said = [os.environ.get("HOME", "")]
    for user in {os.geteuid(), code.stat().st_uid}:
        with suppress(KeyError):  # a number without a name, as in a container
            said.append(pwd.getpwuid(user).pw_dir)
    yield from (Path(home).resolve() for home in said if Path(home).is_absolute())

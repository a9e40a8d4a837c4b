"""Whether the program that a job's command names is in the code that travels."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dtctl.bundle import Bundle
from dtctl.config.document import Findings, KeyPath
from dtctl.errors import did_you_mean
from dtctl.model import Cluster

_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_FILLED_IN = re.compile(r"[{$~]")
_MOST_NAMED = 5


@dataclass(frozen=True)
class Program:
    """A file of the code, or a module; `index` is that of its word in the command."""

    name: str
    index: int
    is_module: bool = False


def program_of(command: Sequence[str]) -> Program | None:
    """What is run of the code directory, as far as the command's words tell."""
    head = command[0]
    if _PYTHON.fullmatch(head):
        return _of_python(command)
    if posixpath.basename(head) in _SHELLS:
        return Program(command[1], 1) if len(command) > 1 and not command[1].startswith("-") else None
    return Program(head, 0) if "/" in head else None


def _of_python(command: Sequence[str]) -> Program | None:
    index = 1
    while index < len(command):
        word = command[index]
        if word == "-m":
            return Program(command[index + 1], index + 1, is_module=True) if index + 1 < len(command) else None
        if word in ("-c", "-"):
            return None
        if not word.startswith("-"):
            return Program(word, index)
        index += 2 if word in _WITH_VALUE else 1
    return None


def check_programs(cluster: Cluster, bundle: Bundle, findings: Findings) -> None:
    code = _Code(bundle)
    told: set[tuple[KeyPath, str]] = set()
    for name, job in cluster.jobs.items():
        program = program_of(job.launch.command)
        if program is None or program.name.startswith("/") or _FILLED_IN.search(program.name):
            continue
        own: KeyPath = ("jobs", name, "command")
        path = own if findings.document.find(own) == own else ("trainer", "command")
        if (path, program.name) in told:
            continue
        told.add((path, program.name))
        at = (*path, program.index)
        if program.is_module:
            _check_module(program.name, at, code, findings)
        else:
            _check_file(program.name, at, code, findings, may_be_made=cluster.trainer.setup is not None)


class _Code:
    """What of the code directory travels, and what only lies there."""

    def __init__(self, bundle: Bundle) -> None:
        self.root = bundle.root
        self.files = [entry.path for entry in bundle.manifest.files]
        self._there = {*self.files, *(path for path, _ in bundle.manifest.dirs)}
        self._links = {path for path, _ in bundle.manifest.links}

    def has(self, path: str) -> bool:
        above = [path]
        while above[-1]:
            above.append(posixpath.dirname(above[-1]))
        return path in self._there or any(part in self._links for part in above)

    def lies_there(self, path: str) -> bool:
        return (self.root / path).exists()


def _check_file(name: str, at: KeyPath, code: _Code, findings: Findings, *, may_be_made: bool) -> None:
    path = posixpath.normpath(name)
    if path.startswith("../"):
        summary = f"{findings.name(*at)}: {name} lies outside of the code directory {code.root}"
        findings.add(at, summary, "the hosts get nothing but that directory: trainer.code names it")
    elif code.has(path):
        return
    elif code.lies_there(path):
        summary = f"{findings.name(*at)}: {name} is not pushed: the ignore rules leave it out"
        findings.add(at, summary, f"take it out of .dtctlignore (or .gitignore), or add the line !/{path}")
    else:
        summary = f"{findings.name(*at)}: there is no {name} in the code, {code.root}"
        known = [file for file in code.files if posixpath.splitext(file)[1] == posixpath.splitext(path)[1]]
        some = (
            f"there {'is' if len(known) == 1 else 'are'} {', '.join(known[:_MOST_NAMED])}"
            if known
            else "trainer.code names the directory of the program"
        )
        hint = did_you_mean(path, known) or some
        if may_be_made:
            findings.doubt(at, f"{summary}; does trainer.setup make it?", hint)
        else:
            findings.add(at, summary, hint)


def _check_module(name: str, at: KeyPath, code: _Code, findings: Findings) -> None:
    """What is not in the code may be installed: only a module of a package that is there has to be in it."""
    path = name.replace(".", "/")
    if code.has(f"{path}.py") or code.has(path):
        return
    package = path.split("/")[0]
    own = [
        file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
        for file in code.files
        if file.endswith(".py")
    ]
    hint = did_you_mean(name, own)
    if code.lies_there(f"{path}.py") or code.lies_there(f"{path}/__main__.py"):
        summary = f"{findings.name(*at)}: the module {name} is not pushed: the ignore rules leave it out"
        findings.add(at, summary, "take it out of .dtctlignore (or .gitignore)")
    elif code.has(package):
        findings.add(at, f"{findings.name(*at)}: there is no module {name} in the code, {code.root}", hint)
    elif hint:
        findings.doubt(at, f"{findings.name(*at)}: there is no module {name} in the code; it has to be installed", hint)

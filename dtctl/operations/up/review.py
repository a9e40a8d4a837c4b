"""Reports what `up` needs on this machine and lacks: the program, secrets, keys, the Python of a local run.

It contacts no host; each problem has its position in the cluster file.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from dtctl.agent.records.values import HOME
from dtctl.bundle import Bundle
from dtctl.config.checks import WHEELS
from dtctl.config.cluster import Cluster
from dtctl.config.document import Findings, KeyPath, Scalar
from dtctl.config.load import Checked
from dtctl.config.names import why_not_written
from dtctl.config.ranges import expand
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError, Problem, did_you_mean
from dtctl.model import Host, SshSettings
from dtctl.operations.environments import environment_files, environment_wheels
from dtctl.operations.local import read_env_file
from dtctl.operations.sending import scan_code
from dtctl.plan.hosts import on_host

NEEDS = "requirements.txt"
_MOST_NAMED = 5
WHEELS_BYTES = 1_000_000
"""Wheels among the code are mentioned from this size on: a program may come with a small one of its own."""


@dataclass(frozen=True)
class Reviewed:
    """The result of a review. `doubts` are probable mistakes; `bundle` is the scanned code."""

    bundle: Bundle
    doubts: tuple[Problem, ...]


def review(
    checked: Checked,
    environ: Mapping[str, str],
    *,
    local: bool = False,
    started: bool = True,
    force: bool = False,
    bundle: Bundle | None = None,
) -> Reviewed:
    """Raises ConfigError for what cannot work, and PreflightError for code that cannot be sent.

    `started`: the cluster is to be started now. Else what its hosts alone know is asked about as well.
    `force`: it is started though this machine has no such Python. `bundle`: the code as it was reviewed when it was
    submitted; the directories of the file may have changed since.
    """
    cluster, findings = checked.cluster, checked.findings
    known = _known(cluster, environ, findings)
    if known is not None:
        _check_values(cluster, known, findings)
    if not force:
        _check_interpreters(cluster, findings, local=local)
    if not local:
        _check_keys(cluster, findings)
    if bundle is not None:
        findings.or_raise()
        return Reviewed(bundle, findings.doubts)
    bundle = _looked_through(cluster, findings)
    check_programs(cluster, bundle, findings)
    _check_environment(cluster, bundle, findings)
    _check_for_wheels(bundle, findings)
    if not started:
        _ask_for_needs(cluster, bundle, findings)
    findings.or_raise_all()
    return Reviewed(bundle, findings.doubts)


def _looked_through(cluster: Cluster, findings: Findings) -> Bundle:
    """The scanned code. Raises all problems found so far if it cannot be sent or is missing. Raises all that was found
    before it, where it cannot be sent or is not there.
    """
    if findings.has("trainer", "code"):
        findings.or_raise_all()
    try:
        return scan_code(cluster)
    except PreflightError:
        findings.or_raise_all()
        raise


def _known(cluster: Cluster, environ: Mapping[str, str], findings: Findings) -> dict[str, str] | None:
    """The variables with their values; None if the env_file is unknown."""
    path, file = ("trainer", "env_file"), cluster.trainer.env_file
    if file is None:
        return dict(environ)
    if findings.has(*path):
        return None
    try:
        return {**environ, **read_env_file(file)}
    except PreflightError as error:
        findings.add(path, f"{findings.name(*path)}: {error.summary}", error.hint)
        return None


def _check_values(cluster: Cluster, known: Mapping[str, str], findings: Findings) -> None:
    """Reports secrets and variables of hooks without a value."""
    file = cluster.trainer.env_file
    lacks = f"has a value neither in {file} nor here" if file else "has no value here"
    secrets: list[Scalar] = (findings.document.data.get("trainer") or {}).get("secrets") or []
    for index, secret in enumerate(secrets):
        if secret.text not in known:
            summary = f"trainer.secrets names {secret.text}, which {lacks}"
            findings.add(("trainer", "secrets", index), summary, _remedy(secret.text))
    for hook in cluster.hooks.values():
        for name in hook.variables:
            if not known.get(name):
                summary = f"hooks.{hook.name} needs {name}, which {lacks}"
                findings.add(("hooks", hook.name), summary, _remedy(name), at_key=True)


def _remedy(name: str) -> str:
    return f"export {name}=...    or write it to trainer.env_file"


def _check_interpreters(cluster: Cluster, findings: Findings, *, local: bool) -> None:
    """Reports missing interpreters of trainers on this machine, except in containers, which have their own."""
    if cluster.trainer.environment is not None and cluster.trainer.environment.kind == "container":
        return
    here = [host for host in _with_tasks(cluster) if local or host.is_local]
    entries = {} if local else _entries(findings)
    for host in here:
        if host.python is not None and not local:
            _check_interpreter(("hosts", entries[host.name], "python"), host.python, cluster, findings)
    if not here or (not local and all(host.python for host in here)):
        return
    environment = cluster.trainer.environment
    if environment is not None and environment.python is not None and environment.kind == "requirements":
        _check_interpreter(("trainer", "environment", "python"), environment.python, cluster, findings)
    if cluster.trainer.python is not None:
        _check_interpreter(("trainer", "python"), cluster.trainer.python, cluster, findings)
    elif cluster.trainer.venv is not None:
        place = _here(cluster.trainer.venv, cluster)
        if not (place / "bin" / "python").exists() and not cluster.trainer.setup:
            findings.add(
                ("trainer", "venv"),
                f"trainer.venv is {cluster.trainer.venv!r}, but this machine has no {place}/bin/python",
                f"python3 -m venv {place}    creates one; or leave it out to use this Python",
            )


def _check_environment(cluster: Cluster, bundle: Bundle, findings: Findings) -> None:
    """Reports wheels that cannot be sent, and files of the environment that are missing or not sent with the code."""
    said = cluster.trainer.environment
    if said is None:
        return
    path: KeyPath = ("trainer", "environment", said.kind)
    for place, read in ((WHEELS, environment_wheels), (path, environment_files)):
        try:
            read(cluster)
        except PreflightError as error:
            findings.add(place, f"{findings.name(*place)}: {error.summary}", error.hint)
            return
    files, code = environment_files(cluster), _Code(bundle)
    for name in (name for name in files if not code.has(name)):
        summary = f"{findings.name(*path)}: {name} is not pushed: the ignore rules leave it out"
        findings.add(path, summary, f"take it out of .dtctlignore (or .gitignore), or add the line !/{name}")


def _check_for_wheels(bundle: Bundle, findings: Findings) -> None:
    """Doubts wheels among the code, which every host receives and no trainer reads."""
    wheels = [one for one in bundle.manifest.files if one.path.endswith(".whl")]
    total_bytes = sum(one.size for one in wheels)
    if total_bytes < WHEELS_BYTES:
        return
    directory = posixpath.dirname(wheels[0].path)
    where = (
        {posixpath.dirname(one.path) for one in wheels} == {directory} and f" in {directory}" * bool(directory)
    ) or ""
    summary = f"{len(wheels)} wheels ({total_bytes / 1e6:.0f} MB){where} are sent to every host as code"
    installs = f"environment: {{requirements: {NEEDS}, wheels: {directory or '.'}}}    below `trainer:` installs them"
    findings.doubt(("trainer",), summary, f"{installs}; or a line *.whl in .dtctlignore leaves them out", at_key=True)


def _check_interpreter(path: KeyPath, python: str, cluster: Cluster, findings: Findings) -> None:
    found = _here(python, cluster).exists() if "/" in python else shutil.which(python)
    if not found and not cluster.trainer.setup:
        hint = "leave it out to use the Python of dtctl, or set one that exists; dtctl up --force    starts anyway"
        findings.add(path, f"{findings.name(*path)} is {python!r}, which this machine does not have", hint)


def _here(path: str, cluster: Cluster) -> Path:
    return Path(on_host(path, cluster.name).replace(HOME, str(Path.home())))


def _check_keys(cluster: Cluster, findings: Findings) -> None:
    """Checks keys: one may also be in an SSH agent, and known hosts may be pinned later, so that both are only
    doubts.
    """
    entries = _entries(findings)
    doubted: set[tuple[KeyPath, str]] = set()
    exists = cache(os.path.exists)
    for host in _with_tasks(cluster):
        if not isinstance(host.reach, SshSettings):
            continue
        for key in ("identity_file", "known_hosts"):
            file = getattr(host.reach, key)
            if file is None or exists(file):
                continue
            path = _ssh_path(entries[host.name], key, findings)
            if path is None or (path, file) in doubted or (key == "known_hosts" and host.reach.host_keys != "strict"):
                continue
            doubted.add((path, file))
            hint = "name the private key; keys of an SSH agent are tried as well"
            if key == "known_hosts":
                hint = _who_writes(file, cluster)
            findings.doubt(path, f"{findings.name(*path)}: there is no file {file}", hint)


def _who_writes(known_hosts: str, cluster: Cluster) -> str:
    if why_not_written(Path(known_hosts), cluster.file.absolute().parent):
        return "known_hosts: known_hosts    is a file next to this one, which dtctl trust may write; or leave it out"
    return "dtctl trust    shows the hosts' keys and writes it"


def _ssh_path(entry: str, key: str, findings: Findings) -> KeyPath | None:
    """The path of the key in the file; None if the command line sets it."""
    own: KeyPath = ("hosts", entry, "ssh", key)
    return next((path for path in (own, ("ssh", key)) if findings.document.find(path) == path), None)


def _entries(findings: Findings) -> dict[str, str]:
    """Host -> the key in the file that defines it."""
    return {host: key for key in findings.names_in("hosts") for host in expand(key)}


def _ask_for_needs(cluster: Cluster, bundle: Bundle, findings: Findings) -> None:
    """Checks whether the file says how hosts get what a trainer needs; only the hosts know whether they have it."""
    trainer = cluster.trainer
    bare = [host.name for host in _with_tasks(cluster) if not (host.is_local or host.python)]
    needed = any(file.path == NEEDS and file.size for file in bundle.manifest.files)
    if trainer.python or trainer.venv or trainer.environment or trainer.setup or not bare or not needed:
        return
    summary = f"nothing installs {NEEDS}: the hosts' own python3 has to have its packages, as trainer names no other"
    findings.doubt(
        ("trainer",),
        summary,
        f"environment: {{requirements: {NEEDS}}}    installs them; or python:, venv:",
        at_key=True,
    )


def _with_tasks(cluster: Cluster) -> list[Host]:
    used = {host for job in cluster.jobs.values() for host in job.hosts}
    return [host for name, host in cluster.hosts.items() if name in used]


_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_FILLED_IN = re.compile(r"[{$~]")


@dataclass(frozen=True)
class TrainerProgram:
    """A file of the code, or a module; `index` is the index of its word in the command."""

    name: str
    index: int
    is_module: bool = False


def program_of(command: Sequence[str]) -> TrainerProgram | None:
    """The program in the code directory that the command runs, as far as its words show."""
    head = command[0]
    if _PYTHON.fullmatch(head):
        return _of_python(command)
    if posixpath.basename(head) in _SHELLS:
        return TrainerProgram(command[1], 1) if len(command) > 1 and not command[1].startswith("-") else None
    return TrainerProgram(head, 0) if "/" in head else None


def _of_python(command: Sequence[str]) -> TrainerProgram | None:
    index = 1
    while index < len(command):
        word = command[index]
        if word == "-m":
            return TrainerProgram(command[index + 1], index + 1, is_module=True) if index + 1 < len(command) else None
        if word in ("-c", "-"):
            return None
        if not word.startswith("-"):
            return TrainerProgram(word, index)
        index += 2 if word in _WITH_VALUE else 1
    return None


def check_programs(cluster: Cluster, bundle: Bundle, findings: Findings) -> None:
    code = _Code(bundle)
    reported: set[tuple[KeyPath, str]] = set()
    for name, job in cluster.jobs.items():
        program = program_of(job.launch.command)
        if program is None or program.name.startswith("/") or _FILLED_IN.search(program.name):
            continue
        own: KeyPath = ("jobs", name, "command")
        path = own if findings.document.find(own) == own else ("trainer", "command")
        if (path, program.name) in reported:
            continue
        reported.add((path, program.name))
        at = (*path, program.index)
        if program.is_module:
            _check_module(program.name, at, code, findings)
        else:
            _check_file(program.name, at, code, findings, may_be_made=cluster.trainer.setup is not None)


class _Code:
    """The files of the code directory: those that are sent, and those that are not."""

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
        findings.add(at, summary, "only that directory is pushed; trainer.code sets it")
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
            findings.doubt(at, f"{summary}; does trainer.setup create it?", hint)
        else:
            findings.add(at, summary, hint)


def _check_module(name: str, at: KeyPath, code: _Code, findings: Findings) -> None:
    """Reports a module that is missing in a package of the code. A module of another package may be installed."""
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

"""What `up` would miss on this machine: the program in the code, secrets, keys, the Python of a run here.

Said before anything is contacted, each with its place in the cluster file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dtctl.agent.records.marks import HOME
from dtctl.bundle import Bundle
from dtctl.config.document import Findings, KeyPath, Scalar
from dtctl.config.load import Checked
from dtctl.config.names import why_not_written
from dtctl.config.ranges import expand
from dtctl.errors import PreflightError, Problem
from dtctl.model import Cluster, Host, SshSettings
from dtctl.operations.up.local import scan_code
from dtctl.operations.up.programs import check_programs
from dtctl.operations.up.secrets import read_env_file
from dtctl.plan.hosts import on_host

NEEDS = "requirements.txt"
_MOST_NAMED = 5


@dataclass(frozen=True)
class Reviewed:
    """`doubts` tell what is hardly meant; `bundle` is the code, looked at on the way."""

    bundle: Bundle
    doubts: tuple[Problem, ...]


def review(
    checked: Checked,
    environ: Mapping[str, str],
    *,
    local: bool = False,
    started: bool = True,
    force: bool = False,
) -> Reviewed:
    """Raises ConfigError for what cannot work, and PreflightError for code that cannot be sent.

    `started`: the cluster is to be started now. Else what its hosts alone know is asked about as well.
    `force`: it is started though this machine has no such Python.
    """
    cluster, findings = checked.cluster, checked.findings
    known = _known(cluster, environ, findings)
    if known is not None:
        _check_secrets(cluster, known, findings)
        _check_hooks(cluster, known, findings)
    if not force:
        _check_interpreters(cluster, findings, local=local)
    if not local:
        _check_keys(cluster, findings)
    bundle = _looked_through(cluster, findings)
    check_programs(cluster, bundle, findings)
    if not started:
        _ask_for_needs(cluster, bundle, findings)
    findings.or_raise_all()
    return Reviewed(bundle, findings.doubts)


def _looked_through(cluster: Cluster, findings: Findings) -> Bundle:
    """The code. Raises all that was found before it, where it cannot be sent or is not there."""
    if findings.has("trainer", "code"):
        findings.or_raise_all()
    try:
        return scan_code(cluster)
    except PreflightError:
        findings.or_raise_all()
        raise


def _known(cluster: Cluster, environ: Mapping[str, str], findings: Findings) -> dict[str, str] | None:
    """Variables with their values; None where nobody can tell what the env_file was to say."""
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


def _check_secrets(cluster: Cluster, known: Mapping[str, str], findings: Findings) -> None:
    file = cluster.trainer.env_file
    for index, name in enumerate(_said_secrets(findings)):
        if name.text not in known:
            lacks = f"has a value neither in {file} nor here" if file else "has no value here"
            summary = f"trainer.secrets names {name.text}, which {lacks}"
            findings.add(
                ("trainer", "secrets", index), summary, f"export {name.text}=...    or write it to trainer.env_file"
            )


def _check_hooks(cluster: Cluster, known: Mapping[str, str], findings: Findings) -> None:
    file = cluster.trainer.env_file
    for hook in cluster.hooks.values():
        for name in hook.variables:
            if not known.get(name):
                lacks = f"has a value neither in {file} nor here" if file else "has no value here"
                summary = f"hooks.{hook.name} needs {name}, which {lacks}"
                remedy = f"export {name}=...    or write it to trainer.env_file"
                findings.add(("hooks", hook.name), summary, remedy, at_key=True)


def _said_secrets(findings: Findings) -> list[Scalar]:
    trainer = findings.document.data.get("trainer") or {}
    return trainer.get("secrets") or []


def _check_interpreters(cluster: Cluster, findings: Findings, *, local: bool) -> None:
    """Of trainers on this machine."""
    here = [host for host in _with_tasks(cluster) if local or host.is_local]
    for host in here:
        if host.python is not None and not local:
            entry = _entry_of(host.name, findings)
            _check_interpreter(("hosts", entry, "python"), host.python, cluster, findings)
    if not here or (not local and all(host.python for host in here)):
        return
    if cluster.trainer.python is not None:
        _check_interpreter(("trainer", "python"), cluster.trainer.python, cluster, findings)
    elif cluster.trainer.venv is not None:
        place = _here(cluster.trainer.venv, cluster)
        if not (place / "bin" / "python").exists() and not cluster.trainer.setup:
            findings.add(
                ("trainer", "venv"),
                f"trainer.venv is {cluster.trainer.venv!r}, but this machine has no {place}/bin/python",
                f"python3 -m venv {place}    makes one; or leave it out to use this Python",
            )


def _check_interpreter(path: KeyPath, python: str, cluster: Cluster, findings: Findings) -> None:
    found = _here(python, cluster).exists() if "/" in python else shutil.which(python)
    if not found and not cluster.trainer.setup:
        hint = "leave it out to use the Python of dtctl; or name one that is here"
        findings.add(path, f"{findings.name(*path)} is {python!r}, which this machine does not have", hint)


def _here(path: str, cluster: Cluster) -> Path:
    return Path(on_host(path, cluster.name).replace(HOME, str(Path.home())))


def _check_keys(cluster: Cluster, findings: Findings) -> None:
    """A key may be in an agent as well, and known hosts may be pinned yet: both are asked about, no more."""
    seen: set[tuple[KeyPath, str]] = set()
    for host in _with_tasks(cluster):
        if not isinstance(host.reach, SshSettings):
            continue
        for key, hint in (
            ("identity_file", "name the private key; keys of an SSH agent are tried as well"),
            ("known_hosts", _who_writes(host.reach.known_hosts, cluster)),
        ):
            file = getattr(host.reach, key)
            path = _ssh_path(host.name, key, findings)
            if file is None or path is None or (path, file) in seen or Path(file).exists():
                continue
            seen.add((path, file))
            if key == "identity_file" or host.reach.host_keys == "strict":
                findings.doubt(path, f"{findings.name(*path)}: there is no file {file}", hint)


def _who_writes(known_hosts: str | None, cluster: Cluster) -> str:
    if known_hosts is not None and why_not_written(Path(known_hosts), cluster.file.absolute().parent):
        return "known_hosts: known_hosts    is a file beside this one, which dtctl trust may write; or leave it out"
    return "dtctl trust    shows the hosts' keys and writes it"


def _ssh_path(host: str, key: str, findings: Findings) -> KeyPath | None:
    """Where the file says it; None where the command line does."""
    own: KeyPath = ("hosts", _entry_of(host, findings), "ssh", key)
    return next((path for path in (own, ("ssh", key)) if findings.document.find(path) == path), None)


def _entry_of(host: str, findings: Findings) -> str:
    return next(key for key in findings.names_in("hosts") if host in expand(key))


def _ask_for_needs(cluster: Cluster, bundle: Bundle, findings: Findings) -> None:
    """Whether hosts have what a trainer needs, only they know; whether anything says how they got it, the file does."""
    trainer = cluster.trainer
    bare = [host.name for host in _with_tasks(cluster) if not (host.is_local or host.python)]
    needs = list(_needs(bundle.root / NEEDS))
    if trainer.python or trainer.venv or trainer.setup or not bare or not needs:
        return
    named = ", ".join(needs[:_MOST_NAMED]) + (" and more" if len(needs) > _MOST_NAMED else "")
    summary = f"{NEEDS} names {named}; the hosts' own python3 has to have them, as trainer names no other"
    findings.doubt(
        ("trainer",), summary, f"setup: pip install -r {NEEDS}, python: or venv:    if they do not", at_key=True
    )


def _needs(file: Path) -> Iterator[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    except (OSError, UnicodeDecodeError):
        return
    yield from (line.split("#")[0].strip() for line in lines if line.strip() and line.strip()[0] not in "#-")


def _with_tasks(cluster: Cluster) -> list[Host]:
    used = {host for job in cluster.jobs.values() for host in job.hosts}
    return [host for name, host in cluster.hosts.items() if name in used]

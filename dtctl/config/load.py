"""Reads a file with overrides into a Cluster, or reports all problems at once."""

from __future__ import annotations

import codecs
import dataclasses
import errno
import hashlib
import os
import select
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dtctl.agent.host.secrets import MASK, hide_text, is_secret_name
from dtctl.agent.records.spec import may_be_absent
from dtctl.config.checks import (
    EXAMPLES,
    WHEELS,
    check_gpus,
    check_min_workers,
    check_order,
    check_sections,
    check_workable,
    replace_after_s,
)
from dtctl.config.cluster import (
    Cluster,
    Data,
    DataKeys,
    Job,
    JobKeys,
    Recovery,
    Settings,
    Trainer,
    TrainerKeys,
    outgoing,
)
from dtctl.config.document import Document, Findings, KeyPath, Marks, Scalar, as_text, dotted, settings_of
from dtctl.config.habits import meant_key, meant_value
from dtctl.config.inventory import read_hosts
from dtctl.config.launching import field_names, read_launches, with_scheduler
from dtctl.config.outgoing import check_outgoing
from dtctl.config.placement import FIRST_PORT, give_ports, place_tasks, read_idle
from dtctl.config.section import Section, SectionKind
from dtctl.config.sections import SECTIONS, ClusterFile, sections_with
from dtctl.config.strategies import resizes, role_of, scope_of, strategy_of, trainers
from dtctl.config.yaml12 import START, parse
from dtctl.dataclass import dataclass
from dtctl.errors import ConfigError, Place, Problem, clipped, did_you_mean
from dtctl.model import TaskId

LIMIT_BYTES = 1_000_000
WRITER_S = 3.0
"""How long a pipe may stay empty."""
EXPECTED = "expected a mapping with the keys name, hosts, jobs and trainer"


@dataclass(frozen=True)
class Checked:
    """A file that can be read, and what is to be said of it before its cluster is started."""

    cluster: Cluster
    findings: Findings


def load_cluster(file: Path, *, overrides: Sequence[str] = (), needs_files: bool = True) -> Cluster:
    """The cluster that `file` describes, with `--set path=value` overrides. Raises ConfigError with every problem.

    `needs_files`: the code and the env_file have to be on this machine.
    """
    said = _parsed(file, overrides)
    cluster = said.built()
    if needs_files:
        said.findings.or_raise_all()
    return cluster


def check_cluster(file: Path, *, overrides: Sequence[str] = (), content: bytes | None = None) -> Checked:
    """The same for a cluster that is about to be started, with further checks: for settings that cannot work, or are
    probably mistakes. `content`: what the file held when it was submitted; it is not read again.
    """
    said = _parsed(file, overrides, content)
    try:
        cluster = said.built()
    except ConfigError:
        check_workable(said.sections, said.findings)
        said.findings.or_raise()
        raise
    check_workable(said.sections, said.findings)
    check_gpus(said.sections, cluster, said.findings)
    return Checked(cluster, said.findings)


def cluster_of(text: str, file: Path) -> Cluster:
    """The cluster of a text that is to be written to the absolute `file`, whose directory may be missing yet.

    Raises ConfigError.
    """
    document = parse(text, _shown(file))
    findings = Findings(document)
    return build(read_sections(document, findings), file, findings)


@dataclass(frozen=True)
class _Parsed:
    """The content of a file without its invalid parts."""

    file: Path
    sha256: str
    sections: ClusterFile
    findings: Findings
    overrides: Sequence[str]

    def built(self) -> Cluster:
        cluster = build(self.sections, self.file.absolute(), self.findings)
        settings = settings_of(self.findings.document.data)
        return dataclasses.replace(cluster, file_sha256=self.sha256, settings=settings, overrides=tuple(self.overrides))


def _parsed(file: Path, overrides: Sequence[str], content: bytes | None = None) -> _Parsed:
    name = _shown(file)
    content = read_file(file, name) if content is None else content
    document = parse(_text(content, name), name)
    if document.data is None:
        raise ConfigError([Problem(Place(name), f"the file is empty, {EXPECTED}", START)])
    if not isinstance(document.data, dict):
        place = document.value_place(())
        raise ConfigError([Problem(place, f"the file is {as_text(document.data)}, {EXPECTED}", START)])
    apply_overrides(document, overrides)
    findings = Findings(document)
    sections = with_scheduler(read_sections(document, findings))
    return _Parsed(file, hashlib.sha256(content).hexdigest(), sections, findings, overrides)


def read_file(file: Path, name: str = "") -> bytes:
    """The content of a cluster file. Raises ConfigError, which calls it `name`."""
    name = name or _shown(file)
    try:
        with os.fdopen(_without_waiting(file), "rb") as stream:
            content = stream.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise ConfigError([_unreadable(file, name, error)]) from error
    if len(content) > LIMIT_BYTES:
        raise ConfigError(
            [Problem(Place(name), f"this is not a cluster file: it has more than {LIMIT_BYTES} bytes", START)]
        )
    return content


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        place = Place(name, before.count(b"\n") + 1, column)
        summary = f"this is not UTF-8 text: byte 0x{content[error.start]:02x}"
        encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "latin1"
        hint = f"iconv -f {encoding} -t utf-8 {name}    prints it as UTF-8, if it is {encoding}"
        raise ConfigError([Problem(place, summary, hint)]) from error


def _without_waiting(file: Path) -> int:
    """Opens the file for reading. A pipe, such as `<(...)`, is read once something writes to it. Raises OSError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and not select.select([descriptor], [], [], WRITER_S)[0]:
        os.close(descriptor)
        raise OSError(errno.EPIPE, "It is a pipe without a writer", str(file))
    os.set_blocking(descriptor, True)
    return descriptor


def _unreadable(file: Path, name: str, error: OSError) -> Problem:
    place = Place(name)
    if isinstance(error, FileNotFoundError):
        return Problem(place, "there is no such file", START)
    if isinstance(error, IsADirectoryError):
        inside = file / "cluster.yaml"
        hint = f"name the file: {inside}" if inside.is_file() else f"rename {name}, or name the file: -c FILE"
        return Problem(place, "this is a directory, expected a file", hint)
    if isinstance(error, PermissionError):
        return Problem(place, "you may not read this file", f"ls -l {name}    shows who may")
    return Problem(place, f"the file cannot be read: {(error.strerror or str(error)).lower()}", f"ls -l {name}")


def _shown(file: Path) -> str:
    """The shortest path that can be typed from here."""
    try:
        return str(file.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(file)


def apply_overrides(document: Document, overrides: Sequence[str]) -> None:
    """Puts each value in its place, in the order given; what cannot be placed is added to the document's problems."""
    for override in overrides:
        name = f"--set {clipped(' '.join(override.split()))}"
        keys, equals, value = override.partition("=")
        if not (equals and all(keys.strip().split("."))):
            hint = "write --set path=value, for example --set dirs.work=/tmp/x"
            document.problems.append(Problem(Place(name), f"{override!r} is not an override", hint))
            continue
        before = len(document.problems)
        try:
            part = parse(value, name)
            part.marks = dict.fromkeys(part.marks, Marks(Place(name), Place(name)))
            document.graft(_path(document, keys.strip(), name), part)
        except ConfigError as error:
            document.problems += error.problems
        document.problems[before:] = [dataclasses.replace(one, place=Place(name)) for one in document.problems[before:]]


def _path(document: Document, keys: str, name: str) -> KeyPath:
    """The steps that `keys` names; names of hosts may hold dots, so the longest key that is there wins."""
    path: list[str | int] = []
    here = document.data
    while keys:
        if here is not None and not isinstance(here, dict):
            owner = ".".join(map(str, path))
            summary = f"{owner} is {as_text(here)}, so {keys} cannot be set in it"
            raise ConfigError([Problem(Place(name), summary, f"set it whole: --set '{owner}=...'")])
        known = [key for key in here or {} if f"{keys}.".startswith(f"{key}.")]
        step = max(known, key=len, default=keys.partition(".")[0])
        keys = keys[len(step) + 1 :]
        here = (here or {}).get(step)
        path.append(step)
    return tuple(path)


def read_sections(document: Document, findings: Findings) -> ClusterFile:
    """The file without its mistakes, so that later checks can speak about the rest."""

    def report(path: KeyPath, found: Any, expected: str, hint: str = "", *, key: bool = False) -> None:
        path = document.find(path)
        if not expected:
            summary = f"{dotted(path)} is not a key here"
            hint = meant_key(path) or _hint(str(path[-1]), _keys_at(path[:-1]))
            findings.add(path, summary, hint, at_key=True)
            return
        hint = meant_value(path, found) or hint or _example(path, found)
        if key:
            summary = f"{dotted(path[:-1])} has the key {str(path[-1])!r}, expected {expected}"
            findings.add(path, summary, hint, at_key=True)
        else:
            is_secret = isinstance(found, Scalar) and path[-1] != "secrets" and is_secret_name(str(path[-1]))
            shown = MASK if is_secret else hide_text(as_text(found))
            findings.add(path, f"{dotted(path)} is {shown}, expected {expected}", hint)

    read: ClusterFile = SectionKind(ClusterFile).take(document.data, (), report)
    return read


def _hint(key: str, siblings: list[str]) -> str:
    """A slip of a letter is likelier than a key in the wrong place, and that is likelier than anything else."""
    elsewhere = " and of ".join(sections_with(key))
    return (
        did_you_mean(key, siblings, cutoff=0.8)
        or (f"it is a key of {elsewhere}" if elsewhere else did_you_mean(key, siblings))
        or f"keys here: {', '.join(siblings)}"
    )


def _keys_at(path: KeyPath) -> list[str]:
    section = _section_at(path)
    return list(section.known_keys()) if section is not None else []


def _section_at(path: KeyPath) -> type[Section] | None:
    where = ".".join(
        "NAME" if depth == 1 and path[0] in ("hosts", "jobs") else str(step) for depth, step in enumerate(path)
    )
    return next((section for section in SECTIONS if section.where == (where or ClusterFile.where)), None)


def _example(path: KeyPath, found: Any) -> str:
    """How the innermost key on the way to `path` may be written that has an example."""
    if isinstance(found, Scalar) and isinstance(found.value, str) and found.text.isdecimal():
        return f"write it without quotes: {found.text}"
    if isinstance(found, Mapping) and len(found) == 1 and (field := str(*found)) in field_names(()):
        return f'write it in quotes: "{{{field}}}"'
    for depth in range(len(path), 0, -1):
        section, key = _section_at(path[: depth - 1]), path[depth - 1]
        known = section.known_keys().get(str(key)) if section is not None else None
        if known is not None and known.example:
            return f"write, for example, {key}: {known.example}"
    if not path:
        return ""
    return EXAMPLES.get(str(path[0])) or _example_within(path) or f"dtctl explain {path[0]}    describes it"


def _example_within(path: KeyPath) -> str:
    """An example of a key, if the value at `path` is a section; otherwise empty."""
    section = _section_at(path)
    keys = section.known_keys().values() if section is not None else ()
    return next((f"write, for example, {path[-1]}: {{{key.name}: {key.example}}}" for key in keys if key.example), "")


def build(content: ClusterFile, file: Path, findings: Findings) -> Cluster:
    """The cluster that the absolute `file` describes. Raises ConfigError with all findings, earlier ones included.

    A missing file is an error only for a command that needs it: `findings` has them.
    `content` has the scheduler that MXNet needs.
    """
    home = file.parent
    hosts = read_hosts(content, home, findings)
    placed = place_tasks(content.jobs, hosts, findings)
    first, coordinator_port = _first_ports(content)
    ports = give_ports(content.jobs, placed, hosts, first, coordinator_port, findings)
    idle = read_idle(content, hosts, placed, findings)
    launches = read_launches(content, findings)
    trainer = _read_trainer(content, home, findings)
    data = _read_data(content, home, findings)
    check_sections(content, findings)
    check_outgoing(content, outgoing(trainer, data), home.resolve(), findings)
    findings.or_raise()
    jobs = {
        name: Job(
            name=name,
            hosts=tuple(placed[name]),
            ports=tuple(ports[name]),
            launch=launches[name],
            own_port=job.port is not None,
            **_shared(JobKeys, job) | {"depends_on": None if job.depends_on is None else _once(job.depends_on)},
        )
        for name, job in content.jobs.items()
    }
    hooks = {name: dataclasses.replace(hook, name=name, on=_once(hook.on)) for name, hook in content.hooks.items()}
    cluster = Cluster(
        name=content.name,
        file=file,
        hosts=hosts,
        jobs=jobs,
        trainer=trainer,
        dirs=content.dirs.said(),
        data=data,
        checkpoint_dir=content.checkpoint.dir,
        log_limit_bytes=content.logs.limit,
        coordinator_port=coordinator_port,
        own_coordinator_port="port" in content.coordinator.written,
        spares=idle["spares"],
        arbiters=idle["arbiters"],
        send_anywhere=content.send_anywhere,
        **_shared(Settings, content) | {"recovery": _recovery(content), "hooks": hooks},
    )
    cluster = dataclasses.replace(cluster, jobs={name: _sized(job, cluster) for name, job in jobs.items()})
    check_order(cluster, findings)
    check_min_workers(cluster, findings)
    findings.or_raise()
    return cluster


def _sized(job: Job, cluster: Cluster) -> Job:
    """The job without the tasks beyond `replicas` that `dtctl scale` could not start later."""
    size, strategy = job.replicas, strategy_of(cluster)
    if size is None or size >= len(job.hosts):
        return dataclasses.replace(job, replicas=None)
    task = TaskId(job.name, size)
    role = role_of(task, cluster.lead)
    if may_be_absent(role, scope_of(role, strategy, cluster.recovery), strategy.value):
        return job
    if resizes(cluster) and task in trainers(cluster):
        return job
    return dataclasses.replace(job, hosts=job.hosts[:size], ports=job.ports[:size], replicas=None)


def _shared(base: type[Section], section: Section) -> dict[str, Any]:
    """The values of the keys that `section` shares with `base`."""
    return {key.attribute: getattr(section, key.attribute) for key in base.known_keys().values()}


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _first_ports(content: ClusterFile) -> tuple[int, int]:
    """The first port of tasks, and the coordinator's port."""
    said = content.coordinator.port
    if content.ports is None:
        return FIRST_PORT, said
    return content.ports, said if "port" in content.coordinator.written else content.ports


def _read_trainer(content: ClusterFile, home: Path, findings: Findings) -> Trainer:
    said = content.trainer
    code = _existing(said.code, home, stat.S_ISDIR, "directory", ("trainer", "code"), findings)
    env_file = said.env_file and _existing(said.env_file, home, stat.S_ISREG, "file", ("trainer", "env_file"), findings)
    named = said.environment.wheels if said.environment is not None else None
    wheels = named and _existing(named, home, stat.S_ISDIR, "directory", WHEELS, findings)
    keys = _shared(TrainerKeys, said) | {"secrets": _once(said.secrets)}
    return Trainer(code=code, env_file=env_file or None, wheels=wheels or None, **keys)


def _read_data(content: ClusterFile, home: Path, findings: Findings) -> Data:
    said = content.data
    if said.from_ is None:
        return Data(**_shared(DataKeys, said))
    source = Path(os.path.realpath(home / Path(said.from_).expanduser()))
    if not source.is_dir():  # the hosts may still have it all, from another machine
        summary = f"data.from is {said.from_!r}, but there is no directory {source}"
        findings.doubt(("data", "from"), summary, "a relative path begins at this file; dtctl data push    needs it")
    return Data(source=source, **_shared(DataKeys, said))


def _recovery(content: ClusterFile) -> Recovery:
    """The recovery settings; the mode `never` allows no restarts.

    A default list of exit codes gives way to codes that the file puts in the other list.
    """
    said = content.recovery
    budgets: dict[str, Any] = {"max_restarts": 0, "max_run_restarts": 0} if said.mode == "never" else {}
    retry, permanent = (
        set(getattr(said, key)) - (set() if key in said.written else set(getattr(said, other)))
        for key, other in (("retry", "permanent"), ("permanent", "retry"))
    )
    codes: dict[str, Any] = {"retry": tuple(sorted(retry)), "permanent": tuple(sorted(permanent))}
    return dataclasses.replace(said, replace_s=replace_after_s(content), **codes, **budgets)


_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def _existing(
    text: str, home: Path, is_kind: Callable[[int], bool], kind: str, path: KeyPath, findings: Findings
) -> Path:
    """The absolute path; `is_kind` judges the mode of what is there."""
    place = Path(text)
    problem = ""
    try:
        place = (home / place.expanduser()).resolve()
        found = is_kind(place.stat().st_mode)
    except RuntimeError:  # a loop of links, no such ~user
        found = False
    except OSError as error:
        found = False
        problem = "" if error.errno in _ABSENT else f"{place} cannot be read: {error.strerror}"
    if not found:
        expected = f"{findings.name(*path)} is {text!r}, but {problem or f'there is no {kind} {place}'}"
        findings.lack(path, expected, "" if problem else "a relative path begins at this file")
    return place

"""Makes a cluster.yaml of what people have already."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dtctl.config import FILE_NAME
from dtctl.config.load import LIMIT_BYTES, cluster_of
from dtctl.config.ranges import expand
from dtctl.dataclass import dataclass
from dtctl.errors import Place, UsageError, clipped, did_you_mean
from dtctl.folder import Folder, read_regular
from dtctl.model import lead_among
from dtctl.rooms.importing import ansible, clush, host_lists, mpi_command
from dtctl.rooms.importing.found import Found, FoundJob, Note, Source, fail, is_address, jobs_of_groups
from dtctl.rooms.importing.ssh_config import ssh_config
from dtctl.rooms.importing.tf_config import is_assignment, tf_config
from dtctl.rooms.importing.tfjob import is_tfjob, tfjob
from dtctl.rooms.importing.written import cluster_file, words
from dtctl.rooms.init.operation import cluster_name

STDIN = "-"
READERS: Mapping[str, Callable[[Source], Found]] = {
    "hostfile": host_lists.hostfile,
    "deepspeed": host_lists.deepspeed,
    "hosts": mpi_command.listed,
    "addresses": host_lists.addresses,
    "clush": clush.clush,
    "ansible": lambda text: (ansible.yaml if _is_mapping(text.content) else ansible.ini)(text),
    "tfjob": tfjob,
    "tf_config": tf_config,
}
FORMATS = (*READERS, "ssh_config")


@dataclass(frozen=True)
class Imported:
    file: Path
    text: str
    found: Found
    format: str
    jobs: Mapping[str, int]
    """Job -> its number of tasks."""
    needs_command: bool


def read_source(source: str) -> tuple[Source, Path | None]:
    """The text, and its file if it is one. Raises UsageError, ConfigError."""
    if source == STDIN:
        content, file = sys.stdin.buffer.read(LIMIT_BYTES + 1), None
    elif os.path.lexists(file := Path(source).expanduser()):
        try:
            content = read_regular(file, LIMIT_BYTES + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"cannot read {source}: {why}", hint="name a file, or - for standard input") from error
    elif re.match(r"-|[^\s/]+[:,]", source):
        content, file = source.encode("utf-8", "surrogateescape"), None
    else:
        raise UsageError(
            f"there is no file {clipped(source)!r}",
            hint="dtctl import FILE    or: dtctl import gpu-1:4,gpu-2:4    - is standard input",
        )
    name = source if file is not None else "stdin" if source == STDIN else "hosts"
    if len(content) > LIMIT_BYTES:
        raise fail(Place(name), f"it has more than {LIMIT_BYTES} bytes", "import a part of it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise fail(Place(name, line), "this is no text in UTF-8", "save it as UTF-8") from error
    if "\0" in text:
        raise fail(Place(name, text.count("\n", 0, text.index("\0")) + 1), "this is no text", "name a text file")
    return Source(name, text), file


_SECTION = re.compile(r"^\[[^\]\n]+\]\s*$", re.MULTILINE)
_OF_SSH = re.compile(r"^[ \t]*(?:Host|Match)[ \t=]+\S", re.MULTILINE | re.IGNORECASE)
_OF_CLUSH = re.compile(r"[^\s:#@]+\s*:\s*[^\s{}:]*(?:[\s,]+[^\s{}:]+)*")
_OF_ANSIBLE = re.compile(r"^[^\s#]+[^#\n]*\sansible_\w+=", re.MULTILINE)
_OF_TF_CONFIG = re.compile(r"\A\s*\{[^{}]*\"(?:cluster|task)\"\s*:\s*\{")
_HOST = re.compile(r"[^\s:=,]+(?::(?P<number>[0-9]+))?")


def recognised(text: Source) -> str:
    """The name of the format. Raises ConfigError if it may be none, or several."""
    content = text.content
    lines = [stripped for _, line in text.lines() if (stripped := re.sub(r"(?:^|\s)#.*", "", line).strip())]
    if not lines:
        raise fail(Place(text.name), "it is empty", _ONE_OF)
    if is_tfjob(content):
        return "tfjob"
    if is_assignment(content) or _OF_TF_CONFIG.search(content):
        return "tf_config"
    if re.search(r"--?\w+_hosts[= ]", content):
        return "addresses"
    if re.search(r"(?:^|\s)(?:-H|-hosts?|--hosts?)[ =]", content):
        return "hosts"
    if _OF_SSH.search(content):
        return "ssh_config"
    if clush.is_main_file(content):
        return "clush"
    if _SECTION.search(content) or _OF_ANSIBLE.search(content):
        return "ansible"
    if _is_mapping(content) and re.search(r"\b(?:hosts|children|_meta)\"?\s*:", content):
        return "ansible"
    if clush.is_yaml(text) or all(re.fullmatch(r"@[^\s:]+(?::[^\s:]+)?\s+\S+", line) for line in lines):
        return "clush"
    parts = [part for line in lines for part in re.split(r"[\s,;]+", line) if part]
    found = [_HOST.fullmatch(part) for part in parts]
    if all(found):
        numbers = [int(match["number"]) for match in found if match and match["number"]]
        if numbers and len(numbers) == len(parts) and min(numbers) >= 1024 and all(map(is_address, parts)):
            return "addresses"
        if not numbers or max(numbers) < 1024:
            return "hosts" if len(lines) == 1 and "," in lines[0] else "hostfile"
        raise fail(Place(text.name, 1), "these may be slots or ports", "add --format hosts, hostfile or addresses")
    if all(_OF_CLUSH.fullmatch(line) for line in lines):
        return "clush"
    if any(re.search(r"\s(?:slots|max[_-]?slots|cpu|count|binding|user(?:[_-]?name)?)=", line) for line in lines):
        return "hostfile"
    raise fail(Place(text.name, 1), "its format is not recognised", _ONE_OF)


_ONE_OF = f"add --format, one of {', '.join(FORMATS)}"


def _is_mapping(content: str) -> bool:
    body = re.sub(r"^\s*(?:#.*)?$\n?", "", content, flags=re.MULTILINE)
    return re.match(r"(?:---[^\n]*\n)?\s*(?:\{|[\w\"'.-]+\s*:(?:\s|$))", body) is not None


def make(source: str, directory: Path, *, kind: str | None, name: str | None, jobs: Sequence[str]) -> Imported:
    """The cluster file of a source; nothing is written. `jobs`: JOB=GROUP, which hosts become which job.

    Raises UsageError, ConfigError, TransportError.
    """
    if kind is not None and kind not in FORMATS:
        raise UsageError(f"{kind!r} is no format", hint=did_you_mean(kind, FORMATS) or f"formats: {', '.join(FORMATS)}")
    text, file = read_source(source)
    chosen = kind or recognised(text)
    found = ssh_config(text, file) if chosen == "ssh_config" else READERS[chosen](text)
    made = _chosen(found, jobs) if jobs else found.jobs or jobs_of_groups(found)
    cluster = cluster_name(directory, name or _fitting(found.name))
    command = words(found.command) if _runs(found.command, directory) else None
    used = {host for job in made for host in job.hosts}
    idle = [one for one in found.machines if one.name not in used]
    if idle:
        names = ", ".join(one.name for one in idle)
        more = Note(f"no job uses {clipped(names)}: --job JOB=GROUP gives them one", idle[0].place)
        found = Found(**{**vars(found), "left_out": (*found.left_out, more)})
    written = cluster_file(found, made, cluster, command, text.name)
    target = directory / FILE_NAME
    cluster_of(written, target.absolute())
    return Imported(target, written, found, chosen, {job.name: len(job.hosts) for job in made}, command is None)


def _fitting(name: str | None) -> str | None:
    """The source's own name for it, as a cluster may be called."""
    return name and (re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:63] or None)


def _chosen(found: Found, texts: Sequence[str]) -> tuple[FoundJob, ...]:
    jobs: dict[str, FoundJob] = {}
    names = [machine.name for machine in found.machines]
    for text in texts:
        job, equals, group = text.partition("=")
        if not equals or not job or not group:
            raise UsageError(f"--job {clipped(text)!r} is not JOB=GROUP", hint="write, for example, --job worker=gpu")
        hosts = found.groups.get(group)
        if hosts is None:
            hosts = tuple(expand(group))
            unknown = [host for host in hosts if host not in names]
            if unknown:
                known = [*found.groups, *names]
                hint = did_you_mean(group, known) or f"there are {clipped(', '.join(known))}"
                raise UsageError(f"there is no group and no host {clipped(unknown[0])!r} in the source", hint=hint)
        place = found.places.get(group) or next(one.place for one in found.machines if one.name == hosts[0])
        earlier = jobs[job].hosts if job in jobs else ()
        jobs[job] = FoundJob(job, (*earlier, *hosts), place)
    lead_among(jobs)
    return tuple(jobs.values())


def _runs(command: Sequence[str], directory: Path) -> bool:
    """Whether the command's program would be found: it is in the directory, or absolute."""
    program = next((word for word in command[1:] if not word.startswith("-")), "") if command else ""
    if not command:
        return False
    if not re.search(r"(?:^|/)python[0-9.]*$", command[0]):
        return command[0].startswith("/")
    return program.startswith("/") or (program.endswith(".py") and (directory / program).is_file())


def write(made: Imported, *, force: bool) -> None:
    """Raises UsageError if the file exists and not `force`."""
    if os.path.lexists(made.file) and not force:
        raise UsageError(f"{made.file} already exists", hint="--force    overwrites it; --print    shows the new one")
    try:
        with Folder(made.file.parent, made.file.parent, make=0o777) as folder:
            if force:
                folder.replace(made.file.name, made.text.encode())
                return
            with folder.new(made.file.name, 0o666) as file:
                file.write(made.text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {made.file}: {error.strerror}") from error


def from_source(source: str, directory: Path, name: str | None, *, force: bool = False) -> Imported:
    """Makes and writes the file: `dtctl init --from`."""
    made = make(source, directory, kind=None, name=name, jobs=())
    write(made, force=force)
    return made

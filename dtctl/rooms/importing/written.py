"""Writes what was found as the text of a cluster.yaml, each line with the place that it comes from. Pure."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from dtctl.agent.host.secrets import hide_text
from dtctl.config.ranges import expand, fold
from dtctl.errors import Place, clipped
from dtctl.rooms.importing.found import Found, FoundJob, Machine, Note

COORDINATOR_PORT = 2221
_PLAIN = re.compile(r"[A-Za-z/~_][A-Za-z0-9_./~@+-]*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
PLACEHOLDER = "[python, -c, \"raise SystemExit('trainer.command is left to fill in')\"]"


def scalar(text: str) -> str:
    """A text as YAML has it."""
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def words(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(scalar, texts)) + "]"


def folded(names: Sequence[str]) -> list[str]:
    """The names as `hosts` of a job takes them: ranges where they stand for exactly these, in this order."""
    whole = fold(names)
    if len(set(names)) == len(names) and expand(whole) == list(names):
        return re.findall(r"(?:[^,\[]|\[[^\]]*\])+", whole)
    return list(names)


def cluster_file(found: Found, jobs: Sequence[FoundJob], name: str, command: str | None, source: str) -> str:
    """`command`: that of the trainer as YAML text; None: it has to be filled in."""
    fill = list(found.to_fill)
    if command is None:
        said = f" ({_shown(' '.join(found.command))}: not in this directory)" if found.command else ""
        fill.insert(0, Note(f"trainer.command: the program that trains{said}", found.command_place))
    lines = [
        f"# Written by dtctl import from {_shown(source)}, {found.kind}. The end of a line says where its value was.",
        "# dtctl plan    shows what would start; dtctl explain KEY    describes a key",
        *_notes("To fill in:", fill),
        *_notes("Left out:", found.left_out),
        "",
        f"name: {scalar(name)}",
        *_hosts(found.machines),
        "",
        "jobs:",
        *itertools.chain.from_iterable(map(_job, jobs)),
        *_coordinator(jobs),
        "",
        "trainer:",
        f"  command: {command or PLACEHOLDER}" + _at(found.command_place if command else None, "to fill in"),
        *(f"  {key}: {value}{_at(place)}" for key, (value, place) in found.trainer.items()),
        *([""] if found.settings else []),
        *(f"{key}: {value}{_at(place)}" for key, (value, place) in found.settings.items()),
    ]
    return "\n".join(lines) + "\n"


def _shown(text: str) -> str:
    """Text from elsewhere as a comment: one line, printable, without secrets."""
    safe = "".join(one if one.isprintable() else "?" for one in text)
    return hide_text(clipped(safe, 200))


def _at(place: Place | None, otherwise: str = "") -> str:
    text = _shown(str(place)) if place is not None else otherwise
    return f"    # {text}" if text else ""


def _notes(title: str, notes: Sequence[Note]) -> Iterator[str]:
    if notes:
        yield f"# {title}"
    for note in notes:
        yield f"#   {_shown(note.text)}" + (f" ({_shown(str(note.place))})" if note.place is not None else "")


_SHARED = ("user", "port", "identity_file", "jump")


def _hosts(machines: Sequence[Machine]) -> Iterator[str]:
    shared = {}
    for key in _SHARED:
        values = Counter(getattr(machine, key) for machine in machines if not machine.is_local)
        if len(values) == 1 and (value := next(iter(values))) is not None:
            shared[key] = value
    if shared:
        first = next(machine for machine in machines if not machine.is_local)
        yield "ssh: {" + ", ".join(f"{key}: {_value(value)}" for key, value in shared.items()) + "}" + _at(first.place)
    yield "hosts:"
    for _, group in itertools.groupby(machines, key=lambda one: one.name if one.target else _settings(one, shared)):
        alike = list(group)
        names = [machine.name for machine in alike]
        for text in folded(names):
            entry = _settings(alike[0], shared)
            place = next(
                machine.place for machine in alike if machine.name == text or len(names) > 1 or text == names[0]
            )
            yield f"  {scalar(text)}:{entry}{_at(place)}"


def _value(value: object) -> str:
    return scalar(value) if isinstance(value, str) else str(value)


def _settings(machine: Machine, shared: dict[str, object]) -> str:
    if machine.is_local:
        return (
            " {transport: local, address: " + scalar(machine.target) + "}" if machine.target else " {transport: local}"
        )
    own = {"target": machine.target, **{key: getattr(machine, key) for key in _SHARED if key not in shared}}
    ssh = {key: _value(value) for key, value in own.items() if value is not None}
    entry = {}
    if ssh:
        alone = set(ssh) == {"target"}
        entry["ssh"] = ssh["target"] if alone else "{" + ", ".join(f"{key}: {text}" for key, text in ssh.items()) + "}"
    if machine.gpus:
        entry["gpus"] = str(machine.gpus)
    if list(entry) == ["ssh"] and set(ssh) == {"target"}:
        return f" {ssh['target']}"
    return " {" + ", ".join(f"{key}: {text}" for key, text in entry.items()) + "}" if entry else ""


def _job(job: FoundJob) -> Iterator[str]:
    counts = Counter(job.hosts)
    names = list(counts)
    evenly = set(counts.values())
    together = [host for host in names for _ in range(counts[host])] == list(job.hosts)
    tasks = evenly.pop() if together and len(evenly) == 1 else 1
    hosts = folded(names if tasks > 1 else job.hosts)
    yield f"  {scalar(job.name)}:{_at(job.place)}"
    yield f"    hosts: {scalar(hosts[0]) if len(hosts) == 1 else words(hosts)}"
    if tasks > 1:
        yield f"    tasks_per_host: {tasks}"
    if job.port is not None:
        yield f"    port: {job.port}"
    for key, (value, place) in job.settings.items():
        yield f"    {key}: {value}{_at(place)}"


def _coordinator(jobs: Sequence[FoundJob]) -> Iterator[str]:
    """The coordinator's port, where tasks may have the usual one."""
    taken = {job.port + step for job in jobs if job.port is not None for step in range(len(job.hosts))}
    if COORDINATOR_PORT in taken:
        free = next(port for port in range(COORDINATOR_PORT - 1, 0, -1) if port not in taken)
        yield f"coordinator: {{port: {free}}}    # {COORDINATOR_PORT} is a task's"

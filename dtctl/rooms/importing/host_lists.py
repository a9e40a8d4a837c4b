"""Reads lists of hosts: MPI and DeepSpeed hostfiles, `-H a:4,b:4`, addresses, and groups of clush. Pure."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from dtctl.config.ranges import LIMIT, expand
from dtctl.errors import ConfigError, Place, UsageError, clipped
from dtctl.rooms.importing.found import (
    Found,
    FoundJob,
    Machine,
    Note,
    Problems,
    Source,
    check_count,
    fail,
    is_address,
    jobs_of_addresses,
    machine_of,
    merged,
)

_COMMENT = re.compile(r"(?:^|\s)#.*")
_SLOTS = re.compile(r"(?P<host>[^\s=]+?)(?::(?P<count>[0-9]{1,6}))?")
_LISTED = re.compile(r"(?:^|[\s'\"])(?:-H|-hosts?|--hosts?)(?:\s+|=)(?P<quote>['\"]?)(?P<hosts>[^\s'\"]+)")
_FLAG = re.compile(r"--?(?P<job>[A-Za-z]\w*)_hosts(?:=|\s+)[\"']?(?P<list>[^\s\"']+)")


def hostfile(text: Source) -> Found:
    """HOST [slots=N] of Open MPI, HOST[:N] of MPICH and Intel MPI: a task for each slot."""
    return _hostfile(text, "an MPI hostfile", gpus=False)


def deepspeed(text: Source) -> Found:
    """The same, where a slot is a GPU."""
    return _hostfile(text, "a DeepSpeed hostfile", gpus=True)


def _hostfile(text: Source, kind: str, *, gpus: bool) -> Found:
    problems, slots, machines, ignored = Problems(), dict[str, int](), list[Machine](), list[Note]()
    for place, line in text.lines():
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        try:
            machine, count, notes = _host_line(words, place, line)
        except ConfigError as error:
            problems.add(error.problems[0].place, error.problems[0].summary, error.problems[0].hint)
            continue
        ignored += notes
        machines.append(machine)
        slots[machine.name] = slots.get(machine.name, 0) + count
    problems.or_raise()
    return _of_slots(kind, machines, slots, ignored, gpus=gpus, nowhere=Place(text.name))


def _host_line(words: Sequence[str], place: Place, line: str) -> tuple[Machine, int, list[Note]]:
    """The machine of a line, its slots, and what is left out. Raises ConfigError."""
    match = _SLOTS.fullmatch(words[0])
    if match is None or "=" in words[0]:
        hint = "write, for example, gpu-1 slots=4"
        raise fail(place, f"{clipped(words[0])!r} is no host, expected HOST [slots=NUMBER]", hint)
    count, notes = match["count"], []
    for word in words[1:]:
        key, equals, value = word.partition("=")
        at = Place(place.file, place.line, line.index(word) + 1)
        if key in ("slots", "cpu", "count"):
            count = _count(value, word, at)
        elif not equals:
            raise fail(at, f"{clipped(word)!r} is no setting of a host, expected slots=NUMBER", "write one host a line")
        elif key not in ("max_slots", "max-slots", "maxslots"):
            notes.append(Note(f"{clipped(key)}: not known here", at))
    return machine_of(match["host"], place), int(count) if count else 1, notes


def _count(value: str, word: str, place: Place) -> str:
    if not re.fullmatch("[0-9]{1,6}", value):
        raise fail(place, f"{clipped(word)!r} has no number of slots", "write, for example, slots=4")
    return value


def _of_slots(
    kind: str,
    machines: Sequence[Machine],
    slots: Mapping[str, int],
    left: Sequence[Note],
    *,
    gpus: bool,
    nowhere: Place,
) -> Found:
    hosts = [one for one in merged(machines) if slots[one.name]]
    if not hosts:
        raise fail(nowhere, "no host is named here, expected lines such as gpu-1 slots=4", _FORMATS)
    unused = [Note(f"{one.name}: it has no slots", one.place) for one in merged(machines) if not slots[one.name]]
    check_count(sum(slots.values()), hosts[0].place)
    fill = [] if gpus or max(slots.values()) == 1 else [Note("hosts.NAME.gpus: a slot may be a GPU or not")]
    placed = tuple(host.name for host in hosts for _ in range(slots[host.name]))
    every = tuple(dataclasses.replace(host, gpus=slots[host.name]) if gpus else host for host in hosts)
    trainer = {"dialect": ("pytorch", hosts[0].place)} if gpus else {}
    jobs = (FoundJob("worker", placed, hosts[0].place),)
    return Found(kind, every, jobs, trainer=trainer, to_fill=tuple(fill), left_out=(*left, *unused))


_FORMATS = "or name another --format"


def listed(text: Source) -> Found:
    """The hosts of mpirun and horovodrun: `-H a:4,b:4`, alone or in the whole command."""
    place = Place(text.name, 1)
    match = _LISTED.search(text.content)
    said = match["hosts"] if match else text.content.strip()
    slots: dict[str, int] = {}
    machines = []
    for part in said.split(","):
        at = Place(text.name, 1 + text.content.count("\n", 0, text.content.find(said)), 0)
        found = _SLOTS.fullmatch(part)
        if found is None:
            raise fail(
                at, f"{clipped(part)!r} is no host, expected HOST:SLOTS", "write, for example, -H gpu-1:4,gpu-2:4"
            )
        machine = machine_of(found["host"], at)
        machines.append(machine)
        slots[machine.name] = slots.get(machine.name, 0) + int(found["count"] or 1)
    made = _of_slots("the hosts of an MPI command", machines, slots, (), gpus=False, nowhere=place)
    command = _program(text.content) if match else ()
    return dataclasses.replace(made, command=command, command_place=place if command else None)


def _program(command: str) -> tuple[str, ...]:
    """The trainer in the words of mpirun: from the interpreter, or the program, on."""
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError:
        return ()
    starts = (at for at, word in enumerate(words) if re.search(r"(?:^|/)python[0-9.]*$|\.py$", word))
    start = next(starts, None)
    return () if start is None else tuple(words[start:])


def addresses(text: Source) -> Found:
    """Addresses, HOST:PORT, one a line or with commas; or --ps_hosts=a:2222 --worker_hosts=b:2222."""
    cluster: dict[str, list[tuple[str, Place]]] = {}
    flags = [(place, match) for place, line in text.lines() for match in _FLAG.finditer(_COMMENT.sub("", line))]
    for place, match in flags:
        at = Place(place.file, place.line, match.start("list") + 1)
        cluster.setdefault(match["job"], []).extend((one, at) for one in match["list"].split(",") if one)
    if not flags:
        cluster["worker"] = list(_plain_addresses(text))
    cluster = {job: found for job, found in cluster.items() if found}
    if not cluster:
        raise fail(Place(text.name), "no address is here, expected lines such as 10.0.0.10:2222", _FORMATS)
    machines, jobs, notes = jobs_of_addresses(cluster)
    return Found("a list of addresses", machines, jobs, to_fill=notes)


def _plain_addresses(text: Source) -> Iterator[tuple[str, Place]]:
    problems = Problems()
    for place, line in text.lines():
        for word in re.finditer(r"[^\s,;]+", _COMMENT.sub("", line)):
            at = Place(place.file, place.line, word.start() + 1)
            if is_address(word[0]):
                yield word[0], at
            else:
                problems.add(
                    at, f"{clipped(word[0])!r} is no address, expected HOST:PORT", "one a line, or with commas"
                )
    problems.or_raise()


_GROUP = re.compile(r"(?P<name>[^\s:#@][^\s:]*)\s*:\s*(?P<nodes>.*)")


def clush(text: Source) -> Found:
    """Groups of ClusterShell, one a line: NAME: gpu-[1-4],@OTHER (clustershell/doc/sphinx/config.rst, flat files)."""
    problems, said = Problems(), dict[str, tuple[str, Place]]()
    for place, line in text.lines():
        own = _COMMENT.sub("", line).rstrip()
        match = _GROUP.fullmatch(own.strip())
        if match is None:
            if own.strip():
                problems.add(
                    place, f"{clipped(own.strip())!r} is no group, expected NAME: NODES", "such as gpu: gpu-[1-4]"
                )
            continue
        at = Place(place.file, place.line, line.index(match["nodes"], line.index(":")) + 1 if match["nodes"] else 0)
        said[match["name"]] = match["nodes"], at
    problems.or_raise()
    return of_nodesets(said, Place(text.name))


def of_nodesets(said: Mapping[str, tuple[str, Place]], nowhere: Place) -> Found:
    """What is found in groups of nodes. Raises ConfigError."""
    groups: dict[str, tuple[str, ...]] = {}
    problems = Problems()
    for name, (_, place) in said.items():
        try:
            groups[name] = tuple(dict.fromkeys(_nodes(name, said, ())))
        except UsageError as error:
            problems.add(place, f"group {name}: {error.summary}", error.hint)
    problems.or_raise()
    machines = merged(machine_of(host, said[name][1]) for name, hosts in groups.items() for host in hosts)
    if not machines:
        raise fail(nowhere, "no group has a node, expected lines such as gpu: gpu-[1-4]", _FORMATS)
    places = {name: place for name, (_, place) in said.items()}
    return Found("a group file of clush", machines, groups=groups, places=places)


def _nodes(name: str, said: Mapping[str, tuple[str, Place]], above: tuple[str, ...]) -> list[str]:
    """The nodes of a group, with those of groups that it names. Raises UsageError."""
    if name in above:
        raise UsageError(f"it contains itself by @{name}", hint="take one of them out")
    found: list[str] = []
    for part in re.findall(r"(?:[^\s,\[]|\[[^\]]*\]?)+", said[name][0]):
        if part.startswith("@"):
            other = part[1:]
            if other == "*":
                found += [node for one in said if one != name for node in _nodes(one, said, (*above, name))]
            elif other not in said:
                known = ", ".join(sorted(said))
                raise UsageError(f"there is no group {clipped(other)!r} in this file", hint=f"groups: {clipped(known)}")
            else:
                found += _nodes(other, said, (*above, name))
        elif re.search(r"[!&^@]|/[0-9]+\]", part):
            hint = f"nodeset -e {shlex.quote(clipped(part))}    of ClusterShell writes the names"
            raise UsageError(f"{clipped(part)!r} calculates with sets, expected names and ranges", hint=hint)
        else:
            found += expand(part)
        if len(found) > LIMIT:
            raise UsageError(f"it has more than {LIMIT} nodes", hint="check the ends of the ranges")
    return found

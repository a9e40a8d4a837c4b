"""Reads lists of hosts: MPI and DeepSpeed hostfiles, and addresses. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from dtctl.errors import ConfigError, Place, clipped
from dtctl.rooms.importing.found import (
    FORMATS_HINT,
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
    local_where_loopback,
    machine_of,
    merged,
)

_COMMENT = re.compile(r"(?:^|\s)#.*")
SLOTS = re.compile(r"(?P<host>[^\s=]+?)(?::(?P<count>[0-9]{1,6}))?")
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
    return of_slots(kind, machines, slots, ignored, gpus=gpus, nowhere=Place(text.name))


def _host_line(words: Sequence[str], place: Place, line: str) -> tuple[Machine, int, list[Note]]:
    """The machine of a line, its slots, and what is left out. Raises ConfigError."""
    match = SLOTS.fullmatch(words[0])
    if match is None or "=" in words[0]:
        hint = "write, for example, gpu-1 slots=4"
        raise fail(place, f"{clipped(words[0])!r} is no host, expected HOST [slots=NUMBER]", hint)
    count, notes, user = match["count"], [], None
    for word in words[1:]:
        key, equals, value = word.partition("=")
        at = Place(place.file, place.line, line.index(word) + 1)
        if key in ("slots", "cpu", "count"):
            count = _count(value, word, at)
        elif key in _USER and equals:
            user = value
        elif not equals:
            raise fail(at, f"{clipped(word)!r} is no setting of a host, expected slots=NUMBER", "write one host a line")
        elif key not in ("max_slots", "max-slots", "maxslots"):
            notes.append(Note(f"{clipped(key)}: not known here", at))
    return machine_of(match["host"], place, user=user), int(count) if count else 1, notes


_USER = ("user", "username", "user_name", "user-name")


def _count(value: str, word: str, place: Place) -> str:
    if not re.fullmatch("[0-9]{1,6}", value):
        raise fail(place, f"{clipped(word)!r} has no number of slots", "write, for example, slots=4")
    return value


def of_slots(
    kind: str,
    machines: Sequence[Machine],
    slots: Mapping[str, int],
    left: Sequence[Note],
    *,
    gpus: bool,
    nowhere: Place,
) -> Found:
    hosts = [one for one in local_where_loopback(merged(machines)) if slots[one.name]]
    if not hosts:
        raise fail(nowhere, "no host is named here, expected lines such as gpu-1 slots=4", FORMATS_HINT)
    unused = [Note(f"{one.name}: it has no slots", one.place) for one in merged(machines) if not slots[one.name]]
    check_count(sum(slots.values()), hosts[0].place)
    fill = [] if gpus or max(slots.values()) == 1 else [Note("hosts.NAME.gpus: a slot may be a GPU or not")]
    placed = tuple(host.name for host in hosts for _ in range(slots[host.name]))
    every = tuple(dataclasses.replace(host, gpus=slots[host.name]) if gpus else host for host in hosts)
    trainer = {"dialect": ("pytorch", hosts[0].place)} if gpus else {}
    jobs = (FoundJob("worker", placed, hosts[0].place),)
    return Found(kind, every, jobs, trainer=trainer, to_fill=tuple(fill), left_out=(*left, *unused))


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
        raise fail(Place(text.name), "no address is here, expected lines such as 10.0.0.10:2222", FORMATS_HINT)
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

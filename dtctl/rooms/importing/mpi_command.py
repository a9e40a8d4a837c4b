"""Reads the hosts of mpirun and horovodrun: `-H a:4,b:4`, alone or in the whole command. Pure."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Mapping, Sequence

from dtctl.agent.host.secrets import hide_text, is_secret_name
from dtctl.errors import Place, clipped
from dtctl.rooms.importing.found import Found, Note, Source, fail, machine_of
from dtctl.rooms.importing.host_lists import SLOTS, of_slots
from dtctl.rooms.importing.written import scalar

_LISTED = re.compile(r"(?:^|[\s'\"])(?:-H|-hosts?|--hosts?)(?:\s+|=)(?P<quote>['\"]?)(?P<hosts>[^\s'\"]+)")
_TASKS = ("-np", "--np", "-n", "--n", "-c")
_PER_HOST = ("-ppn", "--ppn", "-perhost", "-N", "-npernode", "--npernode")
_PROGRAM = re.compile(r"(?:^|/)python[0-9.]*$|\.py$")


def listed(text: Source) -> Found:
    """Raises ConfigError."""
    place = Place(text.name, 1)
    match = _LISTED.search(text.content)
    said = match["hosts"] if match else text.content.strip()
    words = _words(text.content) if match else []
    per_host = _number(words, _PER_HOST) or 1
    slots: dict[str, int] = {}
    machines = []
    for part in said.split(","):
        at = Place(text.name, 1 + text.content.count("\n", 0, text.content.find(said)), 0)
        found = SLOTS.fullmatch(part)
        if found is None:
            raise fail(
                at, f"{clipped(part)!r} is no host, expected HOST:SLOTS", "write, for example, -H gpu-1:4,gpu-2:4"
            )
        machine = machine_of(found["host"], at)
        machines.append(machine)
        slots[machine.name] = slots.get(machine.name, 0) + int(found["count"] or per_host)
    notes = _fill(slots, _number(words, _TASKS), place)
    made = of_slots("the hosts of an MPI command", machines, slots, notes, gpus=False, nowhere=place)
    command = _program(words)
    env, secrets = _variables(words, len(words) - len(command))
    trainer = {**made.trainer}
    if env:
        trainer["env"] = "{" + ", ".join(f"{name}: {scalar(value)}" for name, value in env.items()) + "}", place
    more = [Note(f"{name} has a secret, which is not copied; trainer.secrets can name it", place) for name in secrets]
    return dataclasses.replace(
        made,
        command=command,
        command_place=place if command else None,
        trainer=trainer,
        left_out=(*made.left_out, *more),
    )


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\\\n", " "))
    except ValueError:
        return []


def _number(words: Sequence[str], options: Sequence[str]) -> int | None:
    """The value of the first of these options, before the program."""
    for at, word in enumerate(words[: len(words) - len(_program(words))]):
        option, _, value = word.partition("=")
        value = value or (words[at + 1] if at + 1 < len(words) else "")
        if option in options and re.fullmatch("[0-9]{1,6}", value):
            return int(value)
    return None


def _fill(slots: dict[str, int], tasks: int | None, place: Place) -> tuple[Note, ...]:
    """Leaves as many slots as there are tasks: MPI fills the first hosts first."""
    total = sum(slots.values())
    if tasks is None or tasks == total or not tasks:
        return ()
    if tasks > total:
        return (Note(f"{tasks} tasks on {total} slots: write the slots as HOST:SLOTS", place),)
    for host, count in slots.items():
        slots[host] = min(count, tasks)
        tasks -= slots[host]
    return ()


def _program(words: Sequence[str]) -> tuple[str, ...]:
    """The trainer in the words of mpirun: from the interpreter, or the program, on."""
    start = next((at for at, word in enumerate(words) if _PROGRAM.search(word)), None)
    return () if start is None else tuple(words[start:])


def _variables(words: Sequence[str], end: int) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Variables of `-x NAME=VALUE` before the program, and the names of those with secrets."""
    env, secrets = {}, []
    for option, word in itertools.pairwise(words[:end]):
        name, equals, value = word.partition("=")
        if option == "-x" and equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            if is_secret_name(name) or hide_text(value) != value:
                secrets.append(name)
            else:
                env[name] = value
    return env, tuple(secrets)

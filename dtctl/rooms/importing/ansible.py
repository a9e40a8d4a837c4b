"""Reads Ansible inventories: INI, YAML, and what `ansible-inventory --list` prints. Pure.

`ansible-inventory` itself is not run, even where it is installed: it runs plugins and programs that an inventory and
an ansible.cfg beside it name, and the answer would depend on the machine. A nightly test compares this with it.
"""

from __future__ import annotations

import itertools
import re
import shlex
import string
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from dtctl.agent.host.secrets import is_secret_name
from dtctl.config.document import Document, KeyPath, Scalar
from dtctl.config.ranges import LIMIT, expand
from dtctl.config.yaml12 import parse
from dtctl.dataclass import dataclass
from dtctl.errors import Place, UsageError, clipped
from dtctl.rooms.importing.found import Found, Machine, Note, Problems, Source, fail, machine_of, merged

Variables = dict[str, tuple[str, Place]]

ASK_ANSIBLE = "ansible-inventory -i FILE --list | dtctl import --format ansible -    has Ansible read it"
_SETTINGS = {
    "ansible_host": "target",
    "ansible_ssh_host": "target",
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_port": "port",
    "ansible_ssh_port": "port",
    "ansible_ssh_private_key_file": "identity_file",
    "ansible_private_key_file": "identity_file",
    "gpus": "gpus",
    "num_gpus": "gpus",
    "gpu_count": "gpus",
}
_SSH_WORDS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")


@dataclass(frozen=True)
class _Group:
    place: Place
    hosts: dict[str, Variables] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    variables: Variables = field(default_factory=dict)


class _Inventory:
    """Groups as they are read, and the machines that they make."""

    def __init__(self) -> None:
        self.groups: dict[str, _Group] = {}
        self.first: dict[str, Place] = {}

    def group(self, name: str, place: Place) -> _Group:
        return self.groups.setdefault(name, _Group(place))

    def add(self, group: _Group, pattern: str, variables: Variables, place: Place) -> None:
        """Raises ConfigError."""
        try:
            names = _expanded(pattern)
        except UsageError as error:
            raise fail(place, error.summary, error.hint) from error
        for name in names:
            self.first.setdefault(name, place)
            group.hosts.setdefault(name, {}).update(variables)

    def members(self, name: str, above: tuple[str, ...] = ()) -> dict[str, None]:
        """The hosts of a group and of its children."""
        group = self.groups.get(name)
        if group is None or name in above:
            return {}
        below = (self.members(child, (*above, name)) for child in group.children)
        return dict.fromkeys([*group.hosts, *itertools.chain.from_iterable(below)])

    def _depth(self, name: str, above: tuple[str, ...] = ()) -> int:
        parents = [one for one, group in self.groups.items() if name in group.children and one not in above]
        own = 0 if name == "all" else 1
        return own + max((self._depth(one, (*above, name)) for one in parents), default=0)

    def found(self, name: str) -> Found:
        """Raises ConfigError."""
        if not self.first:
            raise fail(Place(name), "no host is named in this inventory", ASK_ANSIBLE)
        order = sorted(self.groups, key=lambda one: (self._depth(one), one))  # a child's variables win, and then names
        members = {group: self.members(group) for group in self.groups}
        notes: dict[str, Note] = {}
        machines = []
        for host, place in self.first.items():
            variables: Variables = {}
            for group in order:
                if host in members[group] or group == "all":
                    variables.update(self.groups[group].variables)
            for group in order:
                variables.update(self.groups[group].hosts.get(host, {}))
            machines.append(_machine(host, place, variables, notes))
        groups = {
            group: tuple(hosts) for group, hosts in members.items() if hosts and group not in ("all", "ungrouped")
        }
        places = {group: self.groups[group].place for group in groups}
        every, fill = _addressed(merged(machines))
        left = tuple(notes.values())
        return Found("an Ansible inventory", every, groups=groups, places=places, to_fill=fill, left_out=left)


def _addressed(machines: tuple[Machine, ...]) -> tuple[tuple[Machine, ...], tuple[Note, ...]]:
    """The machines; where the one that runs Ansible is one of several, the others need an address for it."""
    local = [one for one in machines if one.is_local]
    if not local or len(local) == len(machines):
        return machines, ()
    every = tuple(
        Machine(**{**vars(one), "target": one.target or one.name}) if one.is_local else one for one in machines
    )
    fill = Note(f"hosts.{local[0].name}.address: as the others reach this machine", local[0].place)
    return every, (fill,)


def _machine(host: str, place: Place, variables: Variables, notes: dict[str, Note]) -> Machine:
    settings: dict[str, Any] = {}
    for key, (value, at) in variables.items():
        name = _SETTINGS.get(key)
        if is_secret_name(key) or value.startswith("$ANSIBLE_VAULT"):
            notes.setdefault(key, Note(f"{key} has a secret, which is not copied; dtctl logs in with keys", at))
        elif "{{" in value:
            notes.setdefault(key, Note(f"{key}: only Ansible can fill in its template; {ASK_ANSIBLE}", at))
        elif name in ("port", "gpus"):
            if not re.fullmatch("[0-9]{1,5}", value):
                raise fail(at, f"{key} is {clipped(value)!r}, expected a number", "write, for example, 22")
            settings[name] = int(value)
        elif name:
            settings[name] = value
        elif key == "ansible_connection" and value == "local":
            settings["is_local"] = True
        elif key in _SSH_WORDS and (jump := _jump(value)):
            settings["jump"] = jump
        else:
            what = "as options of SSH they belong into ~/.ssh/config" if key in _SSH_WORDS else "not used by dtctl"
            notes.setdefault(key, Note(f"{key}: {what}", at))
    if "port" in settings and settings["port"] == 22:
        del settings["port"]
    target = settings.pop("target", None)
    listed = machine_of(host, place)  # user@name:port, as older inventories have it
    if target:
        own = machine_of(f"[{target}]" if ":" in target else target, place, **settings)
        settings = {key: getattr(own, key) or getattr(listed, key) for key in ("user", "port")}
        own = Machine(**{**vars(own), **settings})
    else:
        own = Machine(**{**vars(listed), **settings})
    named = Machine(**{**vars(own), "name": listed.name})
    connects = own.target or own.name
    return Machine(**{**vars(named), "target": None if connects == named.name else connects})


def _jump(value: str) -> str | None:
    """The jump host of options for SSH: of ProxyJump or -J, or of a ProxyCommand that is `ssh -W %h:%p`."""
    if found := re.search(r"(?:ProxyJump[= ]|-J ?)[\"']?([^\s\"']+)", value):
        return found[1]
    command = re.search(r"ProxyCommand[= ]\s*(?P<quote>[\"']?)(?P<words>ssh\s.*)", value)
    if command is None:
        return None
    words = command["words"].partition(command["quote"])[0].split() if command["quote"] else command["words"].split()
    if "-W" not in words or "%h:%p" not in words:
        return None
    options, places = {}, []
    at = 1
    while at < len(words):
        if words[at] in ("-W", "-p", "-l", "-i", "-o", "-F"):
            options[words[at]] = words[at + 1] if at + 1 < len(words) else ""
            at += 1
        elif not words[at].startswith("-"):
            places.append(words[at])
        at += 1
    if len(places) != 1:
        return None
    user, port = options.get("-l"), options.get("-p")
    return (f"{user}@" if user else "") + places[0] + (f":{port}" if port else "")


_RANGE = re.compile(r"\[(?P<first>[0-9A-Za-z]*):(?P<last>[0-9A-Za-z]+)(?::(?P<step>[0-9]{1,4}))?\]")


def _expanded(pattern: str) -> list[str]:
    """The names of a pattern: web[01:50], db-[a:f]. Raises UsageError."""
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    rest = _expanded(pattern[match.end() :])
    names = [pattern[: match.start()] + one + after for one in _between(match) for after in rest]
    if len(names) > LIMIT:
        raise UsageError(f"{clipped(pattern)!r} expands to more than {LIMIT} names", hint="check the ends of the range")
    return names


def _between(match: re.Match[str]) -> list[str]:
    first, last, step = match["first"] or "0", match["last"], int(match["step"] or 1) or 1
    letters = string.ascii_letters
    if first.isdecimal() and last.isdecimal():
        return expand(f"[{first}-{last}]")[::step]
    if len(first) == len(last) == 1 and first in letters and last in letters and first <= last:
        return list(letters[letters.index(first) : letters.index(last) + 1 : step])
    raise UsageError(f"{match[0]!r} is not a range", hint="write [01:50] or [a:f]")


_SECTION = re.compile(r"\[(?P<name>[^\]:]+)(?::(?P<what>[^\]]*))?\]\s*(?:[#;].*)?")


def ini(text: Source) -> Found:
    """Raises ConfigError."""
    inventory, problems = _Inventory(), Problems()
    group, what = inventory.group("ungrouped", Place(text.name)), "hosts"
    for place, line in text.lines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("["):
            section = _SECTION.fullmatch(stripped)
            if section is None or (section["what"] or "hosts") not in ("hosts", "children", "vars"):
                problems.add(
                    place, f"{clipped(stripped)!r} is no section", "expected [GROUP], [GROUP:children], [GROUP:vars]"
                )
                continue
            group, what = inventory.group(section["name"].strip(), place), section["what"] or "hosts"
            continue
        try:
            words = shlex.split(stripped, comments=True)
        except ValueError:
            problems.add(place, "a quote is not closed on this line", "close it")
            continue
        if what == "children":
            group.children[words[0]] = None
            inventory.group(words[0], place)
        elif what == "vars":
            key, _, value = stripped.partition("=")
            group.variables[key.strip()] = value.strip().strip("'\""), place
        else:
            own = {}
            for word in words[1:]:
                key, equals, value = word.partition("=")
                at = Place(place.file, place.line, max(line.find(word.split("=")[0]), 0) + 1)
                if not equals:
                    problems.add(at, f"{clipped(word)!r} is no variable, expected NAME=VALUE", "write one host a line")
                own[key] = value, at
            inventory.add(group, words[0], own, Place(place.file, place.line, line.index(stripped) + 1))
    problems.or_raise()
    return inventory.found(text.name)


_TAG = re.compile(r"(?<=[:\-\s])!(?:vault|unsafe)\b")


def yaml(text: Source) -> Found:
    """Raises ConfigError."""
    document = parse(_TAG.sub(lambda tag: " " * len(tag[0]), text.content), text.name)
    if document.problems:
        problems = Problems()
        for one in document.problems:
            problems.add(one.place, one.summary, one.hint)
        problems.or_raise()
    if not isinstance(document.data, dict):
        raise fail(Place(text.name), "this is no inventory, expected groups such as all:", ASK_ANSIBLE)
    inventory = _Inventory()
    for name, content in document.data.items():
        if name != "_meta":
            _read_group(inventory, document, name, content, (name,))
    meta = document.data.get("_meta")
    hostvars = meta.get("hostvars") if isinstance(meta, dict) else None
    for host, said in hostvars.items() if isinstance(hostvars, dict) else ():
        group = inventory.group("ungrouped", document.key_place(("_meta",)))
        inventory.add(group, host, _variables(document, said, ("_meta", "hostvars", host)), document.key_place(
            ("_meta", "hostvars", host)))  # fmt: skip
    return inventory.found(text.name)


def _read_group(inventory: _Inventory, document: Document, name: str, content: Any, path: KeyPath) -> None:
    place = document.key_place(path)
    group = inventory.group(name, place)
    if content is None:
        return
    if not isinstance(content, dict):
        raise fail(place, f"the group {clipped(name)} is no mapping", "expected hosts:, children: and vars: below it")
    for host, said, at in _entries(content.get("hosts"), (*path, "hosts")):
        inventory.add(group, host, _variables(document, said, at), document.key_place(at))
    group.variables.update(_variables(document, content.get("vars"), (*path, "vars")))
    for child, said, at in _entries(content.get("children"), (*path, "children")):
        group.children[child] = None
        _read_group(inventory, document, child, said, at)


def _entries(said: Any, path: KeyPath) -> Iterator[tuple[str, Any, KeyPath]]:
    """Names with what is below them: of a mapping, or of a list as `ansible-inventory --list` prints it."""
    if isinstance(said, dict):
        yield from ((str(name), content, (*path, name)) for name, content in said.items())
    elif isinstance(said, list):
        yield from ((one.text, None, (*path, index)) for index, one in enumerate(said) if isinstance(one, Scalar))


def _variables(document: Document, said: Any, path: KeyPath) -> Variables:
    pairs: Mapping[str, Any] = said if isinstance(said, dict) else {}
    return {
        key: (value.text if isinstance(value, Scalar) else "", document.value_place((*path, key)))
        for key, value in pairs.items()
    }

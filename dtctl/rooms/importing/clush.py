"""Reads groups of ClusterShell: lines NAME: NODES, YAML with several sources, what `nodeset -LL` prints. Pure.

ClusterShell itself is not asked: it runs the commands that its configuration names. A test compares this with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dtctl.config.document import Scalar
from dtctl.config.ranges import LIMIT, expand
from dtctl.config.yaml12 import parse
from dtctl.errors import Place, UsageError, clipped
from dtctl.rooms.importing.found import FORMATS_HINT, Found, Note, Problems, Source, fail, machine_of, merged

_COMMENT = re.compile(r"(?:^|\s)#.*")
_GROUP = re.compile(r"(?P<name>[^\s:#@][^\s:]*)\s*:\s*(?P<nodes>.*)")
_PRINTED = re.compile(r"@(?P<name>[^\s:]+(?::[^\s:]+)?)\s+(?P<nodes>\S+)")
"""A line of `nodeset -LL`."""
_UPCALL = re.compile(r"^(?:map|confdir|groupsdir|autodir)[ \t]*[:=]", re.MULTILINE)
_SECTION = re.compile(r"^\[[\w.,-]+\][ \t]*$", re.MULTILINE)
ASK = "nodeset -LL | dtctl import --format clush -    has ClusterShell read it"
DEEPEST = 30
"""Groups within groups."""

Groups = Mapping[str, tuple[str, Place]]


def is_main_file(content: str) -> bool:
    """Whether it is a groups.conf, or of groups.conf.d, which names files and commands in place of nodes."""
    return _SECTION.search(content) is not None and _UPCALL.search(content) is not None


def clush(text: Source) -> Found:
    """Raises ConfigError."""
    if is_main_file(text.content):
        hint = f"import the file of groups.d that it names; or: {ASK}"
        raise fail(Place(text.name, 1), "this file names commands that print groups, and no nodes", hint)
    if (sources := _yaml(text)) is not None:
        return _of_sources(sources, text)
    problems, said = Problems(), dict[str, tuple[str, Place]]()
    for place, line in text.lines():
        own = _COMMENT.sub("", line).rstrip()
        match = _GROUP.fullmatch(own.strip()) or _PRINTED.fullmatch(own.strip())
        if match is None:
            if own.strip():
                problems.add(
                    place, f"{clipped(own.strip())!r} is no group, expected NAME: NODES", "such as gpu: gpu-[1-4]"
                )
            continue
        at = Place(place.file, place.line, own.rindex(match["nodes"]) + 1 if match["nodes"] else 0)
        said[match["name"].rpartition(":")[2]] = match["nodes"], at
    problems.or_raise()
    return _found({"": said}, "", Place(text.name))


def is_yaml(text: Source) -> bool:
    """Whether it has sources with groups of nodes."""
    return not is_main_file(text.content) and _yaml(text) is not None


def _yaml(text: Source) -> dict[str, dict[str, tuple[str, Place]]] | None:
    """Source -> its groups; None if it is no such YAML."""
    if not re.search(r"^[\w.-]+[ \t]*:[ \t]*(?:#.*)?$", text.content, re.MULTILINE):
        return None
    document = parse(text.content, text.name)
    if document.problems or not isinstance(document.data, dict):
        return None
    found: dict[str, dict[str, tuple[str, Place]]] = {}
    for source, groups in document.data.items():
        if not isinstance(groups, dict):
            return None
        found[source] = {}
        for group, nodes in groups.items():
            listed = nodes if isinstance(nodes, list) else [nodes]
            if not all(isinstance(one, Scalar) for one in listed):
                return None
            said = ",".join(one.text for one in listed)
            found[source][group] = said, document.value_place((source, group))
    return found


def _of_sources(sources: Mapping[str, Groups], text: Source) -> Found:
    """The groups of the first source: ClusterShell's own choice is in another file, groups.conf."""
    first = next(iter(sources))
    found = _found(sources, first, Place(text.name))
    others = [name for name in sources if name != first]
    if not others:
        return found
    place = next((at for _, at in sources[others[0]].values()), None)
    more = Note(f"groups of {clipped(', '.join(others))}: those of the first source, {first}, are read", place)
    return Found(**{**vars(found), "left_out": (*found.left_out, more)})


def _found(sources: Mapping[str, Groups], source: str, nowhere: Place) -> Found:
    """What is found in the groups of a source. Raises ConfigError."""
    groups: dict[str, tuple[str, ...]] = {}
    problems, resolve = Problems(), _Nodes(sources)
    for name, (_, place) in sources[source].items():
        try:
            groups[name] = tuple(resolve.group(source, name, ()))
        except UsageError as error:
            problems.add(place, f"group {name}: {error.summary}", error.hint)
    problems.or_raise()
    said = sources[source]
    machines = merged(machine_of(host, said[name][1]) for name, hosts in groups.items() for host in hosts)
    if not machines:
        raise fail(nowhere, "no group has a node, expected lines such as gpu: gpu-[1-4]", FORMATS_HINT)
    return Found("a group file of clush", machines, groups=groups, places={name: at for name, (_, at) in said.items()})


_OPERATORS: Mapping[str, Callable[[list[str], list[str]], list[str]]] = {
    ",": lambda left, right: [*left, *right],
    "!": lambda left, right: [one for one in left if one not in set(right)],
    "&": lambda left, right: [one for one in left if one in set(right)],
    "^": lambda left, right: [one for one in [*left, *right] if (one in left) != (one in right)],
}
"""Those of NodeSet, from left to right."""
_TERM = re.compile(r"(?P<operator>[\s,!&^]*)(?P<term>(?:[^\s,!&^\[]|\[[^\]]*\]?)+)")
_STEP = re.compile(r"(?<=[\[,])(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})/(?P<step>[1-9][0-9]{0,8})(?=[\],])")


class _Nodes:
    """The nodes of groups, with those of groups that they name. Raises UsageError."""

    def __init__(self, sources: Mapping[str, Groups]) -> None:
        self._sources = sources
        self._known: dict[tuple[str, str], list[str]] = {}

    def group(self, source: str, name: str, above: tuple[tuple[str, str], ...]) -> list[str]:
        own = (source, name)
        if own in above or len(above) > DEEPEST:
            raise UsageError(f"it contains itself by @{clipped(name)}", hint="take one of them out")
        if own not in self._known:
            self._known[own] = self._set(self._sources[source][name][0], source, (*above, own))
        return self._known[own]

    def _set(self, text: str, source: str, above: tuple[tuple[str, str], ...]) -> list[str]:
        found: list[str] = []
        for match in _TERM.finditer(text):
            operator = match["operator"].strip().strip(",") or ","
            if operator not in _OPERATORS:
                raise UsageError(f"{clipped(text)!r} has two operators with nothing between them", hint=ASK)
            found = list(dict.fromkeys(_OPERATORS[operator](found, self._term(match["term"], source, above))))
            if len(found) > LIMIT:
                raise UsageError(f"it has more than {LIMIT} nodes", hint="check the ends of the ranges")
        return found

    def _term(self, term: str, source: str, above: tuple[tuple[str, str], ...]) -> list[str]:
        if not term.startswith("@"):
            return expand(_STEP.sub(_stepped, term))
        chosen, _, name = term[1:].rpartition(":")
        chosen = chosen or source
        groups = self._sources.get(chosen)
        if groups is None:
            known = ", ".join(self._sources) or "none"
            raise UsageError(f"there is no source {clipped(chosen)!r} in this file, it has {clipped(known)}", hint=ASK)
        names = [one for one in groups if (chosen, one) not in above] if name == "*" else expand(name)
        unknown = next((one for one in names if one not in groups), None)
        if unknown is not None:
            known = ", ".join(sorted(groups))
            raise UsageError(f"there is no group {clipped(unknown)!r} in this file", hint=f"groups: {clipped(known)}")
        return [node for one in names for node in self.group(chosen, one, above)]


def _stepped(match: re.Match[str]) -> str:
    """The numbers of a range with steps: [0-6/2] is [0,2,4,6]. Raises UsageError."""
    numbers = range(int(match["first"]), int(match["last"]) + 1, int(match["step"]))
    if len(numbers) > LIMIT:
        raise UsageError(f"{clipped(match[0])!r} is more than {LIMIT} nodes", hint="check the ends of the ranges")
    width = len(match["first"]) if match["first"].startswith("0") else 0
    return ",".join(str(number).zfill(width) for number in numbers)

"""The keys of cluster.yaml for others: `dtctl explain`, docs/cluster-yaml.md, and the JSON Schema of editors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dtctl.config.document import Scalar
from dtctl.config.kinds import AnyKind, Kind, MapOf
from dtctl.config.launching import TASK_FIELDS
from dtctl.config.section import KeySpec, Section, SectionKind
from dtctl.config.sections import SECTIONS, ClusterFile, HostSsh, SshDefaults
from dtctl.config.yaml12 import parse
from dtctl.dataclass import dataclass
from dtctl.durations import duration_text
from dtctl.model import DIRECTORY_NAMES

ANY = "NAME"
"""Stands in a section's place for the name of a host or a job."""


@dataclass(frozen=True)
class Key:
    """One key of a section; texts are Markdown."""

    path: str
    """The path of the key, such as trainer.command or jobs.NAME.port."""
    type: str
    required: bool
    default: str
    meaning: str
    example: str
    holds: str = ""
    """The section that is its value; empty for a plain value."""


def all_keys() -> Iterator[Key]:
    """All keys, in the order of the reference."""
    for section in SECTIONS:
        yield from (key_of(section, name) for name in keys_shown(section))


def section_texts() -> dict[str, str]:
    """The purpose of each section, by its path."""
    return {_prefix(section): " ".join((section.__doc__ or "").split()) for section in SECTIONS}


def keys_shown(section: type[Section]) -> list[str]:
    """The keys of a section; without those of `ssh` where the reference only refers to them."""
    repeated = SshDefaults.known_keys() if section is HostSsh else {}
    return [name for name in section.known_keys() if name not in repeated]


def key_of(section: type[Section], name: str) -> Key:
    key = section.known_keys()[name]
    inner = _section_in(key.kind)
    return Key(
        path=".".join(filter(None, [_prefix(section), name])),
        type=key.kind.description,
        required=key.required,
        default=_default(key),
        meaning=key.meaning,
        example=key.example,
        holds=_prefix(inner) if inner else "",
    )


def _prefix(section: type[Section]) -> str:
    return "" if section is ClusterFile else section.where


def _section_in(kind: AnyKind) -> type[Section] | None:
    """The section that a key's value is, or has under names of the user's own."""
    if isinstance(kind, MapOf):
        return _section_in(kind.value)
    return kind.section if isinstance(kind, SectionKind) else None


def _default(key: KeySpec) -> str:
    value = key.default
    names = key.kind.names if isinstance(key.kind, Kind) else {}
    if name := next((name for name, meant in names.items() if meant == value), None):
        return name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return duration_text(value)
    if isinstance(value, tuple):
        return "..".join(map(duration_text, value)) if key.attribute.endswith("_s") else str([*value] or "")
    if isinstance(value, int) and value and value % 10**9 == 0:
        return f"{value // 10**9}GB"
    return str(value) if isinstance(value, (str, int)) else ""


def markdown() -> str:
    names = ["NAME_hosts", *TASK_FIELDS, *(f"{name}_dir" for name in DIRECTORY_NAMES)]
    fields = ", ".join(f"`{{{name}}}`" for name in names)
    text = Path(__file__).with_suffix(".md").read_text("utf-8")
    return text.replace("<!-- sections -->", "\n".join(map(_section, SECTIONS))).replace("<!-- fields -->", fields)


def _section(section: type[Section]) -> str:
    title = "The top level" if section is ClusterFile else f"`{section.where}`"
    rows = "".join(_row(section, key) for key in keys_shown(section))
    also = "\nEvery key of [`ssh`](#ssh) may stand here too.\n" if section is HostSsh else ""
    text = " ".join((section.__doc__ or "").split())
    return f"## {title}\n\n{text}\n\n| key | type | default | meaning | example |\n|---|---|---|---|---|\n{rows}{also}"


def _row(section: type[Section], key: str) -> str:
    found = key_of(section, key)
    default = "required" if found.required else found.default and f"`{found.default}`"
    example = found.example and f"`{found.example}`"
    cells = [f"`{key}`", found.type, default, found.meaning, example]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOTHING = {"type": "null"}
_SINGLE_VALUE = {"type": ["string", "number"]}


def json_schema() -> dict[str, Any]:
    """Accepts whatever the loader accepts; what only the loader can check (an unknown host, say) passes."""
    definitions = {one.__name__: _definition(one) for one in SECTIONS if one is not ClusterFile}
    return {"$schema": DIALECT, "title": "cluster.yaml of dtctl", **_definition(ClusterFile), "$defs": definitions}


def _definition(section: type[Section]) -> dict[str, Any]:
    keys = section.known_keys()
    properties = {name: _property(key) for name, key in keys.items()}
    mapping: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [name for name, key in keys.items() if key.required]:
        mapping["required"] = required
    described = {"description": " ".join((section.__doc__ or "").split())}
    shorter = [*([_SINGLE_VALUE] if section.short else []), *([_NOTHING] if section.may_be_empty else [])]
    return {**described, "anyOf": [mapping, *shorter]} if shorter else {**described, **mapping}


def _property(key: KeySpec) -> dict[str, Any]:
    """The JSON Schema that an editor uses, with the example as a value; only what is required has to have one."""
    examples = {"examples": [_plain(parse(key.example, "example").data)]} if key.example else {}
    shape = key.kind.schema if key.required else {"anyOf": [key.kind.schema, _NOTHING]}
    return {"description": key.meaning, **examples, **shape}


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(value) for value in data]
    return data.value if isinstance(data, Scalar) else data

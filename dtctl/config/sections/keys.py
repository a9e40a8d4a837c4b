"""The keys of cluster.yaml as they are explained: for docs/cluster-yaml.md and `dtctl explain`."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from dtctl.config.kinds import Kind, OrText
from dtctl.config.sections import SECTIONS, ClusterFile, Section, SshDefaults
from dtctl.durations import duration_text

ANY = "NAME"
"""Stands in a section's place for the name of a host or a job."""


@dataclass(frozen=True)
class Key:
    """One key of a section; texts are Markdown."""

    path: str
    """As in trainer.command, or jobs.NAME.port."""
    type: str
    required: bool
    default: str
    meaning: str
    example: str
    holds: str = ""
    """The section that is its value; empty for a plain value."""


def all_keys() -> Iterator[Key]:
    """In the order of the reference."""
    for section in SECTIONS:
        yield from (key_of(section, name) for name in keys_shown(section))


def section_texts() -> dict[str, str]:
    """What each section is for, by its place."""
    return {_prefix(section): " ".join((section.__doc__ or "").split()) for section in SECTIONS}


def keys_shown(section: type[Section]) -> list[str]:
    """Its keys, less those of `ssh` where that is only said to be repeated."""
    keys = section.keys_in_order()
    if issubclass(section, SshDefaults) and section is not SshDefaults:
        return [key for key in keys if key not in SshDefaults.model_fields]
    return keys


def key_of(section: type[Section], name: str) -> Key:
    field = section.model_fields[name]
    kind = next((note.words for note in field.metadata if isinstance(note, Kind | OrText)), "")
    names = next((note.names for note in field.metadata if isinstance(note, Kind)), {})
    inner = _section_in(field.annotation)
    return Key(
        path=".".join(filter(None, [_prefix(section), name])),
        type=kind or _type(field.annotation),
        required=section.is_required(name),
        default=_default(field.default, names),
        meaning=field.description or "",
        example=str(field.examples[0]) if field.examples else "",
        holds=_prefix(inner) if inner else "",
    )


def _prefix(section: type[Section]) -> str:
    return "" if section is ClusterFile else section.where


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that a key's value is, or has under names of the user's own."""
    if isinstance(annotation, type) and get_origin(annotation) is None:  # Python 3.10 calls list[str] a type
        return annotation if issubclass(annotation, Section) else None
    return next((found for part in get_args(annotation) if (found := _section_in(part)) is not None), None)


def _type(annotation: Any) -> str:
    """The words of the kinds that the annotation is made of."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        words = next((note.words for note in metadata if isinstance(note, Kind | OrText)), None)
        return words if words is not None else _type(inner)
    parts = [part for part in get_args(annotation) if part is not types.NoneType]
    if get_origin(annotation) in (Union, types.UnionType):
        return "; or ".join(map(_type, parts))
    if get_origin(annotation) is dict:
        return f"a mapping, each name with {_type(parts[1])}"
    if get_origin(annotation) is list:
        return f"a list, each item {_type(parts[0])}"
    return f"[`{annotation.where}`](#{_anchor(annotation.where)})"


def _default(value: object, names: Mapping[str, object]) -> str:
    name = next((name for name, meant in names.items() if meant == value), None)
    if name is not None:
        return name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return duration_text(value)
    if isinstance(value, tuple):
        return "..".join(map(duration_text, value))
    if isinstance(value, int) and value and value % 10**9 == 0:
        return f"{value // 10**9}GB"
    return str(value) if isinstance(value, (str, int)) or (isinstance(value, list) and value) else ""


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return "".join(letter for letter in heading.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")

"""A document checked against the sections: what fits is kept, and what does not becomes problems in plain words."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dtctl.config.checks import EXAMPLES
from dtctl.config.sections import SECTIONS, ClusterFile, Section, sections_with
from dtctl.config.values import ARGS_MAPPING
from dtctl.config.yaml.document import Document, Findings, Path, Scalar, dotted, in_words
from dtctl.errors import did_you_mean

_TYPES = {
    "model_type": "a mapping (lines of KEY: VALUE)",
    "dict_type": "a mapping (lines of KEY: VALUE)",
    "list_type": "a list",
}


def read_sections(document: Document, findings: Findings) -> ClusterFile:
    """The file without its mistakes, so that later checks can speak about the rest."""
    data = document.data
    while True:
        try:
            return ClusterFile.model_validate(data)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                path = document.find(details["loc"])
                _report(details, path, findings)
                data = _without(data, path)


def _report(details: ErrorDetails, path: Path, findings: Findings) -> None:
    if details["type"] == "extra_forbidden":
        siblings = _keys_at(path[:-1])
        findings.add(path, f"{dotted(path)} is not a key here", _hint(str(path[-1]), siblings), at_key=True)
        return
    facts = details.get("ctx", {})
    expected, hint = facts.get("expected") or _expected(details), facts.get("hint") or _example(path, details["input"])
    if details["loc"][-1] == "[key]":
        owner = dotted(path[:-1])
        findings.add(path, f"{owner} has the key {str(path[-1])!r}, expected {expected}", hint, at_key=True)
    else:
        findings.add(path, f"{dotted(path)} is {in_words(details['input'])}, expected {expected}", hint)


def _expected(details: ErrorDetails) -> str:
    """What stands in a place that takes a mapping or a list."""
    if details["loc"][-1] == ARGS_MAPPING:
        return "a mapping of flags, or a list of words"
    name = details.get("ctx", {}).get("class_name")
    short = next((section.short for section in SECTIONS if section.__name__ == name), None)
    return _TYPES[details["type"]] + (f", or text for the key '{short}'" if short else "")


def _hint(key: str, siblings: list[str]) -> str:
    """A slip of a letter is likelier than a key in the wrong place, and that is likelier than anything else."""
    elsewhere = " and of ".join(sections_with(key))
    return (
        did_you_mean(key, siblings, cutoff=0.8)
        or (f"it is a key of {elsewhere}" if elsewhere else did_you_mean(key, siblings))
        or f"keys here: {', '.join(siblings)}"
    )


def _keys_at(path: Path) -> list[str]:
    section = _section_at(path)
    return section.keys_in_order() if section is not None else []


def _section_at(path: Path) -> type[Section] | None:
    where = ".".join(
        "NAME" if depth == 1 and path[0] in ("hosts", "jobs") else str(step) for depth, step in enumerate(path)
    )
    return next((section for section in SECTIONS if section.where == (where or ClusterFile.where)), None)


def _example(path: Path, found: Any) -> str:
    """How the innermost key on the way to `path` may be written that has an example."""
    if isinstance(found, Scalar) and isinstance(found.value, str) and found.text.isdecimal():
        return f"write it without quotes: {found.text}"
    for depth in range(len(path), 0, -1):
        section, key = _section_at(path[: depth - 1]), path[depth - 1]
        field = section.model_fields.get(str(key)) if section is not None else None
        if field is not None and field.examples:
            return f"write, for example, {key}: {field.examples[0]}"
    if not path:
        return ""
    return EXAMPLES.get(str(path[0])) or _example_within(path) or f"dtctl explain {path[0]}    tells what it takes"


def _example_within(path: Path) -> str:
    """Where the place takes a mapping of keys that are known."""
    section = _section_at(path)
    fields = section.model_fields.items() if section is not None else ()
    return next(
        (f"write, for example, {path[-1]}: {{{key}: {one.examples[0]}}}" for key, one in fields if one.examples), ""
    )


def _without(data: Any, path: Path) -> Any:
    """`data` less the value at `path`; of a list nothing is taken out, for its indexes are places: the list goes."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    if not path:
        return {}
    step, rest = path[0], path[1:]
    return {key: _without(value, rest) if key == step else value for key, value in data.items() if key != step or rest}

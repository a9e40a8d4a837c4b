"""JSON Schema of cluster.yaml, by which editors complete keys and mark mistakes while one types."""

from __future__ import annotations

from typing import Any

from dtctl.config.sections import SECTIONS, ClusterFile, Section
from dtctl.config.yaml.document import Scalar
from dtctl.config.yaml.yaml12 import parse

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOTHING = {"type": "null"}
_SINGLE_VALUE = {"type": ["string", "number"]}


def json_schema() -> dict[str, Any]:
    """Accepts whatever the loader accepts; what only the loader can tell (an unknown host, say) it lets pass."""
    schema = ClusterFile.model_json_schema()
    sections = {section.__name__: section for section in SECTIONS}
    definitions = {name: _definition(body, sections[name]) for name, body in schema.pop("$defs").items()}
    top = _definition(schema, ClusterFile)
    return {"$schema": DIALECT, "title": "cluster.yaml of dtctl", **top, "$defs": definitions}


def _definition(body: dict[str, Any], section: type[Section]) -> dict[str, Any]:
    properties = {
        key: _property(body["properties"][key], optional=not section.is_required(key))
        for key in section.keys_in_order()
    }
    mapping = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [key for key in properties if section.is_required(key)]
    if required:
        mapping["required"] = required
    described = {"description": " ".join((section.__doc__ or "").split())}
    shorter = [*([_SINGLE_VALUE] if section.short else []), *([_NOTHING] if section.may_be_empty else [])]
    return {**described, "anyOf": [mapping, *shorter]} if shorter else {**described, **mapping}


def _property(body: dict[str, Any], *, optional: bool) -> dict[str, Any]:
    """pydantic's schema of a field less its titles and defaults, and with examples as values."""
    notes = {
        "description": body.pop("description"),
        "examples": [_plain(parse(example, "example").data) for example in body.pop("examples", [])],
    }
    shape = {key: value for key, value in body.items() if key not in ("title", "default", "required")}
    if "patternProperties" in shape:
        shape["additionalProperties"] = False
    if optional and _NOTHING not in shape.get("anyOf", []):
        shape = {"anyOf": [shape, _NOTHING]}
    return {**{key: note for key, note in notes.items() if note}, **shape}


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(value) for value in data]
    return data.value if isinstance(data, Scalar) else data

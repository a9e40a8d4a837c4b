"""As much of JSON Schema (draft 2020-12) as the schema of cluster.yaml uses; any other keyword is an error."""

from __future__ import annotations

import re
from typing import Any

_NOTES = {"$schema", "$defs", "title", "description", "examples"}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def accepts(schema: dict[str, Any], value: Any, root: dict[str, Any] | None = None) -> bool:
    """Whether `value` is valid."""
    root = root or schema
    return all(_holds(keyword, schema, value, root) for keyword in schema.keys() - _NOTES)


def _holds(keyword: str, schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    wanted = schema[keyword]
    match keyword:
        case "$ref":
            return accepts(root["$defs"][wanted.removeprefix("#/$defs/")], value, root)
        case "allOf":
            return all(accepts(one, value, root) for one in wanted)
        case "anyOf":
            return any(accepts(one, value, root) for one in wanted)
        case "oneOf":
            return sum(accepts(one, value, root) for one in wanted) == 1
        case "type":
            names = [wanted] if isinstance(wanted, str) else wanted
            return any(_is(name, value) for name in names)
        case "enum":
            return value in wanted
        case "minimum":
            return not _is("number", value) or bool(value >= wanted)
        case "maximum":
            return not _is("number", value) or bool(value <= wanted)
        case "minLength":
            return not isinstance(value, str) or len(value) >= wanted
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "items":
            return not isinstance(value, list) or all(accepts(wanted, item, root) for item in value)
        case "required":
            return not isinstance(value, dict) or set(wanted) <= value.keys()
        case "properties" | "patternProperties" | "additionalProperties":
            return not isinstance(value, dict) or _properties_hold(keyword, schema, value, root)
    raise AssertionError(f"{keyword} is not a keyword that this validator knows")


def _is(name: str, value: Any) -> bool:
    if name in ("integer", "number") and isinstance(value, bool):
        return False
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _properties_hold(keyword: str, schema: dict[str, Any], value: dict[str, Any], root: dict[str, Any]) -> bool:
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    if keyword == "properties":
        return all(accepts(named[key], value[key], root) for key in named.keys() & value.keys())
    if keyword == "patternProperties":
        return all(
            accepts(one, value[key], root)
            for pattern, one in patterns.items()
            for key in value
            if re.search(pattern, key)
        )
    others = [key for key in value if key not in named and not any(re.search(pattern, key) for pattern in patterns)]
    return not others or schema[keyword] is not False

"""`hosts.NAME.transport`: the name of a transport, with the settings that it asks for if there are any."""

from __future__ import annotations

from typing import Any

from dtctl.config.kinds import Kind, Unfit, written
from dtctl.config.suggest import did_you_mean
from dtctl.reach import TRANSPORTS, Other

_BARE = [name for name, kind in TRANSPORTS.items() if not kind.settings]
_FULL = {name: kind.settings for name, kind in TRANSPORTS.items() if kind.settings}


def _example(name: str) -> str:
    return f"{{{name}: {{{', '.join(f'{setting}: ...' for setting in _FULL[name])}}}}}"


_WAYS = [*_BARE, *map(_example, _FULL)]
_WORDS = f"{', '.join(_WAYS[:-1])} or {_WAYS[-1]}"


def _read(raw: Any) -> Other:
    if isinstance(raw, dict) and len(raw) == 1 and next(iter(raw)) in _FULL:
        (name, said), *_ = raw.items()
        if not isinstance(said, dict) or set(said) != set(_FULL[name]):
            raise Unfit(_example(name))
        return Other(name, {setting: written(said[setting]) for setting in _FULL[name]})
    name = written(raw)
    if name in _FULL:
        raise Unfit(_example(name))
    if name not in _BARE:
        raise Unfit(hint=did_you_mean(name, [*_BARE, *_FULL]))
    return Other(name)


def _schema() -> dict[str, Any]:
    value = {"type": ["string", "number"]}
    full = [
        {
            "type": "object",
            "properties": {
                name: {
                    "type": "object",
                    "properties": dict.fromkeys(settings, value),
                    "required": list(settings),
                    "additionalProperties": False,
                }
            },
            "required": [name],
            "additionalProperties": False,
        }
        for name, settings in _FULL.items()
    ]
    names = {"enum": _BARE}
    return {"anyOf": [names, *full]} if full else names


TRANSPORT = Kind(_WORDS, _read, _schema())
"""Reads an `Other` even for `ssh` and `local`, whose values are made where the section `ssh` is known."""

"""Puts the code of a mutant into a module that others have imported already."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any

_DATA = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset)


def graft(module: ModuleType, source: str) -> None:
    """What the module is now is what `source` says; who has imported a part of it has the new one."""
    fresh = ModuleType(module.__name__)
    fresh.__dict__.update({name: value for name, value in vars(module).items() if name.startswith("__")})
    exec(compile(source, str(module.__file__), "exec"), fresh.__dict__)
    for name, new in vars(fresh).items():
        old = vars(module).get(name)
        if name.startswith("__") or old is new:
            continue
        if isinstance(old, type) and isinstance(new, type):
            if old.__module__ == module.__name__:
                _graft_class(old, vars(new))
        elif isinstance(new, _DATA):
            if old != new:
                _replace(name, old, new)
        elif is_dataclass(old):
            _graft_fields(old, new)
        else:
            _graft_function(old, new)


def _graft_fields(old: Any, new: Any) -> None:
    """Functions that are told by name stay who they are: they have their new code."""
    for one in fields(old):
        was, now = getattr(old, one.name), getattr(new, one.name)
        if was != now and getattr(was, "__qualname__", was) != getattr(now, "__qualname__", now):
            object.__setattr__(old, one.name, now)


def _replace(name: str, old: object, new: object) -> None:
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and name in vars(module) and vars(module)[name] is old:
            setattr(module, name, new)


def _graft_class(old: type, new: Mapping[str, Any]) -> None:
    for name, value in new.items():
        known = vars(old).get(name)
        if isinstance(value, property) and isinstance(known, property):
            _graft_function(known.fget, value.fget)
        elif isinstance(value, _DATA) and not name.startswith("__") and known != value:
            setattr(old, name, value)
        else:
            _graft_function(known, value)


def _graft_function(old: object, new: object) -> None:
    one, other = _bare(old), _bare(new)
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        one.__code__ = other.__code__
        one.__defaults__ = other.__defaults__
        one.__kwdefaults__ = other.__kwdefaults__


def _bare(function: Any) -> object:
    """Without the decorators of functools, contextlib and classes."""
    function = function.func if isinstance(function, cached_property) else getattr(function, "__func__", function)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function

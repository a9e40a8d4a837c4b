"""`dataclass` as the standard library has it, made in a fifth of its time.

dataclasses.dataclass writes and compiles up to eight methods for each class, half a millisecond of CPU of every
command. Here `__init__` is written so, and `__eq__`, `__hash__` and `__repr__` read the fields when they are called.
That a frozen one is not assigned to is for the type checker, which sees the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, *, frozen=False, eq=True, order=False, kw_only=False):
        if cls is None:
            return partial(dataclass, frozen=frozen, eq=eq, order=order, kw_only=kw_only)
        if order:
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, order=order, kw_only=kw_only)
        methods = {"__repr__": _repr}
        if eq:
            methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        for name in methods.keys() - vars(cls).keys():
            setattr(cls, name, methods[name])
        cls.__doc__ = cls.__doc__ or cls.__name__  # else dataclasses has `inspect` write one
        return dataclasses.dataclass(cls, eq=False, repr=False, kw_only=kw_only)


@cache
def _values_of(cls: Any) -> Callable[[object], object]:
    """Returns what is compared of an instance: thousands of tasks' ids are, in a run of hundreds of hosts."""
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    return attrgetter(*compared) if compared else lambda value: ()


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _values_of(self.__class__)
    return self is other or values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(_values_of(self.__class__)(self))


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"

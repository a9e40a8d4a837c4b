"""Our `dataclass` behaves as the standard library's."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

import pytest

from dtctl.dataclass import dataclass

NAN = float("nan")


def classes(make: Any) -> tuple[type[Any], type[Any], type[Any], type[Any]]:
    @make(frozen=True)
    class Value:
        name: str
        size: float = 0
        secret: str = field(default="", repr=False)
        cached: list[int] = field(default_factory=list, compare=False)

    @make(frozen=True, kw_only=True)
    class Wider(Value):
        more: int = 1

    @make
    class Mutable:
        name: str = ""

    @make(frozen=True, eq=False)
    class Own:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

    return Value, Wider, Mutable, Own


def behaviour(make: Any) -> list[Any]:
    value, wider, mutable, own = classes(make)
    one = value("a", NAN, "s", [1])
    return [
        *(repr(each).split(".")[-1] for each in (one, wider("a", more=2), mutable(), own("a"))),
        one == value("a", NAN, "s", [2]),
        one == value("a", NAN, "t", [1]),
        value("a") == wider("a"),
        value("a") == "a",
        wider("a", more=2) == wider("a", more=3),
        own("a") == own("a"),
        mutable() == mutable(),
        hash(value("a", cached=[1])) == hash(value("a", cached=[2])),
        hash(wider("a")) == hash(wider("a", more=2)),
        mutable.__hash__,
        value.__match_args__,
        dataclasses.asdict(dataclasses.replace(one, size=2.0)),
    ]


def test_instances_compare_hash_and_print_as_those_of_the_standard_library() -> None:
    assert behaviour(dataclass) == behaviour(dataclasses.dataclass)


def test_a_wrong_argument_is_refused() -> None:
    value, *_ = classes(dataclass)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmae'"):
        value(nmae="a")

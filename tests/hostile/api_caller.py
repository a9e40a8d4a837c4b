"""A script that uses `import dtctl` on lying hosts: a program, because time limits are scaled before anything is read.

    python -m tests.hostile.api_caller SOCKETS WAYS LIAR NUMBER...

prints a line of JSON for each call: the number of the lie, the call, and what was wrong with its result or its error.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile import commander

FACTOR = 1 / 15
ENDLESS_S = 6.0
MOST_LINES = 200
"""Of an endless answer."""


def calls() -> dict[str, Callable[[Any, Any], object]]:
    """What a script asks, of a cluster and of its run."""
    import dtctl

    return {
        "attach": lambda cluster, run: dtctl.attach(cluster).id,
        "runs": lambda cluster, run: dtctl.runs(cluster),
        "check": lambda cluster, run: cluster.check(),
        "push": lambda cluster, run: cluster.push(),
        "status": lambda cluster, run: run.status(),
        "logs": lambda cluster, run: first(run.logs()),
        "follow": lambda cluster, run: first(run.logs(follow=True)),
        "metrics": lambda cluster, run: run.metrics(),
        "events": lambda cluster, run: run.events(),
        "diagnose": lambda cluster, run: run.diagnose(),
        "checkpoints": lambda cluster, run: run.checkpoints(),
        "exec": lambda cluster, run: run.exec(["true"]),
        "restart": lambda cluster, run: run.restart("worker:1"),
        "drain": lambda cluster, run: run.drain("a"),
        "stop": lambda cluster, run: run.stop(),
        "wait": lambda cluster, run: wait(run),
    }


def tried(call: Callable[[Any, Any], object], cluster: Any, run: Any, name: str) -> tuple[list[str], bool]:
    """What was wrong, and whether there was a value."""
    from dtctl import errors

    try:
        value = call(cluster, run)
        return list(problems(value, Any, name)), bool(value)
    except errors.DtctlError as error:
        return list(problems(error, Any, name)), False
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:300]], False


def ended(work: Callable[[], tuple[list[str], bool]]) -> tuple[list[str], bool]:
    """Its result. A call that follows an endless answer has no end of its own."""
    found: list[tuple[list[str], bool]] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(ENDLESS_S)
    return found[0] if found else ([], False)


def first(lines: Iterator[Any]) -> list[Any]:
    return [one for one, _ in zip(lines, range(MOST_LINES), strict=False)]


def wait(run: Any) -> Any:
    try:
        return run.wait(1.0)
    except TimeoutError:
        return None


def problems(value: Any, wanted: Any, place: str) -> Iterator[str]:
    """Where a value is not of its declared type, or shows what no terminal should be sent."""
    from tests.hostile.bench import CONTROLS

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = typing.get_type_hints(type(value))
        for one in dataclasses.fields(value):
            yield from problems(getattr(value, one.name), hints[one.name], f"{place}.{one.name}")
        if CONTROLS.search(str(value).replace("\n", "")) and type(value).__str__ is not object.__str__:
            yield f"{place}: str() has control characters: {str(value)[:200]!r}"
    elif isinstance(value, Exception):
        if CONTROLS.search(str(value).replace("\n", "")):
            yield f"{place}: the error has control characters: {str(value)[:200]!r}"
    elif not fits(value, wanted):
        yield f"{place} is {value!r:.200}, expected {wanted}"
    elif isinstance(value, Mapping):
        of_keys, of_values = typing.get_args(wanted) or (Any, Any)
        for key, one in value.items():
            yield from problems(key, of_keys, f"{place}[key]")
            yield from problems(one, of_values, f"{place}[{key!r:.40}]")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        arguments = [one for one in typing.get_args(wanted) if one is not Ellipsis] or [Any]
        for number, one in enumerate(value):
            own = arguments[number] if len(arguments) == len(value) else arguments[0]
            yield from problems(one, own, f"{place}[{number}]")


def fits(value: Any, wanted: Any) -> bool:
    origin = typing.get_origin(wanted)
    if wanted is Any or isinstance(wanted, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in typing.get_args(wanted))
    if origin is typing.Literal:
        return value in typing.get_args(wanted)
    if wanted is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted is None:
        return value is None
    kind = origin or wanted
    return isinstance(value, kind) and (not isinstance(wanted, type) or not issubclass(wanted, Enum) or value in wanted)


def main() -> None:
    sockets, ways, liar, *numbers = sys.argv[1:]
    commander.before_imports(FACTOR)
    import dtctl

    commander.after_imports(FACTOR)
    logging.getLogger("dtctl").addHandler(logging.NullHandler())
    lies: dict[str, int] = {}
    commander.over_sockets(Path(sockets), lies, json.loads(ways))
    for number in numbers:
        for name, call in calls().items():
            lies.update({"a": 0, "b": 0, "c": 0})
            cluster = dtctl.load("cluster.yaml")
            run = dtctl.attach(cluster, "demo-1")
            lies[liar] = int(number)
            found, has_value = ended(partial(tried, call, cluster, run, name))
            said = {"lie": int(number), "call": name, "problems": found[:3], "value": has_value}
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()

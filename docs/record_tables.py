"""The page docs/records.md: tables of what the records of dtctl hold, made from their classes."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from dtctl.agent.records import (
    answers,
    checkpoints,
    checks,
    hooks,
    messages,
    metrics,
    network,
    reasons,
    requests,
    run_state,
    spec,
    starting,
    tensorboard,
    values,
    vitals,
    whole_run,
)
from dtctl.agent.records.exchanges import EXCHANGES, WORDS
from dtctl.agent.records.kinds import Kind, Missing, Record, fields_of

_MODULES = (
    *(values, answers, requests, starting, reasons, spec, run_state, whole_run, messages, hooks),
    *(checkpoints, metrics, tensorboard, vitals, checks, network),
)
_NAMES = {id(kind): name for name, kind in vars(values).items() if isinstance(kind, Kind)}
"""Of the kinds that have one."""


def records_markdown() -> str:
    """The page with a table of every record, module by module."""
    parts = [
        "# Records",
        "<!-- Written by docs/generate.py from dtctl/agent/records; change it there. -->",
        "Fields of the files, requests, answers and messages of [the agent](agent.md), for people who change dtctl. "
        "Names in the column *holds* are words of the first table, or records.",
        *(_section(module) for module in _MODULES),
    ]
    return "\n\n".join(parts) + "\n"


def _section(module: ModuleType) -> str:
    name = module.__name__.rpartition(".")[2]
    heading = f"## {name}\n\n{inspect.getdoc(module)}\n\n"
    if module is values:
        rows = [(name, _spelled(getattr(values, name)), told(values)[name][0]) for name in _NAMES.values()]
        return heading + grid(("word", "is", "meaning"), rows)
    return heading + "\n".join(_table(name, record, module) for name, record in _records(module))


def _records(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Those that the module itself defines, in its order."""
    for name in told(module):
        record = getattr(module, name, None)
        if isinstance(record, type) and issubclass(record, Record):
            yield name, record


def _table(name: str, record: Any, module: ModuleType) -> str:
    about, meanings = told(module)[name]
    own = inspect.get_annotations(record)
    bases = " and ".join(base.__name__ for base in record.__bases__ if base is not Record)
    also = f" Also every field of {bases}." if bases else ""
    lines = [f"**{_title(name, record, module)}**: {about}{also}", ""]
    rows = [_row(field, *fields_of(record)[field], meanings.get(field, "")) for field in own if field != "type"]
    return "\n".join([*lines, grid(("field", "holds", "if absent", "meaning"), rows)])


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns that are empty."""
    used = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    lines = [[row[index] for index in used] for row in [heads, ["---"] * len(heads), *rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if rows else ""


def _title(name: str, record: Any, module: ModuleType) -> str:
    """With the words by which it goes over the wire."""
    spoken = [
        f"`{word}`"
        for table in ("FRAMES", "FROM_AGENT", "FROM_COORDINATOR")
        for word, one in getattr(module, table, {}).items()
        if one is record
    ]
    own = f"{module.__name__.rpartition('.')[2]}.{name}"
    spoken += [f"`{word}`" for word, one in WORDS.items() if one == own]
    spoken += [f"`{word}`" for word, one in EXCHANGES.items() if own in (one.request, one.result)]
    return f"{name} ({', '.join(dict.fromkeys(spoken))})" if spoken else name


def _row(field: str, kind: Kind, usual: object, meaning: str) -> tuple[str, ...]:
    absent = "" if isinstance(usual, Missing) else f"`{json.dumps(usual)}`"
    return f"`{field}`", _holds(kind), absent, meaning


def _holds(kind: Kind) -> str:
    return _NAMES.get(id(kind)) or _spelled(kind)


def _spelled(kind: Kind) -> str:
    sort, *parts = kind.parts
    return _WORDS[sort](kind, *parts) if sort in _WORDS else kind.description


_WORDS: dict[str, Callable[..., str]] = {
    "whole": lambda kind, low, high: f"{low} to {high}" if high < 2**53 else f"{low} or more",
    "number": lambda kind, low, high: f"{low:g} to {high:g}",
    "text": lambda kind, most: f"text, up to {most}",
    "one of": lambda kind, names: ", ".join(f"`{name}`" for name in names),
    "optional": lambda kind, inner: f"{_holds(inner)}; or null",
    "list": lambda kind, inner, most: f"up to {most} of: {_holds(inner)}",
    "mapping": lambda kind, names, inner, most: f"{{{_holds(names)}: {_holds(inner)}}}",
    "record": lambda kind, record: record.__name__,
}


@cache
def told(module: ModuleType) -> dict[str, tuple[str, dict[str, str]]]:
    """Of every name that the module defines: what it says about it, and about its fields."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    body = ast.parse(inspect.getsource(module)).body
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.ClassDef):
            meanings = {
                one.target.id: _text(text)
                for one, text in zip(node.body, [*node.body[1:], ast.Pass()], strict=True)
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            }
            found[node.name] = " ".join((ast.get_docstring(node) or "").split()), meanings
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = _text(after), {}
    return found


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split()).replace("|", "&#124;")
    return ""

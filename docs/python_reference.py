"""The reference of docs/python-api.md, from the docstrings of what `import dtctl` offers."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import dtctl

HEAD = "## Reference\n\n"
FUNCTIONS = (dtctl.load, dtctl.up, dtctl.attach, dtctl.replace, dtctl.runs, dtctl.compare)
CLASSES = (dtctl.Cluster, dtctl.Run)
_OTHERS = {*FUNCTIONS, *CLASSES, dtctl.Outcome, dtctl.TaskState}
VALUES = [one for name in dtctl.__all__ if name != "errors" and (one := getattr(dtctl, name)) not in _OTHERS]
OWN = ("checked", "overrides", "transport")
"""Fields of Cluster that are for dtctl itself."""


def python_api(page: str) -> str:
    """The page, with the reference at its end as the docstrings have it."""
    parts = [
        "<!-- Written by docs/generate.py from the docstrings in dtctl/api; change them there. -->",
        *map(_function, FUNCTIONS),
        *(part for one in CLASSES for part in _class(one)),
        *map(_values, VALUES),
    ]
    return page.partition(HEAD)[0] + HEAD + "\n\n".join(parts) + "\n"


def _class(kind: Any) -> list[str]:
    about = _values(kind) if dataclasses.is_dataclass(kind) else f"### {kind.__name__}\n\n{inspect.getdoc(kind)}"
    methods = [one for name, one in vars(kind).items() if inspect.isfunction(one) and not name.startswith("_")]
    return [about, *(_function(one, f"{kind.__name__}.") for one in methods)]


def _function(function: Any, owner: str = "") -> str:
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.name != "self"]
    plain = str(signature.replace(parameters=own)).replace("'", "")
    shown = re.sub(r"<function (\w+) at \w+>", r"\1", plain)
    return f"### {owner}{function.__name__}\n\n    {function.__name__}{shown}\n\n{inspect.getdoc(function)}"


def _values(kind: Any) -> str:
    about, meanings = told(inspect.getmodule(kind))[kind.__name__]  # type: ignore[arg-type]
    names = [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
    rows = [(f"`{name}`", _type(kind, name), meanings.get(name, "")) for name in names if name not in OWN]
    return f"### {kind.__name__}\n\n{about}\n\n{grid(('field', 'type', 'meaning'), rows)}".rstrip()


def _type(kind: Any, name: str) -> str:
    written = inspect.get_annotations(kind)[name]
    return " or ".join(f"`{one}`" for one in getattr(written, "__forward_arg__", written).split(" | "))


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns that are empty."""
    used = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    lines = [[row[index] for index in used] for row in [heads, ["---"] * len(heads), *rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if rows else ""


@cache
def told(module: ModuleType) -> dict[str, tuple[str, dict[str, str]]]:
    """Of every class that the module defines: what it says about it, and about its fields."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            meanings = {
                one.target.id: " ".join(ast.literal_eval(text.value).split()).replace("|", "&#124;")
                for one, text in itertools.pairwise(node.body)
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, ast.Expr)
            }
            found[node.name] = " ".join((ast.get_docstring(node) or "").split()), meanings
    return found

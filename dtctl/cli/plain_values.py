"""Values of a command line that need no conversion by Typer, which reads each through pydantic.

Importing pydantic and building its adapters takes longer than most commands do.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

_OTHER = object()
"""A value that Typer converts, or refuses."""


def take_plain_values(params: Iterable[Any], command: Callable[..., Any] | None) -> None:
    """Defaults, texts, choices and paths are taken as they are. `command`: the function that has these parameters."""
    for param in params:
        param.process_value = partial(_processed, param, param.process_value, command)


def _processed(param: Any, process: Callable[[Any, Any], Any], command: Any, ctx: Any, value: Any) -> Any:
    plain = _plain(param, command, value)
    if plain is _OTHER:
        return process(ctx, value)
    return plain if param.callback is None else param.callback(ctx, param, plain)


def _plain(param: Any, command: Any, value: Any) -> Any:
    several = param.multiple if param.param_type_name == "option" else param.nargs == -1
    if value is None:
        return _OTHER if param.required else () if several else None
    if isinstance(value, str | int) and value is param.default:
        return value
    if several:
        words = isinstance(value, list | tuple) and value and _kind(param, command) == list[str]
        return tuple(value) if words else _OTHER
    return _of_kind(_kind(param, command), value) if isinstance(value, str) else _OTHER


def _kind(param: Any, command: Any) -> Any:
    """What the function takes there, less None."""
    annotation: Any = inspect.signature(command, eval_str=True).parameters[param.name].annotation
    kind, *_ = typing.get_args(annotation) or (annotation,)
    kinds = [one for one in typing.get_args(kind) if one is not type(None)]
    return kinds[0] if len(kinds) == 1 and typing.get_origin(kind) not in (Literal, list) else kind


def _of_kind(kind: Any, text: str) -> Any:
    if kind is str or (typing.get_origin(kind) is Literal and text in typing.get_args(kind)):
        return text
    return Path(text) if kind is Path and os.access(text, os.R_OK) else _OTHER

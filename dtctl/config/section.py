"""A section of cluster.yaml: a dataclass whose fields are keys, each with its kind, default and meaning.

One source for three uses: reading a file, the JSON Schema of editors, and docs/cluster-yaml.md, for which the text
beneath a key says what it means.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from dtctl.config.document import KeyPath, Scalar
from dtctl.config.kinds import FLAG, MAPPING, UNFIT, AnyKind, MapOf, Report, choice
from dtctl.dataclass import dataclass

S = TypeVar("S", bound="Section")


def key(default: Any = None, example: str = "", *, required: bool = False, later: bool = False) -> Any:
    """A key of a section. A required one has a default all the same: `dtctl.config.checks` reports what is missing.

    `later`: builds before have started runs without it, and with its default a cluster is still that of such a run.
    """
    about = {"example": example, "required": required, "later": later}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: default, metadata=about)
    return dataclasses.field(default=default, metadata=about)


@dataclass(frozen=True)
class KeySpec:
    """`attribute`: its field, which has the unit of a duration in its name: the key `grace` is `grace_s`. A word of
    Python has a `_` there: `from_`."""

    name: str
    attribute: str
    kind: AnyKind
    default: object
    example: str
    required: bool
    section: type[Section]

    @property
    def meaning(self) -> str:
        return self.section.meanings()[self.attribute]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A mapping with known keys. A key without a value is taken as not written, so that an override can clear it.

    Fields that are not made by `key` are no keys: the values of a cluster have some of their own.
    """

    where: ClassVar[str] = ""
    """How messages and the reference call the place of the section."""
    short: ClassVar[str | None] = None
    """The key that a single value stands for, where one may be written in place of the mapping."""
    may_be_empty: ClassVar[bool] = False

    written: ClassVar[frozenset[str]] = frozenset()
    """Fields that the file itself sets; of a section that was read from one."""

    @classmethod
    @cache
    def known_keys(cls) -> Mapping[str, KeySpec]:
        """Its own keys, then those of the section that it extends."""
        hints = get_type_hints(cls, include_extras=True)
        found = {}
        for one in sorted(dataclasses.fields(cls), key=lambda one: one.name not in inspect.get_annotations(cls)):
            if "example" in one.metadata:
                name = one.name.removesuffix("_s").removesuffix("_")
                default = one.default if one.default is not dataclasses.MISSING else {}
                example, required = one.metadata["example"], one.metadata["required"]
                found[name] = KeySpec(name, one.name, _kind_of(hints[one.name]), default, example, required, cls)
        return found

    @classmethod
    @cache
    def meanings(cls) -> dict[str, str]:
        """The meaning of each key: the text below it."""
        found: dict[str, str] = {}
        for base in cls.__bases__:
            found |= base.meanings() if issubclass(base, Section) else {}
        for one, text in itertools.pairwise(_sources(cls.__module__)[cls.__name__].body):
            if isinstance(one, ast.AnnAssign) and isinstance(text, ast.Expr):
                found[ast.unparse(one.target)] = " ".join(ast.literal_eval(text.value).split())
        return found

    def said(self) -> dict[str, Any]:
        """The values that the file sets in this section, by field."""
        attributes = (one.attribute for one in self.known_keys().values())
        return {name: getattr(self, name) for name in attributes if name in self.written}


@dataclass(frozen=True)
class SectionKind:
    """The kind of a key whose value is a section."""

    section: type[Section]

    @property
    def description(self) -> str:
        """A link within the reference."""
        where = self.section.where
        return f"[`{where}`](#{''.join(letter for letter in where.lower() if letter.isalnum() or letter in '-_')})"

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"$ref": f"#/$defs/{self.section.__name__}"}

    def take(self, raw: Any, path: KeyPath, report: Report) -> Any:
        section, keys = self.section, self.section.known_keys()
        if section.short is not None and isinstance(raw, Scalar):
            raw = {section.short: raw}
        if raw is None and section.may_be_empty:
            raw = {}
        if not isinstance(raw, dict):
            report(path, raw, MAPPING + (f", or text for the key '{section.short}'" if section.short else ""))
            return UNFIT
        values = {}
        for name, one in raw.items():
            if name not in keys:
                report((*path, name), one, "")
            elif one is not None and (taken := keys[name].kind.take(one, (*path, name), report)) is not UNFIT:
                values[keys[name].attribute] = taken
        made = section(**values)
        object.__setattr__(made, "written", frozenset(values))
        return made


def _kind_of(annotation: Any) -> AnyKind:
    note = getattr(annotation, "__metadata__", (None,))[0]
    if note is not None:
        return note  # type: ignore[no-any-return]
    if annotation is bool:
        return FLAG
    if get_origin(annotation) is Literal:
        return choice(*get_args(annotation))
    parts = [one for one in get_args(annotation) if one is not NoneType]
    if len(parts) == 2:
        return MapOf(_kind_of(parts[0]), _kind_of(parts[1]))  # type: ignore[arg-type]
    return _kind_of(parts[0]) if parts else SectionKind(annotation)


@cache
def _sources(module: str) -> dict[str, ast.ClassDef]:
    """Read once: `inspect.getsource` of a class parses its whole file for each."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text("utf-8"))
    return {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}

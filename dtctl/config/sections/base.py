"""What all sections have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.config import JsonDict

from dtctl.config.yaml.document import Scalar

REQUIRED: JsonDict = {"required": True}
"""Marks a key that a file must have, for the schema and the reference. It has a default all the same:
`dtctl.config.build` reports what is missing, in words that name the next step."""


class Section(BaseModel):
    """A mapping with known keys. A key without a value is taken as not written, so that an override can clear it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: ClassVar[str]
    """How messages and the reference call the place of the section."""
    short: ClassVar[str | None] = None
    """The key that a single value stands for, where one may be written in place of the mapping."""
    may_be_empty: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _as_mapping(cls, raw: Any) -> Any:
        if cls.short is not None and isinstance(raw, Scalar):
            return {cls.short: raw}
        if raw is None and cls.may_be_empty:
            return {}
        if isinstance(raw, dict):
            return {key: value for key, value in raw.items() if value is not None or key not in cls.model_fields}
        return raw

    @classmethod
    def is_required(cls, key: str) -> bool:
        return cls.model_fields[key].json_schema_extra == REQUIRED

    @classmethod
    def keys_in_order(cls) -> list[str]:
        """Its own keys, then those of the section that it extends."""
        inherited = [key for base in cls.__bases__ for key in getattr(base, "model_fields", ())]
        return [*(key for key in cls.model_fields if key not in inherited), *inherited]

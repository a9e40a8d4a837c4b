"""Files that hold the record of a run."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dtctl.errors import DtctlError
from dtctl.folder import read_regular, replace_file
from dtctl.operations.run_record import RECORD_VERSION, RunRecord

LIMIT_BYTES = 1 << 26

_NO_FILE = (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EFBIG)
"""Errors for a path where another kind of file is in the way."""


class DamagedRecord(Exception):
    """The file exists and is not a valid record."""


class OtherVersion(Exception):
    """The file is the record of a dtctl version with another format."""


class UnreadRecord(Exception):
    """The file cannot be read now, and may hold a record."""


def read_record(path: Path) -> RunRecord | None:
    """The record in a file; None if there is no file. Raises DamagedRecord, OtherVersion and UnreadRecord."""
    try:
        data = json.loads(read_regular(path, LIMIT_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise (DamagedRecord if error.errno in _NO_FILE else UnreadRecord)(str(error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise DamagedRecord("it is not the record of a run") from error
    return record_from(data)


def record_from(data: Any) -> RunRecord:
    """The record from parsed JSON. Raises DamagedRecord and OtherVersion."""
    try:
        if (version := data["version"]) != RECORD_VERSION:
            if type(version) is not int:
                raise ValueError("no version")
            raise OtherVersion(f"it is of version {version}, and this dtctl reads {RECORD_VERSION}")
        record = RunRecord.from_json(data)
    except (DtctlError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedRecord("it is not the record of a run") from error
    if not (fits(record, RunRecord) and _is_consistent(record)):
        raise DamagedRecord("it is not the record of a run")
    return record


def write_record(path: Path, record: RunRecord) -> None:
    replace_file(path, json.dumps(record.to_json()).encode())


def _is_consistent(record: RunRecord) -> bool:
    """Whether every host that has tasks is among the hosts."""
    return record.lead in record.roster and set(record.roster.values()) <= record.hosts.keys()


def fits(value: Any, kind: Any) -> bool:
    """Whether a value has the annotated type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Mapping:
        return isinstance(value, Mapping) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if origin in (frozenset, tuple):
        return isinstance(value, origin) and all(fits(each, inner[0]) for each in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    hints = _fields(kind)
    return isinstance(value, kind) and all(fits(getattr(value, name), hint) for name, hint in hints.items())


@functools.cache
def _fields(kind: type) -> Mapping[str, Any]:
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}

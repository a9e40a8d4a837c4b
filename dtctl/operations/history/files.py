"""Records of runs as files: written all at once, and believed only if every field is valid."""

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
from dtctl.operations.history.record import RECORD_VERSION, RunRecord
from dtctl.places import read_regular, replace_file

_LIMIT_BYTES = 1 << 26

_NO_FILE = (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EFBIG)
"""Something else is in the file's place."""


class DamagedRecord(Exception):
    """The file is there, and is no record."""


class OtherVersion(Exception):
    """The file is the record of a version of dtctl that writes them otherwise."""


class UnreadRecord(Exception):
    """The file cannot be read now, and may hold a record."""


def read_record(path: Path) -> RunRecord | None:
    """None for a file that is not there. Raises DamagedRecord, OtherVersion and UnreadRecord."""
    try:
        data = json.loads(read_regular(path, _LIMIT_BYTES))
        if (version := data["version"]) != RECORD_VERSION:
            if type(version) is not int:
                raise ValueError("no version")
            raise OtherVersion(f"it is of version {version}, and this dtctl reads {RECORD_VERSION}")
        record = RunRecord.from_json(data)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise (DamagedRecord if error.errno in _NO_FILE else UnreadRecord)(str(error.strerror)) from error
    except (DtctlError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedRecord("it is not the record of a run") from error
    if not (_fits(record, RunRecord) and _is_consistent(record)):
        raise DamagedRecord("it is not the record of a run")
    return record


def write_record(path: Path, record: RunRecord) -> None:
    replace_file(path, json.dumps(record.to_json(), indent=1).encode())


def _is_consistent(record: RunRecord) -> bool:
    """A host that has tasks is among the hosts."""
    return record.lead in record.roster and set(record.roster.values()) <= record.hosts.keys()


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of the type that is written beside its name."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if origin is frozenset:
        return isinstance(value, frozenset) and all(_fits(each, inner[0]) for each in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    hints = _fields(kind)
    return isinstance(value, kind) and all(_fits(getattr(value, name), hint) for name, hint in hints.items())


@functools.cache
def _fields(kind: type) -> Mapping[str, Any]:
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}

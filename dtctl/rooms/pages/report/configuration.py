"""What a run was started with, and its cluster file as it reads now; everything that may be a secret is masked."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from dtctl.agent.host.secrets import MASK, Masks, hide_text, hides_next, is_secret_name
from dtctl.config.document import Scalar, settings_of
from dtctl.config.yaml12 import parse
from dtctl.dataclass import dataclass
from dtctl.errors import ConfigError, PreflightError
from dtctl.folder import read_regular
from dtctl.operations.local import read_env_file
from dtctl.operations.run_record import RunRecord

LIMIT_BYTES = 1 << 20
LEAST_SECRET = 4
"""A shorter value is found everywhere, and masks nothing but the text."""

_ODD = re.compile(r"""^$|^[-?:] |^[\[\]{}#&!|>'"%@`,]|: | #|:$""")


@dataclass(frozen=True)
class Configuration:
    """`lines`: the file as YAML, without its comments. `problem`: why there are none."""

    file: Path | None
    lines: tuple[str, ...] = ()
    problem: str = ""
    settings: tuple[Setting, ...] = ()
    """What the run was started with, as its hosts report it; nothing of a run of an earlier version."""
    now: Mapping[str, str] = field(default_factory=dict)
    """The keys of the file as it reads now, as in `settings`."""

    @property
    def differences(self) -> list[str]:
        """The keys for which the file has another value by now, without those that `--set` has given."""
        if not (self.settings and self.now):
            return []
        of_run = {one.key: one.value for one in self.settings if one.key not in _NOT_OF_FILE}
        given = {one.key for one in self.settings if one.is_set}
        return [key for key in {**of_run, **self.now} if key not in given and of_run.get(key) != self.now.get(key)]


@dataclass(frozen=True)
class Setting:
    """A key of the cluster file, as in trainer.args.rate, and its value. `is_set`: `--set` has given it."""

    key: str
    value: str
    is_set: bool = False


_NOT_OF_FILE = ("trainer.code",)
"""Settings that have another value than the file: a digest of the code that was sent."""


def configuration_of(record: RunRecord, environ: Mapping[str, str]) -> Configuration:
    """What the run was started with, and the file as it reads now: it may have been changed since."""
    settings = (Setting(key, hide_text(value), key in record.overridden) for key, value in record.settings.items())
    return dataclasses.replace(read_configuration(record.file, environ), settings=tuple(settings))


def read_configuration(file: Path | None, environ: Mapping[str, str]) -> Configuration:
    """The cluster file as it reads now."""
    if file is None:
        return Configuration(None, problem="the run's cluster file is not known on this machine")
    try:
        data = parse(read_regular(file, LIMIT_BYTES).decode("utf-8-sig"), file.name).data
    except (OSError, UnicodeDecodeError) as error:
        return Configuration(file, problem=f"it cannot be read: {getattr(error, 'strerror', None) or error}")
    except ConfigError as error:
        return Configuration(file, problem=error.problems[0].summary)
    now = settings_of(data) if isinstance(data, dict) else {}
    masks = Masks(_values(data, file, environ))
    return Configuration(
        file, tuple(_outline(data, masks)), now={key: text for key, text in now.items() if key not in _NOT_OF_FILE}
    )


def _values(data: Any, file: Path, environ: Mapping[str, str]) -> frozenset[str]:
    """The values of the trainer's secrets that this machine still has."""
    trainer = data.get("trainer") if isinstance(data, dict) else None
    if not isinstance(trainer, dict):
        return frozenset()
    known = dict(environ)
    env_file = trainer.get("env_file")
    if isinstance(env_file, Scalar):
        with suppress(PreflightError):  # nothing of it is shown anyway
            known.update(read_env_file(file.parent / Path(env_file.text).expanduser()))
    names = trainer.get("secrets")
    named = [one.text for one in names if isinstance(one, Scalar)] if isinstance(names, list) else []
    return frozenset(known[name] for name in named if len(known.get(name, "")) >= LEAST_SECRET)


def _outline(data: Any, masks: Masks, indent: str = "") -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _entry(f"{indent}{_word(masks.hide_text(str(key)))}:", str(key), value, masks, indent)
    elif isinstance(data, list):
        hidden = False
        for value in data:
            shown = Scalar(MASK, MASK) if hidden and isinstance(value, Scalar) else value
            yield from _entry(f"{indent}-", "", shown, masks, indent)
            hidden = isinstance(value, Scalar) and hides_next(value.text)
    elif data is not None:
        yield f"{indent}{_scalar(data, masks)}"


def _entry(head: str, key: str, value: Any, masks: Masks, indent: str) -> Iterator[str]:
    if value is None or value in ({}, []):
        yield head + ("" if value is None else " {}" if value == {} else " []")
    elif isinstance(value, Scalar) and "\n" in value.text.strip() and not is_secret_name(key):
        yield f"{head} |"
        yield from (f"{indent}  {line}" for line in masks.hide_text(value.text.rstrip()).split("\n"))
    elif isinstance(value, Scalar):
        yield f"{head} {MASK if is_secret_name(key) else _scalar(value, masks)}"
    elif is_secret_name(key) and key != "secrets":  # that file has only names
        yield f"{head} {MASK}"
    else:
        yield head
        yield from _outline(value, masks, indent + "  ")


def _scalar(value: Scalar, masks: Masks) -> str:
    return _word(masks.hide_text(value.text))


def _word(text: str) -> str:
    """A text as a YAML scalar: quoted if YAML would read it otherwise, with line ends escaped."""
    plain = text.isprintable() and text == text.strip() and not _ODD.search(text)
    return text if plain else json.dumps(text, ensure_ascii=False)

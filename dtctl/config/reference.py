"""docs/cluster-yaml.md, written from the sections themselves, so that it cannot fall behind them."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from dtctl.config.kinds import Kind, OrText
from dtctl.config.launching import TASK_FIELDS
from dtctl.config.sections import SECTIONS, ClusterFile, HostSsh, Section, SshDefaults
from dtctl.durations import duration_text
from dtctl.model import DIRECTORY_NAMES

_PREFACE = """\
# cluster.yaml

<!-- Written by `make docs` from dtctl/config/sections; changes belong there. -->

One file describes a cluster: its machines, its jobs, and the program that trains. `cluster.yaml.example` is a sample
with every key; `dtctl validate` checks a file and names every mistake with its line and column; `dtctl schema` prints a
JSON Schema for editors; `--set path=value` replaces a value for one command: `--set trainer.args.train_steps=100`.

The file is the one named as argument or by `--config`; else the one that `$DTCTL_CONFIG` names; else `./cluster.yaml`;
else the nearest `cluster.yaml` above it in the same repository.

The smallest file that trains:

```yaml
name: digits
hosts: {gpu-1: , gpu-2: }
jobs:
  ps: {hosts: gpu-1}
  worker: {hosts: "gpu-[1-2]"}
trainer: {command: python train.py}
```
"""

_SYNTAX = """\
## How values are written

YAML 1.2: only `true` and `false` are booleans (`no` and `on` are text), `2222:22` is text, and a key that is written
twice is an error. Anchors, aliases and merge keys (`<<`) work. A key without a value is taken as not written.

- A **range** in a name stands for several: `gpu-[1-4]`, `n[01-12]`, `r[1-3,5]n[1-2]`. Inside YAML's `[...]` and `{...}`
  a range needs quotes: `{hosts: "gpu-[1-4]"}`.
- A cluster has at most 10,000 hosts and 10,000 tasks; a file at most 1 MB and 20,000 values, those of aliases and merge
  keys counted each time. The names of hosts and users consist of letters, digits and `.-_`; an address of IPv6 may have
  a zone.
- A **duration** is a number with a unit (`500ms`, `30s`, `5m`, `2h`, `1d`), or a number of seconds.
- A **list of words** may be written as text, which is split as a shell would split it; no shell ever sees it.
- A value in `env`, `args`, `command` and `template` is passed on as it is written: `1.10` stays `1.10`.
"""

_FIELDS = """\
## Fields

{fields}

`{{NAME_hosts}}` holds the addresses of the job NAME in the order of its tasks, joined with commas; the others tell a
task its own place. In `template` an unknown field is an error; in `command`, `args` and `env` known fields are filled
in, and any other text in braces stays as it is.
"""


def markdown() -> str:
    return "\n".join([_PREFACE, *(_section(section) for section in SECTIONS), _fields(), _SYNTAX])


def _section(section: type[Section]) -> str:
    title = "The top level" if section is ClusterFile else f"`{section.where}`"
    keys = section.keys_in_order()
    if issubclass(section, SshDefaults) and section is not SshDefaults:
        keys = [key for key in keys if key not in SshDefaults.model_fields]
    rows = "".join(_row(section, key) for key in keys)
    also = "\nEvery key of [`ssh`](#ssh) may stand here too.\n" if section is HostSsh else ""
    text = " ".join((section.__doc__ or "").split())
    return f"## {title}\n\n{text}\n\n| key | type | default | meaning | example |\n|---|---|---|---|---|\n{rows}{also}"


def _row(section: type[Section], key: str) -> str:
    field = section.model_fields[key]
    kind = next((note.words for note in field.metadata if isinstance(note, Kind | OrText)), "")
    names = next((note.names for note in field.metadata if isinstance(note, Kind)), {})
    default = "required" if section.is_required(key) else _default(field.default, names)
    example = f"`{field.examples[0]}`" if field.examples else ""
    cells = [f"`{key}`", kind or _type(field.annotation), default, field.description or "", example]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _type(annotation: Any) -> str:
    """The words of the kinds that the annotation is made of."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        words = next((note.words for note in metadata if isinstance(note, Kind | OrText)), None)
        return words if words is not None else _type(inner)
    parts = [part for part in get_args(annotation) if part is not types.NoneType]
    if get_origin(annotation) in (Union, types.UnionType):
        return "; or ".join(map(_type, parts))
    if get_origin(annotation) is dict:
        return f"a mapping, each name with {_type(parts[1])}"
    if get_origin(annotation) is list:
        return f"a list, each item {_type(parts[0])}"
    return f"[`{annotation.where}`](#{_anchor(annotation.where)})"


def _default(value: object, names: Mapping[str, object]) -> str:
    name = next((name for name, meant in names.items() if meant == value), None)
    if name is not None:
        return f"`{name}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        return f"`{duration_text(value)}`"
    if isinstance(value, tuple):
        return f"`{'..'.join(map(duration_text, value))}`"
    return f"`{value}`" if isinstance(value, (str, int)) or (isinstance(value, list) and value) else ""


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return "".join(letter for letter in heading.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


def _fields() -> str:
    fields = ", ".join(
        f"`{{{field}}}`" for field in ["NAME_hosts", *TASK_FIELDS, *(f"{name}_dir" for name in DIRECTORY_NAMES)]
    )
    return _FIELDS.format(fields=fields)

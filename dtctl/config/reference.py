"""docs/cluster-yaml.md, written from the sections themselves, so that it cannot fall behind them."""

from __future__ import annotations

from dtctl.config.launching import TASK_FIELDS
from dtctl.config.sections import SECTIONS, ClusterFile, HostSsh, Section
from dtctl.config.sections.keys import key_of, keys_shown
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
    rows = "".join(_row(section, key) for key in keys_shown(section))
    also = "\nEvery key of [`ssh`](#ssh) may stand here too.\n" if section is HostSsh else ""
    text = " ".join((section.__doc__ or "").split())
    return f"## {title}\n\n{text}\n\n| key | type | default | meaning | example |\n|---|---|---|---|---|\n{rows}{also}"


def _row(section: type[Section], key: str) -> str:
    found = key_of(section, key)
    default = "required" if found.required else found.default and f"`{found.default}`"
    example = found.example and f"`{found.example}`"
    cells = [f"`{key}`", found.type, default, found.meaning, example]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _fields() -> str:
    fields = ", ".join(
        f"`{{{field}}}`" for field in ["NAME_hosts", *TASK_FIELDS, *(f"{name}_dir" for name in DIRECTORY_NAMES)]
    )
    return _FIELDS.format(fields=fields)

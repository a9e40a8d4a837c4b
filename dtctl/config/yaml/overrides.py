"""`--set path=value`: single values over those of the file, written as in the file."""

from __future__ import annotations

from collections.abc import Sequence

from dtctl.config.yaml.document import Document, Path, in_words
from dtctl.config.yaml.yaml12 import parse
from dtctl.errors import ConfigError, Place, Problem


def apply_overrides(document: Document, overrides: Sequence[str]) -> None:
    """Puts each value in its place, in the order given; what cannot be placed is added to the document's problems."""
    for override in overrides:
        shown = " ".join(override.split())
        name = f"--set {shown if len(shown) <= 60 else shown[:57] + '...'}"
        keys, equals, value = override.partition("=")
        if not (equals and all(keys.strip().split("."))):
            hint = "write --set path=value, for example --set dirs.work=/tmp/x"
            document.problems.append(Problem(Place(name), f"{override!r} is not an override", hint))
            continue
        try:
            part = parse(value, name, places=False)
            document.graft(_path(document, keys.strip(), name), part)
        except ConfigError as error:
            document.problems += error.problems


def _path(document: Document, keys: str, name: str) -> Path:
    """The steps that `keys` names; names of hosts may hold dots, so the longest key that is there wins."""
    path: list[str | int] = []
    here = document.data
    while keys:
        if here is not None and not isinstance(here, dict):
            owner = ".".join(map(str, path))
            summary = f"{owner} is {in_words(here)}, so {keys} cannot be set in it"
            raise ConfigError([Problem(Place(name), summary, f"set it whole: --set '{owner}=...'")])
        known = [key for key in here or {} if f"{keys}.".startswith(f"{key}.")]
        step = max(known, key=len, default=keys.partition(".")[0])
        keys = keys[len(step) + 1 :]
        here = (here or {}).get(step)
        path.append(step)
    return tuple(path)

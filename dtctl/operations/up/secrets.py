"""The values of a trainer's secrets: where they come from, and whether others can read them there."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dtctl.agent.records.hooks import Post
from dtctl.errors import PreflightError
from dtctl.model import Cluster, problem_of_post
from dtctl.places import read_regular

_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class Exposure:
    """Others can read the file of secrets, or put another one in its place."""

    file: Path
    what: str
    remedy: str


def find_secrets(cluster: Cluster, environ: Mapping[str, str]) -> dict[str, str]:
    """The secrets' values, from the env file first. Raises PreflightError with the names of those that are missing."""
    names = cluster.trainer.secrets
    known = {**environ, **(read_env_file(cluster.trainer.env_file) if cluster.trainer.env_file else {})}
    missing = [name for name in names if name not in known]
    if missing:
        raise PreflightError(
            f"no value for the secret{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            hint=f"export {missing[0]}=...    or write it to the trainer's env_file",
        )
    return {name: known[name] for name in names}


def find_hooks(cluster: Cluster, environ: Mapping[str, str]) -> tuple[Post, ...]:
    """The hooks that post, with the values of their variables. Raises PreflightError, which shows none of them."""
    posting = [hook for hook in cluster.hooks.values() if hook.post]
    if not posting:
        return ()
    file = cluster.trainer.env_file
    known = {**environ, **(read_env_file(file) if file else {})}
    found = []
    for hook in posting:
        missing = [name for name in hook.variables if not known.get(name)]
        if missing:
            raise PreflightError(
                f"no value for {missing[0]}, which hooks.{hook.name} needs",
                hint=f"export {missing[0]}=...    or write it to the trainer's env_file",
            )
        post = hook.filled(known)
        if problem := problem_of_post(post):
            named = ", ".join(hook.variables)
            raise PreflightError(
                f"hooks.{hook.name} cannot post with the value of {named}", detail=f"expected {problem}"
            )
        found.append(post)
    return tuple(found)


def read_env_file(path: Path) -> dict[str, str]:
    """NAME=VALUE lines; blank lines and # comments are passed over, matching quotes around a value are taken off.

    Raises PreflightError, which quotes nothing of the file.
    """
    values = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        text = line.strip().removeprefix("export ").lstrip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise PreflightError(f"{path}:{number}: not a line of the form NAME=VALUE")
        if "\0" in value:
            raise PreflightError(f"{path}:{number}: the value contains a NUL, which no variable can hold")
        value = value.strip()
        quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
        values[name.strip()] = value[1:-1] if quoted else value
    return values


def exposure(cluster: Cluster) -> Exposure | None:
    """None where nobody but the user gets at the env file, as far as its mode and its directory's tell."""
    path = cluster.trainer.env_file
    if path is None:
        return None
    try:
        mode, above = path.stat().st_mode, path.parent.stat().st_mode
    except OSError:
        return None
    if mode & 0o077:
        verb = "changed" if mode & 0o022 else "read"
        what = f"can be {verb} by other users (mode {stat.S_IMODE(mode):04o})"
        return Exposure(path, what, f"chmod 600 {path}")
    if above & 0o022 and not above & stat.S_ISVTX:
        what = f"can be replaced by other users, who may write to its directory (mode {stat.S_IMODE(above):04o})"
        return Exposure(path, what, f"chmod go-w {path.parent}")
    return None


def _text(path: Path) -> str:
    try:
        return read_regular(path, _LIMIT_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise PreflightError(
            f"cannot read the env_file {path}",
            detail=str(error.strerror),
            hint=f"ls -l {path}    shows it: expected are NAME=VALUE lines that you may read",
        ) from error
    except UnicodeDecodeError as error:
        raise PreflightError(
            f"the env_file {path} is not UTF-8 text",
            hint=f"iconv -f latin1 -t utf-8 {path}    if it is Latin-1",
        ) from error

"""What the trainers' environment is made of: the files of the code that say so, and those that they name."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from dtctl.config.cluster import Cluster
from dtctl.errors import PreflightError

_MOST_TEXT_BYTES = 16 << 20
_CHUNK = 1 << 20
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILES = ("-r", "--requirement", "-c", "--constraint")
_LINKS = ("-f", "--find-links")
_EDITABLE = ("-e", "--editable")


def environment_files(cluster: Cluster) -> Mapping[str, str]:
    """By their paths in the code, with their SHA-256. Raises PreflightError where one is not there or leads astray."""
    said, code = cluster.trainer.environment, cluster.trainer.code
    if said is None:
        return {}
    if said.kind == "requirements":
        names = list(dict.fromkeys(_requirements(code, posixpath.normpath(said.what), [])))
    elif said.kind == "uv":
        names = [posixpath.normpath(posixpath.join(said.what, name)) for name in ("pyproject.toml", "uv.lock")]
        _refuse_directories(_text(code, names[1]), names[1])
    else:
        names = [posixpath.normpath(said.file)] if said.file else []
    return {name: _sha256(code, name) for name in names}


def _requirements(code: Path, name: str, above: list[str]) -> Iterator[str]:
    """A file of requirements, and those that it names, wheels and archives of the code too."""
    if name in above:
        return
    yield name
    for number, line in _lines(_text(code, name)):
        at = f"{name}:{number}"
        option, value = _option(line)
        if option in _EDITABLE:
            raise _refuse(f"{at}: {line} installs from the code directory, which is another one for every change of it")
        if option in _FILES:
            if _URL.match(value):
                raise _refuse(f"{at}: {value} is elsewhere, so its content is not known")
            yield from _requirements(code, _inside(posixpath.join(posixpath.dirname(name), value), at), [*above, name])
        elif option in _LINKS:
            yield from _linked(code, value, posixpath.dirname(name))
        elif not option and re.search(r"(^|@\s*)file:", line):
            raise _refuse(f"{at}: {line} is a URL, so its content is not known: write ./NAME.whl")
        elif not option and _is_local(code, word := line.split()[0].partition("[")[0]):
            local = _inside(word, at)
            if (code / local).is_dir():
                raise _refuse(f"{at}: {local} is a directory of the code, which changes without its name")
            yield local


def _linked(code: Path, value: str, beside: str) -> list[str]:
    """The packages in a directory of the code, which pip searches relative to the file first."""
    for place in (posixpath.normpath(posixpath.join(beside, value)), posixpath.normpath(value)):
        if not place.startswith(("/", "..")) and (code / place).is_dir():
            return sorted(f"{place}/{one.name}" for one in (code / place).iterdir() if one.is_file())
    return []


def _is_local(code: Path, word: str) -> bool:
    """A package of the code: pip takes any path, and any archive that is there."""
    return word.startswith((".", "/", "~")) or (not _URL.match(word) and ("/" in word or (code / word).is_file()))


_MEMBERS = re.compile(r"^members = \[(.*?)\]", re.MULTILINE | re.DOTALL)
_LOCAL = re.compile(
    r'^\[\[package\]\]\nname = "([^"]+)"\n(?:version = .*\n)?source = \{ (?:editable|directory) = "([^"]+)" \}',
    re.MULTILINE,
)


def _refuse_directories(lock: str, name: str) -> None:
    """The project itself and the members of its workspace are not installed; other directories would be."""
    found = _MEMBERS.search(lock)
    members = found.group(1) if found else ""
    for package, path in _LOCAL.findall(lock):
        if path != "." and f'"{package}"' not in members:
            raise _refuse(f"{name}: {package} is the directory {path}, which changes without its name")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines with the numbers of their first ones, without comments, as pip reads them."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        joined += line.removesuffix("\\")
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            continue
        bare = re.sub(r"(^|\s+)#.*", "", joined).strip()
        if bare:
            yield first, bare
        joined, first = "", 0


def _option(line: str) -> tuple[str, str]:
    """-r FILE, -rFILE, --requirement FILE, --requirement=FILE"""
    if not line.startswith("-"):
        return "", ""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    name, equals, value = words[0].partition("=")
    if not line.startswith("--"):
        return words[0][:2], words[0][2:] or " ".join(words[1:2])
    return name, value if equals else " ".join(words[1:2])


def _inside(path: str, at: str) -> str:
    normal = posixpath.normpath(path)
    if normal.startswith(("/", "~", "../")) or normal == "..":
        raise PreflightError(
            f"{at}: {path} lies outside of the code directory", hint="the hosts get nothing but that directory"
        )
    return normal


def _refuse(summary: str) -> PreflightError:
    hint = "trainers work in the code anyway; what has to be installed from it belongs into trainer.setup"
    return PreflightError(summary, hint=hint)


def _text(code: Path, name: str) -> str:
    try:
        with (code / name).open("rb") as file:
            return file.read(_MOST_TEXT_BYTES).decode("utf-8-sig", "replace")
    except OSError as error:
        raise _lacking(code, name, error) from error


def _sha256(code: Path, name: str) -> str:
    try:
        return sha256_of(code / name)
    except OSError as error:
        raise _lacking(code, name, error) from error


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _lacking(code: Path, name: str, error: OSError) -> PreflightError:
    hint = f"uv lock    in {(code / name).parent} writes it" if name.endswith("uv.lock") else ""
    return PreflightError(
        f"{name} cannot be read in the code, {code}: {(error.strerror or str(error)).lower()}",
        hint=hint or "files of trainer.environment are named within the code directory",
    )

"""From a file and overrides to a Cluster, or to every problem at once."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import select
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtctl.config.build import build
from dtctl.config.launching import with_scheduler
from dtctl.config.sections import ClusterFile
from dtctl.config.workable import check_gpus, check_workable
from dtctl.config.yaml.document import Findings, in_words
from dtctl.config.yaml.overrides import apply_overrides
from dtctl.config.yaml.reading import read_sections
from dtctl.config.yaml.syntax import START
from dtctl.config.yaml.yaml12 import parse
from dtctl.errors import ConfigError, Place, Problem
from dtctl.model import Cluster

LIMIT_BYTES = 1_000_000
WRITER_S = 3.0
"""How long a pipe may stay empty."""
EXPECTED = "expected a mapping with the keys name, hosts, jobs and trainer"


@dataclass(frozen=True)
class Checked:
    """A file that can be read, and what is to be said of it before its cluster is started."""

    cluster: Cluster
    findings: Findings


def load(file: Path, overrides: Sequence[str], *, needs_files: bool) -> Cluster:
    said = _said(file, overrides)
    cluster = said.built()
    if needs_files:
        said.findings.or_raise_all()
    return cluster


def check(file: Path, overrides: Sequence[str]) -> Checked:
    """The same with a closer look: at what can be read, and still cannot work or is hardly meant."""
    said = _said(file, overrides)
    try:
        cluster = said.built()
    except ConfigError:
        check_workable(said.sections, said.findings)
        said.findings.or_raise()
        raise
    check_workable(said.sections, said.findings)
    check_gpus(said.sections, cluster, said.findings)
    return Checked(cluster, said.findings)


@dataclass(frozen=True)
class _Said:
    """What a file says, less its mistakes."""

    file: Path
    sha256: str
    sections: ClusterFile
    findings: Findings

    def built(self) -> Cluster:
        return dataclasses.replace(build(self.sections, self.file.absolute(), self.findings), file_sha256=self.sha256)


def _said(file: Path, overrides: Sequence[str]) -> _Said:
    name = _shown(file)
    content = _read(file, name)
    document = parse(_text(content, name), name)
    if document.data is None:
        raise ConfigError([Problem(Place(name), f"the file is empty, {EXPECTED}", START)])
    if not isinstance(document.data, dict):
        place = document.value_place(())
        raise ConfigError([Problem(place, f"the file is {in_words(document.data)}, {EXPECTED}", START)])
    apply_overrides(document, overrides)
    findings = Findings(document)
    sections = with_scheduler(read_sections(document, findings))
    return _Said(file, hashlib.sha256(content).hexdigest(), sections, findings)


def _read(file: Path, name: str) -> bytes:
    try:
        with os.fdopen(_without_waiting(file), "rb") as stream:
            content = stream.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise ConfigError([_unreadable(file, name, error)]) from error
    if len(content) > LIMIT_BYTES:
        raise ConfigError(
            [Problem(Place(name), f"this is not a cluster file: it has more than {LIMIT_BYTES} bytes", START)]
        )
    return content


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        place = Place(name, before.count(b"\n") + 1, column)
        summary = f"this is not UTF-8 text: byte 0x{content[error.start]:02x}"
        raise ConfigError([Problem(place, summary, f"iconv -f latin1 -t utf-8 {name}    if it is Latin-1")]) from error


def _without_waiting(file: Path) -> int:
    """Open for reading. A pipe, as of `<(...)`, is read where somebody writes to it. Raises OSError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and not select.select([descriptor], [], [], WRITER_S)[0]:
        os.close(descriptor)
        raise OSError(errno.EPIPE, "It is a pipe to which nobody writes", str(file))
    os.set_blocking(descriptor, True)
    return descriptor


def _unreadable(file: Path, name: str, error: OSError) -> Problem:
    place = Place(name)
    if isinstance(error, FileNotFoundError):
        return Problem(place, "there is no such file", START)
    if isinstance(error, IsADirectoryError):
        inside = file / "cluster.yaml"
        hint = f"name the file: {inside}" if inside.is_file() else f"rename {name}, or name the file: -c FILE"
        return Problem(place, "this is a directory, expected a file", hint)
    if isinstance(error, PermissionError):
        return Problem(place, "you may not read this file", f"ls -l {name}    shows who may")
    return Problem(place, f"the file cannot be read: {(error.strerror or str(error)).lower()}", f"ls -l {name}")


def _shown(file: Path) -> str:
    """The shortest path that can be typed from here."""
    try:
        return str(file.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(file)

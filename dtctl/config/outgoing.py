"""What a cluster file sends from this machine, and the places of secrets that it does not send.

Every path of the file whose content is sent is in `Cluster.outgoing`, by its key. `check_outgoing` refuses homes and
directories of keys; `operations/sending.py` requires consent for all that lies outside of the file's own directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dtctl.config.document import Findings
from dtctl.config.sections import ClusterFile
from dtctl.dataclass import dataclass
from dtctl.secret_files import rule_of_directory, rule_of_parent

OVERRIDE = "send_anywhere: true"
_OF_THE_SYSTEM = ("/boot", "/dev", "/etc", "/proc", "/run", "/sys")
_OF_USERS = ("/dev/shm", "/run/media")
"""System directories in which users keep data."""
ENVIRONMENT = "your environment"
_MARKS = (".ssh", ".gnupg")
"""A directory that holds one of these is a home, or a copy of one."""


@dataclass(frozen=True)
class Sending:
    """Something from outside of a cluster file's own directory that the file sends elsewhere.

    What is shown of it is what a user allows.
    """

    file: Path
    key: str
    """The name in the file: `data.from`, `trainer.secrets`, `hooks.NAME`."""
    source: str
    """A whole path, or ENVIRONMENT."""
    to: Mapping[str, str]
    """The names of hosts with the machines that they are, or the address of a post."""
    names: tuple[str, ...] = ()
    """The variables whose values are sent."""
    doubt: str = ""
    """Why it would be refused, where the file overrides that."""

    @property
    def digest(self) -> str:
        place = self.file.absolute().parent
        said = [*map(os.path.realpath, (self.file, place)), "sends", self.key, self.source, sorted(self.to.items())]
        return hashlib.sha256(json.dumps([*said, self.names]).encode("utf-8", "surrogatepass")).hexdigest()


def check_outgoing(content: ClusterFile, outgoing: Mapping[str, Path], home: Path, findings: Findings) -> None:
    """Refuses homes, directories of keys, and directories above the file's own, unless the file overrides that.

    `outgoing`: the whole resolved path that each key names. `home`: the resolved directory of the file.
    """
    for key, place in outgoing.items():
        path = tuple(key.split("."))
        was_allowed = content.trainer.code_anywhere and key == "trainer.code"
        if content.send_anywhere or was_allowed or findings.has(*path):
            continue
        if (what := why_refused(place, home)) is not None:
            whole = "" if place.is_file() else ": all of it would be sent to the hosts"
            summary = f"{key} is {str(place)!r}, which is {what}{whole}"
            findings.add(path, summary, f"name another place, or add {OVERRIDE} if this is intended")


def why_refused(place: Path, home: Path | None = None) -> str | None:
    """Why the resolved path is not sent as a whole, as the end of "which is ..."; None if it may be.

    `home`: the directory of the cluster file. A file may lie in a home or above the cluster file, but not among keys.
    """
    if place.is_file():
        return why_none_of(place.parent, home)
    if (among := why_none_of(place, home)) is not None:
        return among
    for one in _homes(place):
        if one.is_relative_to(place):
            return "a home directory" if one == place else f"above the home directory {one}"
    if mark := next((one for one in _MARKS if (place / one).is_dir()), None):
        return f"a home directory, or a copy of one: it holds {mark}"
    if rule := rule_of_parent(str(place)):
        return f"above {rule}, where secrets usually are"
    return f"above the directory of this file, {home}" if home is not None and place in home.parents else None


def why_none_of(directory: Path, home: Path | None = None) -> str | None:
    """Why no file of the resolved directory is sent."""
    if rule := rule_of_directory(str(directory)):
        return f"in {rule}, where secrets usually are"
    is_own = home is not None and directory.is_relative_to(home)  # a system file, or one read from a pipe
    if any(directory.is_relative_to(one) for one in _OF_THE_SYSTEM) and not (is_own or _is_of_users(directory)):
        return "in a directory of the system"
    return None


def is_around_a_home(place: Path) -> bool:
    """Whether the resolved directory is a home of this user or of its owner, or above one."""
    return any(one.is_relative_to(place) for one in _homes(place))


def _is_of_users(directory: Path) -> bool:
    return any(directory.is_relative_to(one) and directory != Path(one) for one in _OF_USERS)


def _homes(place: Path) -> Iterator[Path]:
    """The user's, by the environment and by the system, and that of the owner of the place."""
    said, users = [os.environ.get("HOME", "")], {os.geteuid()}
    with suppress(OSError):  # it need not be on this machine
        users.add(place.stat().st_uid)
    for user in users:
        with suppress(KeyError):  # a number without a name, as in a container
            said.append(pwd.getpwuid(user).pw_dir)
    yield from (Path(home).resolve() for home in said if Path(home).is_absolute())

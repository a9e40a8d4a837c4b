"""Reads the hosts of an ssh_config. What its settings are, `ssh -G` says."""

from __future__ import annotations

import re
from pathlib import Path

from dtctl.config.names import split_place
from dtctl.errors import Place, TransportError, UsageError
from dtctl.folder import temporary_folder
from dtctl.model import SshSettings
from dtctl.rooms.importing.found import Found, Machine, Note, Source, fail
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.mentions import account_home, keyword_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def ssh_config(text: Source, file: Path | None) -> Found:
    """`file`: where the text is, if it is a file. Raises ConfigError, UsageError, TransportError."""
    names: dict[str, Place] = {}
    own = _is_own(file)
    for place, line in text.lines():
        keyword, rest = keyword_of(line)
        if not own:
            _refuse_foreign(place, line)
        if keyword != "host":
            continue
        for found in re.finditer(r"[^\s\"']+", rest):
            if found[0].startswith("#"):
                break
            at = Place(place.file, place.line, len(line) - len(rest) + found.start() + 1)
            if _NAME.fullmatch(found[0]):
                names.setdefault(found[0], at)
    if file is None:
        raise UsageError(
            "an SSH configuration is read by `ssh`, from a file", hint="dtctl import FILE --format ssh_config"
        )
    if not names:
        hint = "expected lines such as Host gpu-1; patterns (gpu-*) name no machine"
        raise fail(Place(text.name), "no Host of this file is the name of one machine", hint)
    if own:
        return _asked(names, ConfigFiles(account_home() / ".ssh/config"), own)
    # `ssh` reads a copy of what was checked: the file may be another one by now, with a program in it.
    with temporary_folder("dtctl-ssh-") as folder:
        folder.replace("config", text.content.encode())
        copy = folder.path / "config"
        try:
            return _asked(names, ConfigFiles(copy), own)
        except TransportError as error:
            detail = error.detail.replace(str(copy), text.name)
            raise TransportError(error.summary, detail=detail, hint=error.hint) from error


def _refuse_foreign(place: Place, line: str) -> None:
    """Refuses a line of another's file by which `ssh -G` might run a program, or read more files. Raises ConfigError.

    By its letters alone, so that it does not matter how a version of `ssh` finds the keyword among other characters;
    no other keyword begins so. Each such line counts, whatever its conditions are.
    """
    letters = "" if line.lstrip(" \t").startswith("#") else re.sub("[^a-z]", "", line.lower())
    if letters.startswith("match"):
        raise fail(place, "a Match may run a program of this file's choosing here (exec)", "take it out, and try again")
    if letters.startswith("include"):
        raise fail(place, "an Include of a file that is not your own is not followed", "import each file by itself")


def _is_own(file: Path | None) -> bool:
    """Whether it is the configuration that `ssh` reads by itself."""
    return file is not None and file.resolve() == (account_home() / ".ssh/config").resolve()


def _asked(names: dict[str, Place], files: ConfigFiles, own: bool) -> Found:
    machines, left = [], []
    jumps: set[str] = set()
    reached: dict[tuple[str, ...], str] = {}
    account = {key: str(value) for key, value in ConfigFiles(Path("/dev/null")).lookup(SshSettings("x")).items()}
    for name, place in names.items():
        said = files.lookup(SshSettings(name))
        if said["user"] == "git":
            left.append(Note(f"{name}: its user is git, so it serves repositories", place))
            continue
        jump = str(said.get("proxyjump", ""))
        jumps |= {split_place(hop)[1] for hop in jump.split(",") if hop and hop != "none"}
        place_there = tuple(str(said[key]) for key in ("hostname", "port", "user"))
        first = reached.setdefault(place_there, name)
        if first != name:
            left.append(Note(f"{name}: another name of {first}", place))
            continue
        if "proxycommand" in said and not own:
            left.append(Note(f"ProxyCommand of {name}: it belongs into ~/.ssh/config", place))
        if own:
            machines.append(Machine(name, place))
            continue
        keys = said.get("identityfile", [])
        machines.append(
            Machine(
                name,
                place,
                target=said["hostname"] if said["hostname"] != name else None,
                user=said["user"] if said["user"] != account["user"] else None,
                port=int(said["port"]) if said["port"] != "22" else None,
                identity_file=keys[0] if len(keys) == 1 else None,
                jump=",".join(_hop(hop, files) for hop in jump.split(",")) if jump and jump != "none" else None,
            )
        )
    left += [Note(f"{one.name}: others are reached through it", one.place) for one in machines if one.name in jumps]
    kept = tuple(one for one in machines if one.name not in jumps)
    if not kept:
        raise fail(
            next(iter(names.values())), "no Host of this file is a machine that could train", "name them by hand"
        )
    if own:
        left.append(Note("addresses, users, ports and keys: dtctl reads them in ~/.ssh/config itself"))
    fill = Note("jobs: every host is a worker; take out those that do not train")
    return Found("an SSH configuration", kept, to_fill=(fill,), left_out=tuple(left))


def _hop(hop: str, files: ConfigFiles) -> str:
    """A jump host without the aliases of the file."""
    said = files.lookup(SshSettings(hop))
    port = "" if str(said["port"]) == "22" else f":{said['port']}"
    return f"{said['user']}@{said['hostname']}{port}"

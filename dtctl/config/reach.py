"""How SSH reaches one host: what the host says, over what is said for all, with paths made absolute."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dtctl.config.sections import HostSsh, SshDefaults
from dtctl.errors import UsageError
from dtctl.model import SshSettings

# [USER@]HOST[:PORT]; an IPv6 address stands in brackets, or bare and then without a port. No part looks like an option.
_TARGET = re.compile(
    r"(?:(?P<user>[^@:\[\]-][^@:\[\]]*)@)?"
    r"(?:\[(?P<v6>[^\[\]@]*:[^\[\]@]*)\]|(?P<name>[^@:\[\]-][^@:\[\]]*)|(?P<bare>[^@\[\]:]*(?::[^@\[\]:]*){2,}))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


def ssh_settings(name: str, own: HostSsh, defaults: SshDefaults, home: Path) -> SshSettings:
    """Settings of the host `name`. Relative paths of the controller start at `home`. Raises UsageError."""
    inside = _split(own.target or name)
    for key in ("user", "port"):
        if key in inside and key in own.model_fields_set:
            raise UsageError(f"{own.target!r} names a {key}, and so does {key} beside it", hint="leave one of them out")
    chosen = {**_said(defaults), **_said(own), **inside}
    chosen.update({key: _local_path(chosen[key], home) for key in ("identity_file", "known_hosts") if key in chosen})
    if "connect_timeout" in chosen:
        chosen["connect_timeout_s"] = chosen.pop("connect_timeout")
    return SshSettings(**chosen)


def _said(section: SshDefaults) -> dict[str, Any]:
    """What the section says itself; the defaults of its model are those of SshSettings."""
    return {key: getattr(section, key) for key in section.model_fields_set}


def _split(target: str) -> dict[str, Any]:
    match = _TARGET.fullmatch(target)
    if match is None or (match["bare"] and match["port"]):
        raise UsageError(
            f"{target!r} is not a target of SSH", hint="write [USER@]HOST[:PORT], or an alias of ~/.ssh/config"
        )
    found: dict[str, Any] = {"target": match["v6"] or match["name"] or match["bare"]}
    if match["user"]:
        found["user"] = match["user"]
    if match["port"]:
        found["port"] = int(match["port"])
        if not 1 <= found["port"] <= 65535:
            raise UsageError(f"{target!r} has the port {match['port']}", hint="ports go from 1 to 65535")
    return found


def _local_path(text: str, home: Path) -> str:
    try:
        return str(home / Path(text).expanduser())
    except RuntimeError as error:
        raise UsageError(f"{text!r} has no such home directory") from error

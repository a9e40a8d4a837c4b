"""How SSH reaches one host: the host's own settings override those for all, and paths are absolute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtctl.config.names import check_names, split_place
from dtctl.config.sections import HostSsh, SshDefaults
from dtctl.errors import UsageError
from dtctl.reach import SshSettings


def ssh_settings(name: str, own: HostSsh, defaults: SshDefaults, home: Path) -> SshSettings:
    """Settings of the host `name`. Relative paths of the controller start at `home`. Raises UsageError."""
    inside = _split(own.target or name)
    for key in ("user", "port"):
        if key in inside and key in own.model_fields_set:
            raise UsageError(f"{own.target!r} names a {key}, and so does {key} beside it", hint="leave one of them out")
    said = _said(own)
    check_names(said)
    chosen = {**_said(defaults), **said, **inside}
    chosen.update({key: local_path(chosen[key], home) for key in ("identity_file", "known_hosts") if key in chosen})
    if "known_hosts" in chosen:
        chosen["project"] = str(home)
    if "connect_timeout" in chosen:
        chosen["connect_timeout_s"] = chosen.pop("connect_timeout")
    return SshSettings(**chosen)


def over(own: HostSsh, defaults: SshDefaults) -> SshDefaults:
    """The defaults with what the host says itself in their place."""
    return defaults.model_copy(update={key: getattr(own, key) for key in own.model_fields_set if key != "target"})


def _said(section: SshDefaults) -> dict[str, Any]:
    """What the section says itself; the defaults of its model are those of SshSettings."""
    return {key: getattr(section, key) for key in section.model_fields_set}


def _split(target: str) -> dict[str, Any]:
    user, host, port = split_place(target)
    found = {"user": user, "target": host, "port": port}
    return {key: value for key, value in found.items() if value is not None}


def local_path(text: str, home: Path) -> str:
    """Raises UsageError."""
    try:
        return str(home / Path(text).expanduser())
    except RuntimeError as error:
        raise UsageError(f"{text!r} has no such home directory") from error

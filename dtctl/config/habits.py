"""Keys and values that other programs use, and their equivalents here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dtctl.config.document import KeyPath, Scalar

KEYS: Mapping[tuple[str, str], str] = {
    ("ssh", "password"): "dtctl keeps no password: use a key (identity_file), or client: openssh, whose ssh prompts",
    ("ssh", "passphrase"): "dtctl keeps no passphrase: it prompts for it, and ssh-add loads the key for all commands",
    **{("ssh", key): "did you mean 'identity_file'?" for key in ("key", "identity", "private_key", "key_file", "pem")},
    **{("ssh", key): "did you mean 'jump'?" for key in ("proxy", "bastion", "proxy_jump", "gateway")},
}
"""(section, key) -> hint."""

STRATEGIES: Mapping[str, str] = {
    **dict.fromkeys(("mirroredstrategy", "multiworkermirroredstrategy", "collectiveallreducestrategy"), "mirrored"),
    **dict.fromkeys(("parameterserverstrategy", "parameterserverstrategyv2"), "ps-strategy"),
    "syncreplicasoptimizer": "sync-ps",
    **dict.fromkeys(("distributeddataparallel", "fsdp", "fullyshardeddataparallel", "horovod", "deepspeed"), "ddp"),
    **dict.fromkeys(("dist_sync", "dist_async", "dist_device_sync"), "kvstore"),
}
"""The frameworks' names, in lower case -> `strategy`."""


def meant_key(path: KeyPath) -> str:
    """A hint for a key that does not exist there; empty if none is known."""
    section = "hosts" if path[0] == "hosts" and len(path) == 3 else str(path[-2]) if len(path) > 1 else ""
    return KEYS.get(("ssh" if section == "hosts" else section, str(path[-1]).lower()), "")


def meant_anywhere(key: str) -> list[str]:
    """Hints for a key of this name in any section."""
    return [hint for (_, name), hint in KEYS.items() if name == key.lower()]


def meant_value(path: KeyPath, found: Any) -> str:
    """A hint for a value that the key does not take; empty if none is known."""
    if path == ("hosts",) and isinstance(found, list):
        return _as_mapping(found)
    if path != ("strategy",) or not isinstance(found, Scalar):
        return ""
    name = found.text.rpartition(".")[2].partition("(")[0].lower()
    return f"did you mean '{STRATEGIES[name]}'?" if name in STRATEGIES else ""


_ADDRESS = re.compile(r"[\d.]+|[0-9a-f:]*:[0-9a-f:]*")
_OWN_NAMES = ("name", "host", "hostname")
_MOST_HOSTS = 4


def _as_mapping(hosts: list[Any]) -> str:
    """What to type in place of a list of hosts; empty where it has none."""
    pairs = [pair for number, one in enumerate(hosts, 1) if (pair := _host(one, number))]
    more = ", ..." if len(pairs) > _MOST_HOSTS else ""
    return f"give each host a colon: hosts: {{{', '.join(pairs[:_MOST_HOSTS])}{more}}}" if pairs else ""


def _host(one: Any, number: int) -> str:
    if isinstance(one, Scalar):
        return f"gpu-{number}: {one.text}" if _ADDRESS.fullmatch(one.text) else f"{one.text}: "
    if not isinstance(one, dict):
        return ""
    texts = {key: value.text for key, value in one.items() if isinstance(value, Scalar)}
    named = next((key for key in _OWN_NAMES if key in texts), None)
    address = next((texts[key] for key in ("ssh", "address", "ip") if key in texts), "")
    if named is not None:
        return f"{texts[named]}: {address}"
    return f"{next(iter(one))}: {next(iter(texts.values()), '')}" if len(one) == 1 else ""

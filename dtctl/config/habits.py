"""Keys and values that people write out of other programs' habit, and what they are called here."""

from __future__ import annotations

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


def meant_value(path: KeyPath, found: Any) -> str:
    """A hint for a value that the key does not take; empty if none is known."""
    if path != ("strategy",) or not isinstance(found, Scalar):
        return ""
    name = found.text.rpartition(".")[2].partition("(")[0].lower()
    return f"did you mean '{STRATEGIES[name]}'?" if name in STRATEGIES else ""

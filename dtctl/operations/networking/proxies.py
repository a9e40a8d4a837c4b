"""Whether gRPC would send the traffic between tasks through a proxy. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

TAKEN = ("grpc_proxy", "https_proxy", "http_proxy")
"""The first that is set holds (grpc/doc/environment_variables.md). gRPC does not know capitals."""
EXCEPT = ("no_grpc_proxy", "no_proxy")


def through(env: Mapping[str, str], names: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """The variable, and those of `names` (hosts of addresses) that would be reached by its proxy; None: nobody."""
    variable = next((name for name in TAKEN if env.get(name)), None)
    if variable is None:
        return None
    exempt = next((env[name] for name in EXCEPT if env.get(name)), "")
    entries = [entry.strip() for entry in exempt.split(",") if entry.strip()]
    caught = tuple(dict.fromkeys(name for name in names if not any(_covers(entry, name) for entry in entries)))
    return (variable, caught) if caught else None


def _covers(entry: str, name: str) -> bool:
    """By the end of a name, or as a network (http_proxy_mapper.cc)."""
    if name.lower().endswith(entry.lower()):
        return True
    try:
        return ipaddress.ip_address(name) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False

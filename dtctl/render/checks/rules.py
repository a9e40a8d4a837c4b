"""Rules of firewalls, as they are typed on the hosts."""

from __future__ import annotations

from collections.abc import Iterable

from dtctl.operations.networking.firewall import Kind, Rules
from dtctl.render.machine import document
from dtctl.render.terminal import console
from dtctl.render.words import fold

_HOW: dict[Kind, str] = {
    "nftables": "save as dtctl.nft there; sudo nft -f dtctl.nft    loads it (again, too)",
    "iptables": "run there as root",
    "ufw": "run there as root",
}
_OPENS: dict[Kind, str] = {
    "nftables": "A table of the host's own that drops these connections still does: allow them there, too.",
    "iptables": "They go before all other rules.",
    "ufw": "Rules that were there before go first: sudo ufw status numbered    shows them.",
}


def show_rules(rules: Iterable[Rules], kind: Kind, output: str) -> None:
    """A block for the hosts that need the same."""
    if output == "json":
        told = [{"hosts": list(one.hosts), "ports": list(one.ports), "lines": list(one.lines)} for one in rules]
        return document.print_json("Firewall", {"kind": kind, "rules": told})
    out = console.out()
    for number, one in enumerate(rules):
        if number:
            out.print("")
        ports = ", ".join(map(str, one.ports))
        out.print(f"# {fold(one.hosts)}: {_HOW[kind]}")
        out.print(f"# The cluster's hosts may connect to port {ports}, and nobody else. {_OPENS[kind]}")
        for line in one.lines:
            out.print(line)
    return None

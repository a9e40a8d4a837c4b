"""Rules of firewalls, as they are typed on the hosts."""

from __future__ import annotations

from collections.abc import Iterable

from dtctl.operations.networking.firewall import Kind, Rules
from dtctl.render.machine import document
from dtctl.render.terminal import console
from dtctl.render.words import fold

_HOW: dict[Kind, str] = {
    "nftables": "save these lines as dtctl.nft there; sudo nft -f dtctl.nft    loads them, as often as you like",
    "iptables": "save these lines as dtctl.sh there; sudo sh dtctl.sh    runs them, as often as you like",
    "ufw": "save these lines as dtctl.sh there; sudo sh dtctl.sh    runs them, as often as you like",
}
_OPENS: dict[Kind, str] = {
    "nftables": "A table of the host's own that drops these connections still does: allow them there, too.",
    "iptables": "They go before all other rules.",
    "ufw": "They go before all other rules.",
}
_LASTS: dict[Kind, str] = {
    "nftables": "They last until the next boot; what /etc/nftables.conf includes lasts longer.",
    "iptables": "They last until the next boot; sudo netfilter-persistent save    keeps them, where that is installed.",
    "ufw": "They hold while ufw is active: sudo ufw status. Before the first sudo ufw enable: sudo ufw allow ssh",
}


def show_rules(rules: Iterable[Rules], kind: Kind, output: str) -> None:
    """A block for the hosts that need the same."""
    if output == "json":
        told = [
            {"hosts": list(one.hosts), "ports": list(one.ports), "lines": list(one.lines), "undo": list(one.undo)}
            for one in rules
        ]
        return document.print_json("Firewall", {"kind": kind, "rules": told})
    out = console.out()
    for number, one in enumerate(rules):
        if number:
            out.print("")
        ports = ", ".join(map(str, one.ports))
        out.print(f"# {fold(one.hosts)}: {_HOW[kind]}")
        out.print(f"# The cluster's hosts may connect to port {ports}, and nobody else. {_OPENS[kind]}")
        out.print(f"# {_LASTS[kind]}")
        out.print("# To take them away again:")
        for line in one.undo:
            out.print(f"#   sudo {line}")
        for line in one.lines:
            out.print(line)
    return None

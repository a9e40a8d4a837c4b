"""What hosts answer to the questions of the topic `network`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.network import NetworkFacts, NetworkQuestion


def listening(questions: Mapping[str, NetworkQuestion], **others: Any) -> dict[str, NetworkFacts]:
    """Every port is free; those that a host is to choose are from 9000 on. `others`: fields of all hosts."""
    ports = {}
    for number, (host, question) in enumerate(questions.items()):
        bound = [
            {"whose": slot["whose"], "port": slot["port"] or 9000 + at, "state": "bound"}
            for at, slot in enumerate(question["listen"])
        ]
        address = f"10.0.0.{number + 1}"
        resolved = [{"name": name, "addresses": [address], "own": True} for name in question["names"]]
        fields = {"bound": bound, "interfaces": [{"name": "eth0", "address": address}], "resolved": resolved, **others}
        ports[host] = checked(NetworkFacts, fields)
    return ports


def reaching(questions: Mapping[str, NetworkQuestion], lost: Any = lambda source, peer: "") -> dict[str, NetworkFacts]:
    """`lost`: the problem of a source and a peer."""
    return {
        host: checked(
            NetworkFacts,
            {
                "reached": [
                    {"whose": peer["whose"], "host": peer["host"], "place": "10.0.0.1", "problem": lost(host, peer)}
                    for peer in question["reach"]
                ]
            },
        )
        for host, question in questions.items()
    }

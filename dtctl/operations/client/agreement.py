"""Which run the hosts of a cluster have, when each is asked by itself and one of them may lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dtctl.transport.wire import untrue

if TYPE_CHECKING:
    from dtctl.agent.records.answers import StatusResult
    from dtctl.agent.records.spec import Inventory
    from dtctl.errors import DtctlError
    from dtctl.operations.history.record import RunRecord


def agreed(record: RunRecord, answers: Mapping[str, StatusResult]) -> Inventory | None:
    """The run that is believed, or None when no host has one.

    Only a host that has a task in a run counts among those that tell of it, and only those count together that tell the
    same of it: its id, its age, and every task's place. The newest run that two hosts or more tell of is believed.
    Where no two agree, that of the lead's host (as the cluster file, or the record of this machine, says) is, and then
    the newest. So a single host that lies outvotes no two others, whatever age it claims for its run; what it says of
    other hosts' tasks counts only if there is nobody else to ask.
    """
    told: dict[str, list[str]] = {}
    runs: dict[str, Inventory] = {}
    for host, answer in answers.items():
        inventory = answer["inventory"]
        if inventory is not None and any(member["host"] == host for member in inventory["roster"]):
            key = _key(inventory)
            runs[key] = inventory
            told.setdefault(key, []).append(host)

    def weight(key: str) -> tuple[bool, bool, float]:
        return len(told[key]) > 1, record.coordinator in told[key] and not shared, runs[key]["created"]

    shared = any(len(hosts) > 1 for hosts in told.values())
    return runs[max(told, key=weight)] if told else None


def dissenters(run: Inventory, answers: Mapping[str, StatusResult]) -> dict[str, DtctlError]:
    """Hosts that disagree with what is believed about the same run."""
    return {
        host: untrue(host, f"disagrees with the other hosts about run {run['run']} than what is believed of it")
        for host, answer in answers.items()
        if answer["inventory"] is not None
        and answer["inventory"]["run"] == run["run"]
        and _key(answer["inventory"]) != _key(run)
    }


def _key(inventory: Inventory) -> str:
    return json.dumps(inventory, sort_keys=True)

"""What is known of a run without asking its hosts: where its tasks are and how the hosts are reached.

The controller keeps one record a run as its pointer; the hosts keep the same record for other controllers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from dtctl.model import Cluster, Host, SshSettings, TaskId
from dtctl.plan.success import success_rule
from dtctl.plan.values import RunPlan, SuccessRule
from dtctl.ways import PS, role_of, serves, way_of

RECORD_VERSION = 1


@dataclass(frozen=True)
class RunRecord:
    """The inventory of one run, or of a cluster file when `run` is None (each host's current run is meant)."""

    cluster: str
    run: str | None
    file: Path | None
    hosts: Mapping[str, Host]
    """Those with a task."""
    roster: Mapping[TaskId, str]
    """Task -> host, in the order of the file."""
    lead: TaskId
    success: SuccessRule
    servers: frozenset[TaskId] = frozenset()
    """Those that others need to the last of their steps."""
    created: float = 0.0
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Host of the cluster file -> the one that has taken its place in this run."""

    @property
    def is_local(self) -> bool:
        return all(host.is_local for host in self.hosts.values())

    @property
    def coordinator(self) -> str:
        """The host that decides for the run: the lead's."""
        return self.roster[self.lead]

    def as_known(self, inventory: Mapping[str, Any]) -> RunRecord:
        """The record that a run left on its hosts, reached as this one says where both know a host.

        The cluster file may have changed since, or another machine has started the run.
        """
        known = RunRecord.from_json(inventory)
        own = {name: host for name, host in self.hosts.items() if name in known.hosts}
        return dataclasses.replace(known, hosts={**known.hosts, **own}, file=self.file or known.file)

    def tasks_on(self, host: str) -> tuple[TaskId, ...]:
        return tuple(task for task, place in self.roster.items() if place == host)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": RECORD_VERSION,
            "cluster": self.cluster,
            "run": self.run,
            "file": str(self.file) if self.file else None,
            "hosts": [dataclasses.asdict(host) for host in self.hosts.values()],
            "roster": [[str(task), host] for task, host in self.roster.items()],
            "lead": str(self.lead),
            "success": self.success,
            "servers": sorted(map(str, self.servers)),
            "created": self.created,
            "replaced": dict(self.replaced),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunRecord:
        hosts = [_host(entry) for entry in data["hosts"]]
        roster = {TaskId.parse(task): host for task, host in data["roster"]}
        # Earlier versions, which did not say who serves, knew ps alone.
        servers = data.get("servers", [str(task) for task in roster if task.job == PS])
        return cls(
            cluster=data["cluster"],
            run=data["run"],
            file=Path(data["file"]) if data["file"] else None,
            hosts={host.name: host for host in hosts},
            roster=roster,
            lead=TaskId.parse(data["lead"]),
            success=cast("SuccessRule", data["success"]),
            servers=frozenset(map(TaskId.parse, servers)),
            created=data["created"],
            replaced=data.get("replaced", {}),
        )


def record_of_cluster(cluster: Cluster) -> RunRecord:
    """The record that stands for whatever run of the cluster its hosts have."""
    roster = {task: cluster.host_of(task).name for task in cluster.tasks()}
    used, way = set(roster.values()), way_of(cluster)
    return RunRecord(
        cluster=cluster.name,
        run=None,
        file=cluster.file,
        hosts={name: host for name, host in cluster.hosts.items() if name in used},
        roster=roster,
        lead=cluster.lead,
        success=success_rule(cluster),
        servers=frozenset(task for task in roster if serves(role_of(task, cluster.lead), way)),
    )


def record_of_plan(plan: RunPlan, run: str, created: float) -> RunRecord:
    return dataclasses.replace(record_of_cluster(plan.cluster), run=run, created=created)


def _host(entry: Mapping[str, Any]) -> Host:
    ssh = SshSettings(**entry["ssh"]) if entry["ssh"] else None
    return Host(**{**entry, "ssh": ssh})

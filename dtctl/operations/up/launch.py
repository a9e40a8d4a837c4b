"""What one `up` is to start, as each host is told; and what a host may answer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dtctl.agent.records import answers
from dtctl.agent.records.hooks import Post
from dtctl.bundle import Bundle
from dtctl.model import Cluster, Host
from dtctl.operations.asking.conversation import request
from dtctl.operations.asking.plausible import check_run, check_tasks, wrong
from dtctl.operations.checks.topic import Scene
from dtctl.operations.memory.record import RunRecord
from dtctl.operations.up.credentials import Authority
from dtctl.plan.directories import output_directories
from dtctl.plan.spec import host_spec
from dtctl.plan.values import RunPlan


@dataclass(frozen=True)
class Start:
    """What one `up` is to start."""

    plan: RunPlan
    record: RunRecord
    bundle: Bundle
    digest: str
    controller: str
    """user@host, for those who find the run later."""
    secrets: Mapping[str, str]
    authority: Authority | None
    """By which the run's agents know each other; None where there is only one."""
    replace: bool
    replan: Callable[[Cluster], RunPlan] | None = None
    """Makes the plan when the hosts have chosen ports; None: they choose none."""
    adopt_output: bool = False
    """Output directories are taken over from other clusters."""
    hooks: tuple[Post, ...] = field(default=(), repr=False)
    """Those that the coordinator tells."""
    scene: Scene | None = None
    """What the hosts are asked of themselves by the way."""
    allow_missing: int | None = None
    """So many hosts may be done without; None where that is no choice of the command's."""

    @property
    def expects_revival(self) -> bool:
        """Hosts are to bring the agents back by themselves when they have been restarted."""
        return not self.record.is_local and self.plan.cluster.recovery.reboot == "auto"


def up_request(launch: Start, host: Host, absent: Iterable[str] = ()) -> dict[str, Any]:
    """`absent`: of a run that goes on already."""
    record = launch.record
    assert record.run is not None
    hooks = launch.plan.cluster.hooks.values()
    spec = host_spec(
        launch.plan,
        host.name,
        run=record.run,
        digest=launch.digest,
        bundle=launch.bundle.id,
        created=record.created,
        controller=launch.controller,
        replaced=record.replaced,
        absent=absent,
    )
    return {
        **request(record, host, "up"),
        "spec": spec,
        "bundle": launch.bundle.id,
        "secrets": launch.secrets,
        "credentials": _credentials(launch, host),
        "hooks": list(launch.hooks) if host.name == record.coordinator else [],
        "withheld": list(dict.fromkeys(name for hook in hooks for name in hook.variables)),
        "replace": launch.replace,
        "file": os.path.realpath(launch.plan.cluster.file),
        "outputs": list(output_directories(launch.plan.dirs[host.name], launch.plan.checkpoint_dirs[host.name])),
    }


def _credentials(launch: Start, host: Host) -> dict[str, str] | None:
    """Of a run on one host nobody dials anybody."""
    if launch.authority is None:
        return None
    coordinates = launch.record.coordinator == host.name
    return dataclasses.asdict(launch.authority.issue(host.name, coordinates=coordinates))


def check_prepared(record: RunRecord, answer: answers.Prepared) -> None:
    """Raises Wrong. A run that is replaced, or continues, must be one of this cluster."""
    check_run(record.cluster, None if answer["unchanged"] else record.run, answer["run"])
    for name in (answer["current"], answer["replaces"]):
        if name is not None:
            check_run(record.cluster, None, name, "replaces")


def check_started(record: RunRecord, run: str, host: str, answer: answers.Started) -> None:
    """Raises Wrong. The answer must have each task of the host, and no other."""
    own = record.names_on(host)
    check_run(record.cluster, run, answer["run"])
    check_tasks("tasks", answer["tasks"], own)
    for task in own:
        if task not in answer["tasks"]:
            raise wrong(f"tasks.{task}", "a task of this name", None)

"""From a cluster file to what one `up` is to start: the plan, the code and the secrets, read on the controller.

And how each host is told of it, and what it may answer.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dtctl.agent.records.hooks import Post
from dtctl.bundle import Bundle
from dtctl.model import Cluster, Host, SshSettings
from dtctl.operations.checks.scene import scene_of
from dtctl.operations.checks.topic import Scene
from dtctl.operations.client.conversation import request
from dtctl.operations.history.record import RunRecord, record_of
from dtctl.operations.up.absence import check_may_go_without
from dtctl.operations.up.credentials import Authority
from dtctl.operations.up.local import local_python, make_local, scan_code
from dtctl.operations.up.needs import check_needs
from dtctl.operations.up.secrets import find_hooks, find_secrets
from dtctl.plan.hosts import output_directories
from dtctl.plan.roster import RunPlan
from dtctl.plan.run import plan_run
from dtctl.plan.spec import digest, host_spec

Hostname = Callable[[SshSettings], str]
"""The name that SSH would connect to, by its own configuration."""


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


def make_plan(cluster: Cluster, hostname: Hostname) -> RunPlan:
    names = {
        host.name: hostname(host.reach)
        for host in cluster.hosts.values()
        if isinstance(host.reach, SshSettings) and not host.address
    }
    return plan_run(cluster, names, local_python=local_python(os.environ))


def prepare_launch(
    cluster: Cluster,
    hostname: Hostname,
    environ: Mapping[str, str],
    bundle: Bundle | None = None,
    *,
    local: bool = False,
    replace: bool = False,
    adopt_output: bool = False,
    check: bool = False,
    force: bool = False,
    allow_missing: int | None = None,
) -> Start:
    """Raises PreflightError for code that cannot be sent and for secrets that are nowhere to be found.

    The caller has the user's consent to what starts on this machine. `bundle`: that of the code, where it has been
    looked at already. `check`: the hosts are to report on themselves. `force`: a Python of this machine that lacks
    a module starts all the same. `allow_missing`: so many hosts may be
    done without; None where that is no choice of the command's.
    """
    found, hooks = find_secrets(cluster, environ), find_hooks(cluster, environ)
    bundle = bundle or scan_code(cluster)
    said = digest(cluster, f"{bundle.id} local" if local else bundle.id)
    plan = make_plan(make_local(cluster) if local else cluster, hostname)
    created = time.time()
    run = run_id(cluster.name, created)
    record = record_of(plan, run, created)
    if not force:
        check_needs(plan)
    if allow_missing:
        check_may_go_without(plan)
    return Start(
        plan=plan,
        record=record,
        bundle=bundle,
        digest=said,
        controller=controller_name(),
        secrets=found,
        authority=Authority(run) if len(record.hosts) > 1 else None,
        replace=replace,
        replan=lambda cluster: make_plan(cluster, hostname),
        adopt_output=adopt_output,
        hooks=hooks,
        scene=scene_of(plan, brief=True, allowed_here=True) if check else None,
        allow_missing=allow_missing,
    )


def run_id(cluster: str, now: float) -> str:
    """Sorts by time, and two controllers never make the same."""
    return f"{cluster}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(2)}"


def controller_name() -> str:
    """user@host of the person who types here."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


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

"""From a cluster file to what `up` starts: the plan, the code and the secrets, read on the controller."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dtctl.model import Cluster
from dtctl.operations.checks.scene import scene_of
from dtctl.operations.memory.record import record_of
from dtctl.operations.up.absence import check_may_go_without
from dtctl.operations.up.code import make_local, scan_code
from dtctl.operations.up.credentials import Authority
from dtctl.operations.up.interpreter import local_python
from dtctl.operations.up.launch import Start
from dtctl.operations.up.needs import check_needs
from dtctl.operations.up.secrets import find_hooks, find_secrets
from dtctl.plan.run import plan_run
from dtctl.plan.spec import digest
from dtctl.plan.values import RunPlan
from dtctl.reach import SshSettings

if TYPE_CHECKING:
    from dtctl.bundle import Bundle

Hostname = Callable[[SshSettings], str]
"""The name that SSH would connect to, by its own configuration."""


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
    allow_missing: int | None = None,
) -> Start:
    """Raises PreflightError for code that cannot be sent and for secrets that are nowhere to be found.

    `bundle`: that of the code, where it has been looked at already. `check`: the hosts are to tell of themselves.
    `allow_missing`: so many hosts may be done without; None where that is no choice of the command's.
    """
    found, hooks = find_secrets(cluster, environ), find_hooks(cluster, environ)
    bundle = bundle or scan_code(cluster)
    said = digest(cluster, f"{bundle.id} local" if local else bundle.id)
    plan = make_plan(make_local(cluster) if local else cluster, hostname)
    created = time.time()
    run = run_id(cluster.name, created)
    record = record_of(plan, run, created)
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
        scene=scene_of(plan, brief=True) if check else None,
        allow_missing=allow_missing,
    )


def run_id(cluster: str, now: float) -> str:
    """Sorts by time, and two controllers never make the same."""
    return f"{cluster}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(2)}"


def controller_name() -> str:
    """user@host of the person who types here."""
    return f"{getpass.getuser()}@{socket.gethostname()}"

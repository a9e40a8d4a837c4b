"""Turns a cluster file into a Start: the plan, the code and the secrets, read on the controller.

And the request to each host, and what it may answer.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dtctl.agent.records.hooks import Post
from dtctl.bundle import Bundle
from dtctl.bundle.revision import Inspected, inspect
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.model import Host, SshSettings
from dtctl.operations.client import controller_name, request
from dtctl.operations.credentials import Authority
from dtctl.operations.engines import Lent
from dtctl.operations.environments import content_with
from dtctl.operations.local import find_hooks, find_secrets, local_python, make_local
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.sending import START, require, scan_code, scan_wheels, sendings
from dtctl.operations.up.conflicts import check_may_go_without
from dtctl.operations.up.inspecting import Inspection, inspection
from dtctl.plan import RunPlan
from dtctl.plan.hosts import output_places
from dtctl.plan.run import plan_run
from dtctl.plan.spec import NO_CONTENT, EnvironmentContent, digest, environment_of, host_spec, run_spec

if TYPE_CHECKING:
    from dtctl.agent.records.spec import Environment, Spec


Hostname = Callable[[SshSettings], str]
"""The name that SSH would connect to, by its configuration."""


@dataclass(frozen=True)
class Start:
    """Everything that one `up` starts."""

    plan: RunPlan
    record: RunRecord
    bundle: Bundle
    digest: str
    controller: str
    """user@host, shown to those who find the run later."""
    secrets: Mapping[str, str]
    authority: Authority | None
    """Issues the certificates by which the run's agents identify each other; None if there is only one agent."""
    replace: bool
    replan: Callable[[Cluster], RunPlan] | None = None
    """Makes the plan with the ports that the hosts have chosen; None: they choose none."""
    adopt_output: bool = False
    """Whether output directories are taken over from other clusters."""
    hooks: tuple[Post, ...] = field(default=(), repr=False)
    """The hooks to which the coordinator posts."""
    inspect: Callable[[RunPlan], Inspection] | None = None
    """Begins the questions to the hosts that are sent along with the start; None: they are asked nothing."""
    allow_missing: int | None = None
    """The number of hosts that may be missing; None if the command has no such option."""
    wheels: Bundle | None = None
    """The wheels from which the hosts install the trainers' environment."""
    content: EnvironmentContent = NO_CONTENT
    """The files from which the hosts create the trainers' environment."""
    inspected: Inspected | None = None
    """The version of the code, and how it differs from the commit; None if it is in no repository."""
    lent: bool = False
    """An engine has lent the machines: whatever an earlier run had there has ended with its own job."""

    @functools.cached_property
    def run_spec(self) -> Spec:
        """The part of the spec that all hosts share."""
        assert self.record.run is not None
        return run_spec(
            self.plan,
            run=self.record.run,
            digest=self.digest,
            bundle=self.bundle.id,
            created=self.record.created,
            controller=self.controller,
            replaced=self.record.replaced,
            code=self.bundle.code_id[:12],
            revision=self.record.revision,
        )

    @property
    def expects_revival(self) -> bool:
        """Whether hosts must restart the agents after a reboot by themselves."""
        return not self.record.is_local and self.plan.cluster.recovery.reboot == "auto"


def make_plan(cluster: Cluster, hostname: Hostname, *, local: bool = False) -> RunPlan:
    """The plan of a cluster. `local`: with all hosts on this machine."""
    cluster = make_local(cluster) if local else cluster
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
    lent: Lent | None = None,
    make_local: Callable[[Cluster], Cluster] = make_local,
) -> Start:
    """Prepares a start. Raises PreflightError for code that cannot be sent, for missing secrets, and for data that the
    user has not allowed to be sent.

    The caller has the user's consent to what starts on this machine. `bundle`: that of the code, where it has been
    looked at already. `check`: the hosts are to report on themselves. `allow_missing`: so many hosts may be
    done without; None where that is no choice of the command's. `lent`: what a job starts on machines of an engine.
    """
    if not local:
        require(sendings(cluster, START, environ))
    found, hooks = find_secrets(cluster, environ), find_hooks(cluster, environ)
    if lent is not None:
        bundle, wheels, content = lent.bundle, lent.wheels, lent.environment
    else:
        bundle, wheels = bundle or scan_code(cluster), scan_wheels(cluster)
        content = content_with(cluster, wheels)
    place = "local" if local else lent.run if lent is not None else ""
    computed = digest(cluster, f"{bundle.id} {place}".strip(), content.wheels)
    plan = make_plan(make_local(cluster) if local else cluster, hostname)
    created = time.time()
    run = lent.run if lent is not None else run_id(cluster.name, created)
    inspected = lent.inspected if lent is not None else inspect(bundle, found.values())
    revision = inspected.revision if inspected is not None else None
    record = dataclasses.replace(record_of(plan, run, created), revision=revision)
    if allow_missing:
        check_may_go_without(plan)
    return Start(
        plan=plan,
        record=record,
        bundle=bundle,
        digest=computed,
        controller=controller_name(),
        secrets=found,
        authority=Authority(run) if len(record.hosts) > 1 else None,
        replace=replace,
        replan=lambda cluster: make_plan(cluster, hostname),
        adopt_output=adopt_output,
        hooks=hooks,
        inspect=(functools.partial(inspection, content=content, bundle=bundle.id, secrets=found) if check else None),
        allow_missing=allow_missing,
        wheels=wheels,
        content=content,
        inspected=inspected,
        lent=lent is not None,
    )


def run_id(cluster: str, now: float) -> str:
    """An id that sorts by time and is unique to this controller."""
    return f"{cluster}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(2)}"


def up_request(launch: Start, host: Host, absent: Iterable[str] = ()) -> dict[str, Any]:
    """The request `up` to a host. `absent`: the hosts that a continuing run was started without."""
    record = launch.record
    hooks = launch.plan.cluster.hooks.values()
    spec = host_spec(launch.plan, host.name, launch.run_spec, absent, content=launch.content)
    return {
        **request(record, host, "up"),
        "spec": spec,
        "bundle": spec["bundle"],
        "secrets": launch.secrets if spec["bundle"] else {},  # an arbiter trains nothing
        "credentials": _credentials(launch, host),
        "hooks": list(launch.hooks) if host.name in coordinators(launch.plan) else [],
        "withheld": [*dict.fromkeys(name for hook in hooks for name in hook.variables), *_of_session(host)],
        "replace": launch.replace,
        "file": os.path.realpath(launch.plan.cluster.file),
        "outputs": list(output_places(launch.plan.cluster, launch.plan.dirs[host.name])) if spec["bundle"] else [],
    }


def _of_session(host: Host) -> list[str]:
    """Variables of a session that no trainer inherits: what they name ends with the connection."""
    return ["SSH_AUTH_SOCK"] if isinstance(host.reach, SshSettings) and host.reach.forward_agent else []


def environment_on(launch: Start, host: Host) -> Environment | None:
    """The environment as in the spec of the host."""
    first = next(iter(launch.plan.may_run(host.name)), None)
    return environment_of(launch.plan, first, launch.content) if first is not None else None


def _credentials(launch: Start, host: Host) -> dict[str, str] | None:
    """The authority for certificates; None for a run on one host, where agents do not connect to each other."""
    if launch.authority is None:
        return None
    coordinates = host.name in coordinators(launch.plan)
    return dataclasses.asdict(launch.authority.issue(host.name, coordinates=coordinates))


def coordinators(plan: RunPlan) -> set[str]:
    """Hosts that coordinate the run, or may be elected to."""
    return {plan.coordinator["host"], *(voter["host"] for voter in plan.voters)}

"""The sections of a file as the values of `dtctl.model`."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from pathlib import Path

from dtctl.config.checks import check_code, check_hooks, check_presence, check_secrets, check_success, read_hooks
from dtctl.config.document import Findings
from dtctl.config.inventory import read_hosts
from dtctl.config.launching import read_launches, uses_mxnet
from dtctl.config.placement import FIRST_PORT, give_ports, place_tasks, read_spares
from dtctl.config.sections import ClusterFile, RecoveryEntry
from dtctl.errors import did_you_mean
from dtctl.model import LEAD_JOBS, Cluster, Job, Recovery, TfConfig, Trainer
from dtctl.strategies import PS, SERVER, circle, parties, waits


def build(content: ClusterFile, file: Path, findings: Findings) -> Cluster:
    """The cluster that the absolute `file` describes. Raises ConfigError with all findings, earlier ones included.

    Files that are lacking are left to whoever needs them: `findings` has them.
    `content` has the scheduler that MXNet needs.
    """
    home = file.parent
    hosts = read_hosts(content, home, findings)
    placed = place_tasks(content.jobs, hosts, findings)
    first, coordinator_port = _first_ports(content)
    ports = give_ports(content.jobs, placed, hosts, first, coordinator_port, findings)
    spares = read_spares(content.spares, hosts, placed, findings)
    launches = read_launches(content, findings)
    trainer = _read_trainer(content, home, findings)
    check_presence(content, findings)
    check_code(content, trainer.code, home.resolve(), findings)
    check_secrets(content, findings)
    check_success(content, findings)
    check_strategy(content, findings)
    check_kvstore(content, findings)
    check_recovery(content, findings)
    check_hooks(content, findings)
    check_waits(content, findings)
    findings.or_raise()
    cluster = Cluster(
        name=content.name,
        file=file,
        hosts=hosts,
        jobs={
            name: Job(
                name=name,
                hosts=tuple(placed[name]),
                ports=tuple(ports[name]),
                launch=launches[name],
                gpus_per_task=job.gpus_per_task,
                depends_on=None if job.depends_on is None else tuple(dict.fromkeys(job.depends_on)),
                own_port=job.port is not None,
            )
            for name, job in content.jobs.items()
        },
        trainer=trainer,
        dirs=content.dirs.model_dump(exclude_none=True),
        tf_config=TfConfig(**content.tf_config.model_dump()),
        checkpoint_dir=content.checkpoint.dir,
        strategy=content.strategy,
        recovery=read_recovery(content.recovery),
        success=content.success,
        fail_fast=content.fail_fast,
        start_timeout_s=content.start_timeout,
        active_deadline_s=content.active_deadline,
        settle_s=content.settle,
        grace_s=content.grace,
        ttl_s=content.ttl,
        keep=content.keep,
        log_limit_bytes=content.logs.limit,
        target_step=content.target_step,
        coordinator_port=coordinator_port,
        own_coordinator_port="port" in content.coordinator.model_fields_set,
        spares=tuple(spares),
        hooks=read_hooks(content),
    )
    check_order(cluster, findings)
    findings.or_raise()
    return cluster


def _first_ports(content: ClusterFile) -> tuple[int, int]:
    """Where the ports of tasks begin, and the coordinator's."""
    said = content.coordinator.port
    if content.ports is None:
        return FIRST_PORT, said
    return content.ports, said if "port" in content.coordinator.model_fields_set else content.ports


def _read_trainer(content: ClusterFile, home: Path, findings: Findings) -> Trainer:
    said = content.trainer
    code = _existing(said.code, home, stat.S_ISDIR, "directory", ("trainer", "code"), findings)
    env_file = said.env_file and _existing(said.env_file, home, stat.S_ISREG, "file", ("trainer", "env_file"), findings)
    return Trainer(
        code=code,
        python=said.python,
        venv=said.venv,
        setup=said.setup,
        secrets=tuple(dict.fromkeys(said.secrets)),
        env_file=env_file or None,
        keep_proxy=said.keep_proxy,
    )


_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def _existing(
    text: str, home: Path, is_kind: Callable[[int], bool], kind: str, path: tuple[str, str], findings: Findings
) -> Path:
    """The absolute path; `is_kind` judges the mode of what is there."""
    place = Path(text)
    problem = ""
    try:
        place = (home / place.expanduser()).resolve()
        found = is_kind(place.stat().st_mode)
    except RuntimeError:  # a loop of links, no such ~user
        found = False
    except OSError as error:
        found = False
        problem = "" if error.errno in _ABSENT else f"{place} cannot be looked at: {error.strerror}"
    if not found:
        words = f"{findings.name(*path)} is {text!r}, but {problem or f'there is no {kind} {place}'}"
        findings.lack(path, words, "" if problem else "a relative path begins at this file")
    return place


_WITH_PS = ("async-ps", "sync-ps", "ps-strategy")
_WITHOUT_PS = ("mirrored", "ddp")


def check_strategy(content: ClusterFile, findings: Findings) -> None:
    """A way of training needs the jobs that it trains with."""
    strategy, jobs = content.strategy, findings.names_in("jobs")
    if not jobs:
        return
    if strategy in _WITH_PS and PS not in jobs:
        summary = f"strategy is {strategy}, but there is no job '{PS}'"
        findings.add(("strategy",), summary, "write, for example, mirrored")
    if strategy in _WITHOUT_PS and PS in jobs:
        summary = f"strategy is {strategy}, which uses no ps, but there is a job '{PS}'"
        findings.add(("strategy",), summary, "write, for example, async-ps")
    if strategy == "ps-strategy" and not set(LEAD_JOBS) & set(jobs):
        summary = "strategy is ps-strategy, whose workers are led by a chief, but there is no job 'chief'"
        findings.add(("strategy",), summary, "write, for example, jobs: {chief: {hosts: [gpu-1]}}")


def check_kvstore(content: ClusterFile, findings: Findings) -> None:
    """The parameters of MXNet's dist kvstore are on servers."""
    jobs = findings.names_in("jobs")
    if uses_mxnet(content) and not {SERVER, PS} & set(jobs):
        summary = f"the dialect mxnet needs a job '{SERVER}'"
        findings.add(("jobs",), summary, f"write, for example, {SERVER}: {{hosts: [gpu-1]}}", at_key=True)


def check_waits(content: ClusterFile, findings: Findings) -> None:
    """Nothing waits for a job that is not there, or for itself."""
    jobs = findings.names_in("jobs")
    for name, job in content.jobs.items():
        for index, other in enumerate(job.depends_on or ()):
            path = ("jobs", name, "depends_on", index)
            if other == name:
                findings.add(path, f"{findings.name(*path)} is {name} itself", "name the jobs that it waits for")
            elif other not in jobs:
                hint = did_you_mean(other, jobs) or f"jobs has {', '.join(jobs)}"
                findings.add(path, f"{findings.name(*path)} names {other}, which is not in jobs", hint)


def check_order(cluster: Cluster, findings: Findings) -> None:
    """No tasks wait for each other: then none of them would ever start."""
    ring = circle(waits(cluster))
    if not ring:
        return
    members = parties(cluster)
    said: list[str] = []
    usual: list[str] = []
    for name in ring:
        job = members[name][0].job
        (usual if cluster.jobs[job].depends_on is None else said).append(job)
    words = ", ".join(f"{name} waits for {other}" for name, other in zip(ring, (*ring[1:], ring[0]), strict=True))
    hint = f"write jobs.{usual[0]}.depends_on: []" if usual else "leave out one of them"
    path = ("jobs", said[0], "depends_on")
    findings.add(path, f"{findings.name(*path)} closes a cycle: {words}", hint, at_key=True)


_BUDGETS = ("max_restarts", "max_run_restarts")


def read_recovery(said: RecoveryEntry) -> Recovery:
    """Without restarts nothing is tried again, which is what the mode `never` asks for."""
    never = said.mode == "never"
    shortest, longest = said.backoff
    return Recovery(
        mode=said.mode,
        max_restarts=0 if never else said.max_restarts,
        max_run_restarts=0 if never else said.max_run_restarts,
        backoff_min_s=shortest,
        backoff_max_s=longest,
        reset_after_s=said.reset_after,
        repeat=said.repeat,
        allow_scratch=said.allow_scratch,
        retry=tuple(sorted(set(said.retry) - (set() if _is_set(said, "retry") else set(said.permanent)))),
        permanent=tuple(sorted(set(said.permanent) - (set() if _is_set(said, "permanent") else set(said.retry)))),
        stall_s=said.stall,
        first_step_s=said.first_step,
        host_timeout_s=said.host_timeout,
        reboot=said.reboot,
    )


def check_recovery(content: ClusterFile, findings: Findings) -> None:
    said = content.recovery
    for budget in _BUDGETS:
        if said.mode == "never" and _is_set(said, budget) and getattr(said, budget):
            path = ("recovery", budget)
            summary = f"recovery.{budget} is {getattr(said, budget)}, but recovery.mode is never"
            findings.add(path, summary, "leave out one of them")
    both = sorted(set(said.retry) & set(said.permanent))
    if both and _is_set(said, "retry") and _is_set(said, "permanent"):
        summary = f"recovery.permanent has {both[0]}, which recovery.retry has too"
        findings.add(("recovery", "permanent"), summary, "an exit code is tried again, or it is not")


def _is_set(said: RecoveryEntry, key: str) -> bool:
    """The file says it; a default gives way to what the file says elsewhere."""
    return key in said.model_fields_set

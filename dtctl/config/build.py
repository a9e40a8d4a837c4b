"""The sections of a file as the values of `dtctl.model`."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from pathlib import Path

from dtctl.config.checks import check_code, check_presence, check_secrets, check_success
from dtctl.config.inventory import read_hosts
from dtctl.config.launching import read_launches
from dtctl.config.order import check_kvstore, check_order, check_strategy, check_waits
from dtctl.config.placement import FIRST_PORT, give_ports, place_tasks, read_spares
from dtctl.config.recovery import check_recovery, read_recovery
from dtctl.config.sections import ClusterFile
from dtctl.config.workable import check_hooks, read_hooks
from dtctl.config.yaml.document import Findings
from dtctl.model import Cluster, Job, TfConfig, Trainer


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

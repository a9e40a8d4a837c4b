"""The sections of a file as the values of `dtctl.model`."""

from __future__ import annotations

import dataclasses
import errno
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtctl.config.checks import check_code, check_order, check_sections
from dtctl.config.cluster import Cluster, Job, Trainer
from dtctl.config.document import Findings
from dtctl.config.inventory import read_hosts
from dtctl.config.launching import read_launches
from dtctl.config.placement import FIRST_PORT, give_ports, place_tasks, read_spares
from dtctl.config.section import Section
from dtctl.config.sections import ClusterFile
from dtctl.config.settings import JobKeys, Recovery, Settings, TrainerKeys


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
    check_sections(content, findings)
    check_code(content, trainer.code, home.resolve(), findings)
    findings.or_raise()
    jobs = {
        name: Job(
            name=name,
            hosts=tuple(placed[name]),
            ports=tuple(ports[name]),
            launch=launches[name],
            own_port=job.port is not None,
            **_shared(JobKeys, job) | {"depends_on": None if job.depends_on is None else _once(job.depends_on)},
        )
        for name, job in content.jobs.items()
    }
    hooks = {name: dataclasses.replace(hook, name=name, on=_once(hook.on)) for name, hook in content.hooks.items()}
    cluster = Cluster(
        name=content.name,
        file=file,
        hosts=hosts,
        jobs=jobs,
        trainer=trainer,
        dirs=content.dirs.said(),
        checkpoint_dir=content.checkpoint.dir,
        log_limit_bytes=content.logs.limit,
        coordinator_port=coordinator_port,
        own_coordinator_port="port" in content.coordinator.written,
        spares=tuple(spares),
        **_shared(Settings, content) | {"recovery": _recovery(content.recovery), "hooks": hooks},
    )
    check_order(cluster, findings)
    findings.or_raise()
    return cluster


def _shared(base: type[Section], section: Section) -> dict[str, Any]:
    """What the section says of the keys that a value of a cluster has, too."""
    return {key.attribute: getattr(section, key.attribute) for key in base.known_keys().values()}


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _first_ports(content: ClusterFile) -> tuple[int, int]:
    """Where the ports of tasks begin, and the coordinator's."""
    said = content.coordinator.port
    if content.ports is None:
        return FIRST_PORT, said
    return content.ports, said if "port" in content.coordinator.written else content.ports


def _read_trainer(content: ClusterFile, home: Path, findings: Findings) -> Trainer:
    said = content.trainer
    code = _existing(said.code, home, stat.S_ISDIR, "directory", ("trainer", "code"), findings)
    env_file = said.env_file and _existing(said.env_file, home, stat.S_ISREG, "file", ("trainer", "env_file"), findings)
    keys = _shared(TrainerKeys, said) | {"secrets": _once(said.secrets)}
    return Trainer(code=code, env_file=env_file or None, **keys)


def _recovery(said: Recovery) -> Recovery:
    """Without restarts nothing is tried again, which is what the mode `never` asks for.

    Of the exit codes a default gives way to what the file says of the other list.
    """
    budgets: dict[str, Any] = {"max_restarts": 0, "max_run_restarts": 0} if said.mode == "never" else {}
    retry, permanent = (
        set(getattr(said, key)) - (set() if key in said.written else set(getattr(said, other)))
        for key, other in (("retry", "permanent"), ("permanent", "retry"))
    )
    return dataclasses.replace(said, retry=tuple(sorted(retry)), permanent=tuple(sorted(permanent)), **budgets)


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

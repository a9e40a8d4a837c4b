"""The sections of a file as the values of `dtctl.model`."""

from __future__ import annotations

import dataclasses
import errno
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtctl.config.checks import check_code, check_order, check_sections
from dtctl.config.document import Findings
from dtctl.config.inventory import read_hosts
from dtctl.config.launching import read_launches
from dtctl.config.placement import FIRST_PORT, give_ports, place_tasks, read_spares
from dtctl.config.sections import ClusterFile, HookEntry, RecoveryEntry, Section
from dtctl.model import Cluster, Hook, Job, Recovery, TfConfig, Trainer


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
            gpus_per_task=job.gpus_per_task,
            depends_on=None if job.depends_on is None else _once(job.depends_on),
            own_port=job.port is not None,
        )
        for name, job in content.jobs.items()
    }
    own = {
        "file": file,
        "hosts": hosts,
        "jobs": jobs,
        "trainer": trainer,
        "dirs": content.dirs.model_dump(exclude_none=True),
        "tf_config": TfConfig(**_values(TfConfig, content.tf_config)),
        "checkpoint_dir": content.checkpoint.dir,
        "recovery": _read_recovery(content.recovery),
        "log_limit_bytes": content.logs.limit,
        "coordinator_port": coordinator_port,
        "own_coordinator_port": "port" in content.coordinator.model_fields_set,
        "spares": tuple(spares),
        "hooks": {name: _read_hook(name, said) for name, said in content.hooks.items()},
    }
    cluster = Cluster(**_values(Cluster, content) | own)
    check_order(cluster, findings)
    findings.or_raise()
    return cluster


def _values(record: type, section: Section) -> dict[str, Any]:
    """What the section says of the fields of `record`, in which the name of a duration ends in _s."""
    names = {field.name for field in dataclasses.fields(record)}
    said = {name: tuple(value) if isinstance(value, list) else value for name, value in section}
    return {own: value for name, value in said.items() for own in (name, f"{name}_s") if own in names}


def _once(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


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
        **_values(Trainer, said) | {"code": code, "env_file": env_file or None, "secrets": _once(said.secrets)}
    )


def _read_hook(name: str, said: HookEntry) -> Hook:
    return Hook(**_values(Hook, said) | {"name": name, "on": _once(said.on), "run": tuple(said.run or ())})


def _read_recovery(said: RecoveryEntry) -> Recovery:
    """Without restarts nothing is tried again, which is what the mode `never` asks for.

    Of the exit codes a default gives way to what the file says of the other list.
    """
    shortest, longest = said.backoff
    budgets = {"max_restarts": 0, "max_run_restarts": 0} if said.mode == "never" else {}
    retry, permanent = (
        set(getattr(said, key)) - (set() if key in said.model_fields_set else set(getattr(said, other)))
        for key, other in (("retry", "permanent"), ("permanent", "retry"))
    )
    codes = {"retry": tuple(sorted(retry)), "permanent": tuple(sorted(permanent))}
    backoff = {"backoff_min_s": shortest, "backoff_max_s": longest}
    return Recovery(**_values(Recovery, said) | budgets | codes | backoff)


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

"""The settings of a job's trainers: the job's own settings, merged over those of `trainer`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dtctl.config.cluster import Launch
from dtctl.config.document import Findings, KeyPath
from dtctl.config.ranges import expand
from dtctl.config.sections import ClusterFile, LaunchKeys
from dtctl.config.strategies import SCHEDULER
from dtctl.errors import UsageError, did_you_mean
from dtctl.model import DIRECTORY_NAMES, FIELD, PLATFORM_NAMES, SPACE, Dialect, lead_among

TASK_FIELDS = (
    *("job_name", "task_index", "task", "address", "host", "port", "num_tasks", "lead_host", "lead_port"),
    *("num_gpus", "cluster", "num_workers", "batch_per_worker"),
)
"""Fields of a template besides {JOB_hosts} of every job and {NAME_dir} of every directory."""


def uses_mxnet(content: ClusterFile) -> bool:
    return "mxnet" in [_dialect(job) or _dialect(content.trainer) for job in content.jobs.values()]


def with_scheduler(content: ClusterFile) -> ClusterFile:
    """MXNet's dist kvstore has a scheduler: unless the file has that job itself, it runs on the lead's host."""
    jobs = content.jobs
    if not uses_mxnet(content) or SCHEDULER in jobs:
        return content
    lead = jobs[lead_among(jobs).job]
    hosts = lead.hosts[:1]
    with suppress(UsageError):  # reported where it stands
        hosts = tuple(host for text in hosts for host in expand(text))[:1]
    own: dict[str, Any] = {"hosts": hosts, "tasks_per_host": 1, "port": None, "gpus_per_task": None, "depends_on": None}
    scheduler = dataclasses.replace(lead, **own, dialect="mxnet")
    return dataclasses.replace(content, jobs={**jobs, SCHEDULER: scheduler})


def read_launches(content: ClusterFile, findings: Findings) -> dict[str, Launch]:
    """The launch of each job. Templates are checked where they are written, so that each mistake is reported once."""
    for path, section in (
        (("trainer",), content.trainer),
        *((("jobs", name), job) for name, job in content.jobs.items()),
    ):
        _check_template(path, section, content, findings)
        check_platform(path, section, content, findings)
    return {name: _merged(name, content, job, findings) for name, job in content.jobs.items()}


def _merged(name: str, content: ClusterFile, job: LaunchKeys, findings: Findings) -> Launch:
    trainer = content.trainer
    dialect = _dialect(job) or _dialect(trainer) or "tensorflow"
    template = (job.template or trainer.template or ()) if dialect == "template" else ()
    if dialect == "template" and not template:
        path = ("jobs", name, "dialect") if job.dialect else ("trainer", "dialect")
        if not (findings.has("trainer", "template") or findings.has("jobs", name, "template")):
            hint = 'template: ["--servers={ps_hosts}", "--index={task_index}"]'
            findings.add(path, f"{findings.name(*path)} is template, but there is no template", hint)
    return Launch(
        command=job.command or trainer.command or (),
        args=_words(_merged_args(trainer.args, job.args)),
        dialect=dialect,
        template=template,
        platform=platform_names(trainer.platform if job.platform is None else job.platform, content),
        env={**trainer.env, **job.env},
    )


def _dialect(section: LaunchKeys) -> Dialect | None:
    return section.dialect or ("template" if section.template else None)


_Args = Mapping[str, str | bool] | tuple[str, ...]


def _merged_args(trainer: _Args | None, job: _Args | None) -> _Args:
    if isinstance(trainer, Mapping) and isinstance(job, Mapping):
        return {**trainer, **job}
    return (trainer or {}) if job is None else job


def _words(args: _Args) -> tuple[str, ...]:
    """Flags as absl and argparse read them: --name=value, or --name alone for true; false leaves the flag out."""
    if not isinstance(args, Mapping):
        return args
    return tuple(
        f"--{name}" if value is True else f"--{name}={value}" for name, value in args.items() if value is not False
    )


def _check_template(path: tuple[str, ...], section: LaunchKeys, content: ClusterFile, findings: Findings) -> None:
    if section.template and section.dialect not in (None, "template"):
        summary = f"{'.'.join(path)} has a template, which the dialect {section.dialect} does not use"
        findings.add((*path, "template"), summary, "leave out dialect or template", at_key=True)
    known = field_names(findings.names_in("jobs"))
    for index, word in enumerate(section.template or ()):
        at: KeyPath = (*path, "template", index)
        for field, joiner in dict.fromkeys(FIELD.findall(word)):
            if field.endswith("_hosts") and findings.lacks_keys_of("jobs"):
                continue
            if field not in known:
                hint = did_you_mean(field, known) or f"fields here: {', '.join(known)}"
                findings.add(at, f"{findings.name(*at)}: {{{field}}} is not a field of a template", hint)
            elif field.endswith("_dir") and not directory_is_set(field, content) and not findings.has("dirs"):
                lacks_directory(at, f"{{{field}}}", findings)
            if joiner and (joiner != SPACE or not field.endswith("_hosts")):
                summary = (
                    f"{findings.name(*at)}: {{{field}|{joiner}}} cannot be, expected a list of addresses and space"
                )
                findings.add(at, summary, "{ps_hosts|space}; {ps_hosts} alone joins them with commas")


def field_names(jobs: Sequence[str]) -> list[str]:
    return [*(f"{job}_hosts" for job in jobs), *TASK_FIELDS, *(f"{name}_dir" for name in DIRECTORY_NAMES)]


def platform_names(said: Sequence[str] | None, content: ClusterFile) -> tuple[str, ...]:
    """The names one by one: `flags` and `env` stand for the directories that are set and num_gpus."""
    with_value = [name for name in PLATFORM_NAMES if name == "num_gpus" or directory_is_set(name, content)]
    groups = {"flags": with_value, "env": [name.upper() for name in with_value]}
    return tuple(dict.fromkeys(name for word in said or () for name in groups.get(word, [word])))


def directory_is_set(field: str, content: ClusterFile) -> bool:
    """`field`: output_dir, say."""
    return field.endswith("_dir") and getattr(content.dirs, field.removesuffix("_dir")) is not None


def check_platform(path: tuple[str, ...], section: LaunchKeys, content: ClusterFile, findings: Findings) -> None:
    for index, word in enumerate(section.platform or ()):
        field = word.lower()
        if field.endswith("_dir") and not directory_is_set(field, content) and not findings.has("dirs"):
            lacks_directory((*path, "platform", index), word, findings)


def lacks_directory(at: KeyPath, field: str, findings: Findings) -> None:
    name = field.strip("{}").lower().removesuffix("_dir")
    summary = f"{findings.name(*at)}: {field} has no value, because dirs.{name} is not set"
    findings.add(at, summary, f"write, for example, dirs: {{{name}: /data}}")

"""Whether hosts have the GPUs that their tasks are to see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dtctl.config.ranges import expand, fold
from dtctl.config.sections import ClusterFile
from dtctl.config.yaml.document import Findings, Path
from dtctl.model import Cluster
from dtctl.ways import gpus_wanted

_Load = tuple[tuple[str, int], ...]
"""Jobs and how many of their tasks are on a host."""


def check_gpus(content: ClusterFile, cluster: Cluster, findings: Findings) -> None:
    """Hosts that are alike are told once."""
    entry_of = {name: key for key in content.hosts for name in expand(key)}
    alike: dict[tuple[str, _Load], list[str]] = {}
    for host, counts in _loads(cluster).items():
        alike.setdefault((entry_of[host], tuple(counts.items())), []).append(host)
    undeclared: dict[str, list[str]] = {}
    for (entry, load), hosts in alike.items():
        declared = "gpus" in content.hosts[entry].model_fields_set
        if declared or cluster.hosts[hosts[0]].gpus:
            _check_load(load, hosts, cluster, findings)
            continue
        for job, _ in load:
            if cluster.jobs[job].gpus_per_task:
                undeclared.setdefault(job, []).extend(hosts)
    for job, hosts in undeclared.items():
        path = _path(job, findings)
        summary = f"{findings.name(*path)} does nothing on {fold(hosts)}, which no `gpus` is said of"
        findings.doubt(path, summary, f"write under hosts how many there are: gpus: {cluster.jobs[job].gpus_per_task}")


def _loads(cluster: Cluster) -> Mapping[str, Counter[str]]:
    """Less the jobs that see no GPU."""
    loads: dict[str, Counter[str]] = {}
    for job in cluster.jobs.values():
        for host in job.hosts if gpus_wanted(job) != 0 else ():
            loads.setdefault(host, Counter())[job.name] += 1
    return loads


def _check_load(load: _Load, hosts: list[str], cluster: Cluster, findings: Findings) -> None:
    gpus = cluster.hosts[hosts[0]].gpus
    said = {job: number for job, number in load if gpus_wanted(cluster.jobs[job])}
    sharing = {job: number for job, number in load if gpus_wanted(cluster.jobs[job]) is None}
    wanted = sum((gpus_wanted(cluster.jobs[job]) or 0) * number for job, number in said.items())
    if gpus == 0:
        sharing = {}  # a host without any hides none, and its tasks find none
    if wanted + sum(sharing.values()) <= gpus:
        return
    due = [f"{number} of {job} want {gpus_wanted(cluster.jobs[job])} each" for job, number in said.items()]
    due += [f"{number} of {job} share {'the rest' if said else 'them'}" for job, number in sharing.items()]
    has = f"{gpus} GPU{'' if gpus == 1 else 's'}" if gpus else "no GPU"
    each = " each" if len(hosts) > 1 else ""
    job = next(iter(said or sharing))
    path = _path(job, findings)
    hint = "place its tasks elsewhere, or set gpus_per_task: 0, which hides the GPUs from them"
    most = (gpus - wanted + (gpus_wanted(cluster.jobs[job]) or 0) * said.get(job, 0)) // dict(load)[job]
    if job in said and most >= 1 and not sharing:
        hint = f"gpus_per_task: {most} is the most for {job} there; or place some of its tasks elsewhere"
    summary = f"jobs.{job}: {fold(hosts)} has {has}{each}, too few for its tasks: {', '.join(due)}"
    findings.add(path, summary, hint, at_key=path[-1] == job)


def _path(job: str, findings: Findings) -> Path:
    """Where the number stands, or else the job."""
    path: Path = ("jobs", job, "gpus_per_task")
    return path if findings.document.find(path) == path else path[:2]

"""What the file says of the way of training and of the order of the start, where it cannot be so."""

from __future__ import annotations

from dtctl.config.launching import uses_mxnet
from dtctl.config.sections import ClusterFile
from dtctl.config.suggest import did_you_mean
from dtctl.config.yaml.document import Findings
from dtctl.model import LEAD_JOBS, Cluster
from dtctl.ways import PS, SERVER, circle, parties, waits

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

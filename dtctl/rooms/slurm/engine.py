"""Slurm as an engine: lends the nodes of a batch job to a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from dtctl.config.cluster import Cluster
from dtctl.errors import TransportError
from dtctl.model import OtherTransport
from dtctl.operations.engines import Allocation, Engine, JobRequest, Lent, Submitted
from dtctl.operations.local import local_python
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.slurm import kept, queue
from dtctl.rooms.slurm.placement import TRANSPORT, given, machines, placed, unknown_nodes
from dtctl.rooms.slurm.submission import (
    Submission,
    code_of,
    file_of,
    forget,
    least_limit_s,
    limit_s,
    log_of,
    options,
    printed_by,
    run_of,
    submit,
)


class SlurmEngine:
    """See Engine (operations/engines.py)."""

    def place(self, cluster: Cluster) -> Cluster:
        here = given(os.environ)
        if here is None:
            return placed(cluster, unknown_nodes(cluster), "", local_python(os.environ))
        return placed(cluster, here.nodes, here.job, local_python(os.environ))

    def request(self, cluster: Cluster) -> JobRequest:
        return JobRequest(TRANSPORT, len(machines(cluster)), tuple(options("RUN", cluster)))

    def lent(self) -> Lent | None:
        here = given(os.environ)
        if here is None:
            return None
        submission = Submission.load(file_of(here.run))
        return kept.lent(submission.kept, here.run, Path(submission.file), code_of(here.run))

    def submit(self, cluster: Cluster, record: RunRecord, lent: Lent, environ: Mapping[str, str]) -> Submitted:
        submission = Submission.of(cluster, lent)
        job = submit(submission, cluster, lent, environ)
        hosts = {
            name: dataclasses.replace(host, reach=OtherTransport(TRANSPORT, f"{job}/{name}"))
            for name, host in record.hosts.items()
        }
        log = (
            ""
            if any(word.startswith(("--output", "-o")) for word in cluster.slurm.words)
            else str(log_of(submission.run))
        )
        limit, least = limit_s(cluster), least_limit_s(cluster)
        short_of_s = least if limit is not None and limit < least else 0.0
        return Submitted(dataclasses.replace(record, hosts=hosts), job, len(machines(cluster)), log, short_of_s)

    def allocation(self, record: RunRecord) -> Allocation | None:
        if given(os.environ) is not None:  # within the job
            return None
        jobs = {_job(host.reach) for host in record.hosts.values() if isinstance(host.reach, OtherTransport)}
        if len(jobs) != 1 or not (name := jobs.pop()):
            return None
        if os.environ.get("SLURM_JOB_ID") == name:  # the batch script, which has the machines until the job has ended
            return None
        job = queue.own_jobs().get(name)
        if job is None:
            return Allocation(TRANSPORT, name, "UNKNOWN", "ended", log=printed_by(record.run))
        waits, is_live = job.phase == "pending", job.phase != "ended"
        return Allocation(
            engine=TRANSPORT,
            job=name,
            state=job.state,
            phase=job.phase,
            ending=job.state == "COMPLETING",
            is_node_failure=job.state == "NODE_FAIL",
            reason=job.reason if waits else "",
            position=queue.position(job) if waits else None,
            left_s=job.left_s if job.phase == "running" else None,
            nodes=job.nodes,
            run=run_of(record.run, queue.restarts(name)) if record.run and is_live else None,
            log="" if is_live else printed_by(record.run),
        )

    def forget(self, runs: Collection[str]) -> None:
        for run in {run_of(run, 0) for run in runs}:
            forget(run)

    def cancel(self, allocation: Allocation) -> None:
        queue.ask(["scancel", "--state=PENDING", allocation.job])
        if (left := queue.own_jobs().get(allocation.job)) is not None and left.phase == "pending":
            raise TransportError(f"job {allocation.job} still waits in the queue", hint=f"scancel {allocation.job}")


def _job(reach: OtherTransport) -> str:
    return reach.target.partition("/")[0]


ENGINE: Engine = SlurmEngine()

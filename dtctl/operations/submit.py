"""Queues a run at an engine, which starts it when it has machines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from dtctl.config.cluster import Cluster
from dtctl.config.load import read_file
from dtctl.errors import PreflightError
from dtctl.operations.client import controller_name
from dtctl.operations.engines import Allocation, Engine, Lent, Submitted, allocation_of
from dtctl.operations.history import CodeRecord, Memory
from dtctl.operations.run_record import RunRecord
from dtctl.operations.stop import StopOrder, stop
from dtctl.operations.up.launch import Start
from dtctl.transport.seam import Transport


def submit(
    engine: Engine,
    cluster: Cluster,
    launch: Start,
    memory: Memory,
    transport: Transport,
    environ: Mapping[str, str],
) -> Submitted:
    """Submits the run. Raises PreflightError while an earlier run of the file has machines or waits for them, unless it
    is to be replaced: then it is stopped first. `cluster`: as the file has it.
    """
    record = launch.record
    assert record.run is not None
    previous = memory.newest_of(cluster.file, cluster.name)
    if previous is not None and (held := allocation_of(previous)) is not None and held.phase != "ended":
        if not launch.replace:
            raise _is_live(previous, held)
        stop(previous, transport, tuple(previous.roster), StopOrder(controller_name(), why="makes_room"))
    queued = engine.submit(cluster, record, _parts(cluster, launch, record.run), environ)
    memory.begin(queued.record)
    memory.make_current(record.run)
    memory.forget_failure(cluster.file)
    diff = launch.inspected.diff if launch.inspected is not None else ""
    memory.keep_code(record.run, CodeRecord.of(launch.bundle.manifest, diff))
    return queued


def _parts(cluster: Cluster, launch: Start, run: str) -> Lent:
    """Raises PreflightError if the file has changed since it was read."""
    content = read_file(cluster.file)
    if hashlib.sha256(content).hexdigest() != cluster.file_sha256:
        raise PreflightError(f"{cluster.file} changed while it was being submitted", hint="run dtctl up again")
    return Lent(run, cluster.file, content, launch.bundle, launch.wheels, launch.content, launch.inspected)


def _is_live(previous: RunRecord, held: Allocation) -> PreflightError:
    what = "waits for its machines" if held.phase == "pending" else "is live"
    return PreflightError(
        f"run {previous.run} of this file {what}, in job {held.job}",
        hint="dtctl up --replace    stops it and submits this one; dtctl stop    stops it",
    )

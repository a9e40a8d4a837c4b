"""Queues a run at an engine, which starts it when it has machines."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping

from dtctl.config.cluster import Cluster
from dtctl.config.load import read_file
from dtctl.errors import PreflightError
from dtctl.operations.client import controller_name
from dtctl.operations.engines import Engine, Lent, Submitted, allocation_of, still_held
from dtctl.operations.history import CodeRecord, Memory
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
    words: tuple[str, ...] = (),
) -> Submitted:
    """Submits the run. Raises PreflightError while an earlier run of the file has machines or waits for them, unless it
    is to be replaced: then it is stopped first. `cluster`: as the file has it. `words`: see `words_of`.
    """
    record = launch.record
    assert record.run is not None
    previous = memory.newest_of(cluster.file, cluster.name)
    if previous is not None and (held := allocation_of(previous)) is not None and held.phase != "ended":
        if not launch.replace:
            raise still_held(previous, held, cluster)
        stop(previous, transport, tuple(previous.roster), StopOrder(controller_name(), why="makes_room"))
    queued = engine.submit(cluster, record, _parts(cluster, launch, record.run, words), environ)
    queued = dataclasses.replace(queued, record=dataclasses.replace(queued.record, begun=False))
    memory.begin(queued.record)
    memory.make_current(record.run)
    memory.forget_failure(cluster.file)
    diff = launch.inspected.diff if launch.inspected is not None else ""
    memory.keep_code(record.run, CodeRecord.of(launch.bundle.manifest, diff))
    return queued


def words_of(
    *,
    adopt_output: bool = False,
    require_private: bool = False,
    check: bool = True,
    force: bool = False,
    allow_missing: int = 0,
) -> tuple[str, ...]:
    """The options of `up` that are not about the submission, but about the start of its job."""
    said = {
        "--adopt-output": adopt_output,
        "--require-private": require_private,
        "--no-check": not check,
        "--force": force,
        f"--allow-missing={allow_missing}": allow_missing > 0,
    }
    return tuple(word for word, is_said in said.items() if is_said)


def _parts(cluster: Cluster, launch: Start, run: str, words: tuple[str, ...]) -> Lent:
    """Raises PreflightError if the file has changed since it was read."""
    content = read_file(cluster.file)
    if hashlib.sha256(content).hexdigest() != cluster.file_sha256:
        raise PreflightError(f"{cluster.file} changed while it was being submitted", hint="run dtctl up again")
    return Lent(run, cluster.file, content, launch.bundle, launch.wheels, launch.content, launch.inspected, words)

"""The known signatures: the rows of signatures.ini, and what is read of the facts for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.operations.diagnosis import hosts, joins, waits
from dtctl.operations.diagnosis.signature import Find, Join, table

if TYPE_CHECKING:
    from dtctl.operations.client.snapshot import TaskStatus
    from dtctl.operations.diagnosis.facts import Facts
    from dtctl.operations.diagnosis.signature import Fields


def _driver(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    return {**joins.gpu(facts, task, fields), "python": facts.python(task)}


_JOINS: Mapping[str, Join] = {
    "left_out": joins.left_out,
    "estimator_missing": joins.version,
    "tensorflow_1_program": joins.version,
    "keras_3": joins.version,
    "tensorboard_missing": joins.python,
    "module_missing": joins.python,
    "port_taken": joins.port,
    "checkpoint_of_another_model": joins.checkpoint,
    "checkpoint_damaged": joins.checkpoint,
    "checkpoint_missing": joins.checkpoint,
    "gpu_memory": joins.gpu,
    "cuda_unusable": _driver,
    "disk_full": joins.disk,
    "host_memory": joins.memory,
    "cannot_run": joins.cannot_run,
    "killed_for_memory": joins.killed,
    "killed": joins.killed_by(joins.KILL),
    "illegal_instruction": joins.killed_by(joins.ILL),
    "crashed": joins.killed_by(joins.SEGV),
    "ended_itself": joins.ended_itself,
}
_FINDS: Mapping[str, Find] = {
    "host_away": waits.away,
    "coordinator_away": waits.coordinator_away,
    "host_silent": waits.silent,
    "frozen": waits.frozen,
    "stalled": waits.stalled,
    "hung_before": waits.hung,
    "name_unresolved": waits.unreachable("unresolved"),
    "firewall": waits.unreachable("timeout", "no_route", "denied", "other"),
    "refused": waits.unreachable("refused"),
    "never_listened": waits.never_ready,
    "waits_for_one_that_is_over": waits.over,
    "waits_for_start": waits.deaf,
    "waits": waits.unexplained,
    "diverging": hosts.diverged,
    "disk_is_full": hosts.full_disks,
    "no_steps": hosts.silent,
    "nobody_begins": hosts.nobody_begins,
    "not_begun": hosts.not_begun,
    "throttled": hosts.throttled,
    "straggler": hosts.stragglers,
    "behind": hosts.behind,
    "host_slow": hosts.slow,
    "versions_differ": hosts.versions,
}

SIGNATURES = table(Path(__file__).with_name("signatures.ini"), _JOINS, _FINDS)

IN_LOGS = tuple(row for row in SIGNATURES if row.pattern)
"""What logs tell, of an end or of a task that lives."""

BY_STATE = tuple(row for row in SIGNATURES if not row.pattern and row.name not in _FINDS)
"""Ends whose logs tell nothing that is known."""

BY_FACTS = tuple(row for row in SIGNATURES if row.name in _FINDS)
"""What states and figures tell; some name who waits."""

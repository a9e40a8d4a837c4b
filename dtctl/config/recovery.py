"""The section `recovery` as a value, and what contradicts itself in it."""

from __future__ import annotations

from dtctl.config.sections import ClusterFile, RecoveryEntry
from dtctl.config.yaml.document import Findings
from dtctl.model import Recovery

_BUDGETS = ("max_restarts", "max_run_restarts")


def read_recovery(said: RecoveryEntry) -> Recovery:
    """Without restarts nothing is tried again, which is what the mode `never` asks for."""
    never = said.mode == "never"
    shortest, longest = said.backoff
    return Recovery(
        mode=said.mode,
        max_restarts=0 if never else said.max_restarts,
        max_run_restarts=0 if never else said.max_run_restarts,
        backoff_min_s=shortest,
        backoff_max_s=longest,
        reset_after_s=said.reset_after,
        repeat=said.repeat,
        allow_scratch=said.allow_scratch,
        retry=tuple(sorted(set(said.retry) - (set() if _is_set(said, "retry") else set(said.permanent)))),
        permanent=tuple(sorted(set(said.permanent) - (set() if _is_set(said, "permanent") else set(said.retry)))),
        stall_s=said.stall,
        first_step_s=said.first_step,
        host_timeout_s=said.host_timeout,
        reboot=said.reboot,
    )


def check_recovery(content: ClusterFile, findings: Findings) -> None:
    said = content.recovery
    for budget in _BUDGETS:
        if said.mode == "never" and _is_set(said, budget) and getattr(said, budget):
            path = ("recovery", budget)
            summary = f"recovery.{budget} is {getattr(said, budget)}, but recovery.mode is never"
            findings.add(path, summary, "leave out one of them")
    both = sorted(set(said.retry) & set(said.permanent))
    if both and _is_set(said, "retry") and _is_set(said, "permanent"):
        summary = f"recovery.permanent has {both[0]}, which recovery.retry has too"
        findings.add(("recovery", "permanent"), summary, "an exit code is tried again, or it is not")


def _is_set(said: RecoveryEntry, key: str) -> bool:
    """The file says it; a default gives way to what the file says elsewhere."""
    return key in said.model_fields_set

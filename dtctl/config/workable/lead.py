"""Who leads, and names of jobs that are a letter away from one that means something."""

from __future__ import annotations

from collections.abc import Sequence

from dtctl.config.sections import ClusterFile
from dtctl.config.suggest import closest
from dtctl.config.yaml.document import Findings
from dtctl.model import LEAD_JOBS, lead_among
from dtctl.ways import EVALUATOR, KVSTORE_JOBS, PS, WORKER

_LEADING = (WORKER, *LEAD_JOBS)
_KNOWN = (*_LEADING, PS, EVALUATOR, *KVSTORE_JOBS)
_ENDLESS = (PS, *KVSTORE_JOBS)
"""Jobs whose tasks serve until they are told to end."""
_NEAR = 0.75


def check_lead(content: ClusterFile, findings: Findings) -> None:
    """A run ends with its lead: what never ends cannot lead it."""
    jobs = list(content.jobs)
    if not jobs or findings.lacks_keys_of("jobs"):
        return
    lead = lead_among(jobs)
    if lead.job in _LEADING:
        for job, meant in _slips(jobs, _KNOWN):
            summary = f"jobs.{job}: dtctl knows no job of this name, so its tasks have no part in the way of training"
            findings.doubt(("jobs", job), summary, f"did you mean '{meant}'?", at_key=True)
        return
    slips = _slips(jobs, _LEADING)
    if lead.job in _ENDLESS:
        summary = f"no job leads: {lead} would, and a {lead.job} never ends"
        if slips:
            job, meant = slips[0]
            findings.add(("jobs", job), f"jobs.{job}: {summary}", f"did you mean '{meant}'?", at_key=True)
        else:
            hint = "call the job that trains worker or chief; or write it first, and its task 0 leads"
            findings.add(("jobs", lead.job), summary, hint, at_key=True)
    elif slips or len(jobs) > 1:
        summary = f"no job is called {', '.join(_LEADING[:-1])} or {_LEADING[-1]}: {lead}, of the first job, leads"
        job, hint = lead.job, "call the job that leads worker or chief, if it is another"
        if slips:
            job, hint = slips[0][0], f"did you mean '{slips[0][1]}'?"
        findings.doubt(("jobs", job), summary, hint, at_key=True)


def _slips(jobs: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    """Jobs whose names are almost one of those that no job has, each with that."""
    near = [(job, closest(job, names, _NEAR)) for job in jobs if job not in _KNOWN]
    return [(job, name) for job, name in near if name is not None and name not in jobs]

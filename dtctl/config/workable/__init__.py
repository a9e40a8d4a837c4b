"""What can be read, and still cannot work or is hardly meant: told to those who are about to start it.

Commands about a run that is there already do not ask: a file that no run can be started from may well stop one.
"""

from __future__ import annotations

from dtctl.config.sections import ClusterFile
from dtctl.config.workable.hooks import doubt_hooks
from dtctl.config.workable.lead import check_lead
from dtctl.config.workable.placeholders import check_placeholders
from dtctl.config.yaml.document import Findings


def check_workable(content: ClusterFile, findings: Findings) -> None:
    """Adds to the findings, and raises nothing but what they raise when there are too many.

    `content` may have other mistakes, and what they leave out is not missed here.
    """
    check_lead(content, findings)
    check_placeholders(content, findings)
    doubt_hooks(content, findings)

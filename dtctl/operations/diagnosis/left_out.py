"""A trainer lacks a file that is in the code directory here, and was not pushed: a row of table.py."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dtctl.operations.diagnosis.signature import Level, Signature, in_log

if TYPE_CHECKING:
    from dtctl.operations.asking.tasks import TaskStatus
    from dtctl.operations.diagnosis.facts import Facts
    from dtctl.operations.diagnosis.signature import Fields

_TREE = re.compile(r"/.*/\.dtctl/work/[^/]+/tree/")
"""Where the code is on a host."""


def _left_out(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """The rule by which a file or a module that the trainer lacks was not pushed."""
    module = str(fields.get("module", "")).replace(".", "/")
    named = str(fields.get("path") or fields.get("file") or fields.get("argument") or "")
    path = _TREE.sub("", named).removeprefix("./")
    for one in [path] if path else [f"{module}.py", module]:
        if found := facts.left_out(one):
            return {"path": one, "rule": found.rule, "entry": found.path}
    return None


LEFT_OUT = Signature(
    "left_out",
    Level.ENDS,
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'",
    "the code directory on this machine, and why a file of it is not pushed",
    "{path} is in the code directory here, but is not pushed to the hosts, by the rule {rule}",
    (
        "a line !/{entry} in .dtctlignore pushes it; then: dtctl up --replace",
        "or put it on each host, outside the code: dirs.data in cluster.yaml",
    ),
    in_log(
        r"No such file or directory: b?['\"](?P<path>[^'\"\n]+)|"
        r"(?:can't open file '|(?<!File)NotFoundError: (?:\{\{[^}\n]*\}\} )?)(?P<file>[^\s;']+)['; :][^\n]*No such"
        r" file|"
        r"(?m:^[\w./-]+: (?P<argument>[^:\s\[]+): No such file or directory)|"
        r"No module named '?(?P<module>[\w.]+)"
    ),
    _left_out,
)

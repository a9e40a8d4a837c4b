"""The known signatures, in one table: what is seen, the facts that are read beside it, what it means, what to type.

The words of a log are tried in this order, the cause of an end before the rest of its log. Between [ and ] stands what
is left out where a field in it is not known. `docs/troubleshooting.md` is made from this table.
"""

from __future__ import annotations

from dtctl.operations.diagnosis.left_out import LEFT_OUT
from dtctl.operations.diagnosis.of_hosts import HOSTS
from dtctl.operations.diagnosis.of_peers import PEERS, UNTOLD
from dtctl.operations.diagnosis.of_programs import PROGRAM
from dtctl.operations.diagnosis.of_resources import RESOURCES
from dtctl.operations.diagnosis.of_waits import WAITS

IN_LOGS = (LEFT_OUT, *PROGRAM, *RESOURCES, *PEERS)
"""What logs tell, of an end or of a task that lives."""

BY_STATE = UNTOLD
"""Ends whose logs tell nothing that is known."""

BY_FACTS = (*WAITS, *HOSTS)
"""What states and figures tell; some name who waits."""

SIGNATURES = (*IN_LOGS, *BY_STATE, *BY_FACTS)

"""A command of dtctl's that is typed on this host for a machine that reaches Slurm through it, and how it ended."""

from ...records.kinds import AtMost, Default, List, Optional, Record, also
from ...records.requests import Request
from ...records.values import BundleId, ExitCode, Line, Name, SignalNumber, Variables, refuse_unfit

MOST_FILE = 1000000
"""The size limit of a cluster file (dtctl/config/load.py)."""


CODE = "code"
"""The directory of the code in that of the project."""


class LoginCommandRequest(Request):
    """Runs dtctl with these words in the directory of a project, which is made if it is missing."""

    project: Name
    program: Line
    """How dtctl is started here: a name on PATH, or a path; ~ is the home directory."""
    words: List[str]
    variables: Default[Variables, {}]
    """They are added to the environment; some are secret."""
    content: Default[Optional[AtMost[str, MOST_FILE]], None]
    """The cluster file from now on; null: as it is."""
    bundle: Default[Optional[BundleId], None]
    """The code from now on, which was pushed before; null: as it is."""
    removes: Default[bool, False]
    """Whether the project is removed once the command has succeeded."""


@also(LoginCommandRequest)
def _can_be_given(request: LoginCommandRequest) -> None:
    refuse_unfit(("words",), request["words"])
    refuse_unfit(("program",), [request["program"]])


class LoginCommandResult(Record):
    """How the command ended."""

    exit_code: Optional[ExitCode]
    signal: Optional[SignalNumber]

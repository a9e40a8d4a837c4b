"""What `check` asks of logins over SSH, and what a host tells of them."""

from ..kinds import AtMost, OneOf, Optional, Record, Usual
from ..words import Count, Line, Seconds


class SshQuestion(Record):
    """How this user's logins begin, and what the server lets in."""

    start_up: Usual[bool, False]
    """The login shell is started, as sshd starts it for a command."""


class SshFacts(Record):
    """null: it cannot be read."""

    shell: Usual[Line, ""]
    start_up_s: Usual[Optional[Seconds], None]
    noise: Usual[AtMost[str, 1000], ""]
    """What start-up files print although nobody reads it."""
    noise_bytes: Usual[Count, 0]
    problem: Usual[Line, ""]
    """Why the shell does not do its work."""
    max_startups: Usual[Optional[AtMost[str, 100]], None]
    """As in sshd_config(5): so many logins at once, then by chance, then none."""
    max_sessions: Usual[Optional[Count], None]
    told_by: Usual[OneOf["", "sshd", "file", "default"], ""]
    """Who tells these: `sshd -T`, its file, or its manual."""
    machine: Usual[Line, ""]
    """The same for all hosts of the inventory that are one machine with one sshd."""

"""What one thing that can go wrong means, why it comes about, and what to do. Markdown.

One source for `dtctl explain`, docs/exit-codes.md and docs/troubleshooting.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from dtctl.errors import ExitCode


@dataclass(frozen=True)
class Cause:
    """One reason why: what the message says, or what is so, and the remedy."""

    sign: str
    remedy: str


@dataclass(frozen=True)
class Trouble:
    """`code` is an exit code, or the name of a host's answer (`error.code` with `-o json`)."""

    code: ExitCode | str
    meaning: str
    causes: tuple[Cause, ...] = ()

    @property
    def name(self) -> str:
        return str(int(self.code)) if isinstance(self.code, ExitCode) else self.code


def trouble(code: ExitCode | str, meaning: str, *causes: tuple[str, str]) -> Trouble:
    """`causes`: pairs of a sign and its remedy."""
    return Trouble(code, meaning, tuple(Cause(*each) for each in causes))

"""The pushed code of a run, as `code` sends it back."""

from ...records.kinds import Default, Optional, Record
from ...records.values import Count, Hex64, Name


class CodePart(Record):
    """The frame `code_part`: bytes of the manifest, or of one file of it. All parts come in order."""

    file: Default[Optional[Count], None]
    """The number of the file in the manifest; null: the manifest, which comes first."""


class CodeResult(Record):
    """Everything was sent."""

    run: Name
    bundle: Hex64
    """The SHA-256 of the manifest."""

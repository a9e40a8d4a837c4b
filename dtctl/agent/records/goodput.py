"""Where a run's time went, as its coordinator keeps account of it in cluster.json."""

from .kinds import AtMost, Dict, List, OneOf, Optional, Record, Usual, Within
from .words import Count, Epoch, Seconds

MOST_SPANS = 300
"""The newest; of those before only the seconds are known."""

Spent = OneOf["kept", "again", "start", "wait", "stall", "away", "end", "unsaved"]
"""What a second was spent on (run/goodput.py)."""


class Span(Record):
    """From the end of the span before it."""

    what: Spent
    end_s: Seconds
    """Since the account was begun."""
    step: Usual[Optional[Count], None]
    """The newest that had been told by then."""


class Account(Record):
    """Every second since `since` is in `before`, in one of `spans`, or after the last of them, and not judged yet."""

    since: Epoch
    seconds: Seconds
    spans: Usual[AtMost[List[Span], MOST_SPANS + 1], []]
    before: Usual[Dict[Spent, Seconds], {}]
    """In spans that there is no room for."""
    training: Usual[bool, False]
    """A step was told, and nothing has interrupted the training since: the time after the last span is not judged."""
    again_to: Usual[Optional[Count], None]
    """Up to this step the training has been already: what is told until then is done again."""
    away: Usual[bool, False]
    """A host was away in the time that is not judged yet."""
    gap_s: Usual[Seconds, 0.0]
    """The usual time between two steps that are told."""
    pace: Usual[Within[float, 0, 1e12], 0.0]
    """The usual steps a second."""
    reached: Usual[Optional[Count], None]
    """The highest step that was told."""

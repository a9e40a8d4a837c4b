"""An agent's ballot on its disk: ballot.json, and two slots of room that the run's start has set aside.

A voter must not vote before its vote is on the disk, and an agent that cannot write its ballot cannot work. So where a
full disk takes no file, the ballot is written into a slot, over an older one: that needs no room. The newest counts.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from ..host import errors, files, paths
from ..records import kinds
from ..records.kinds import InvalidValue, checked
from ..records.whole_run import Ballot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Mapping, Optional, Tuple

    Write = Callable[[str, Mapping[str, object]], None]

NAME = "ballot.json"
SLOTS = "ballot.slots"
SLOT_BYTES = 4096
"""A page: what is written there is never spread over two blocks of a disk."""


def set_aside(directory: str) -> None:
    """Takes the room for the slots."""
    paths.write_text(os.path.join(directory, SLOTS), "\0" * (2 * SLOT_BYTES))


def read(directory: str) -> Optional[Ballot]:
    """The newest ballot; None before the first election. Raises Damaged for ballot.json."""
    found = paths.read_record(os.path.join(directory, NAME), Ballot)
    return max([found, *in_slots(directory)], key=_age)


def write(directory: str, ballot: Ballot, write_urgent: Write) -> None:
    """Returns when the ballot is on the disk. `write_urgent` frees a reserve, which no ballot needs that has a slot."""
    path = os.path.join(directory, NAME)
    try:
        paths.write_json(path, ballot)
    except OSError as full:
        if not errors.is_full(full):
            raise
        if _write_in_slot(directory, ballot):
            return
        write_urgent(path, ballot)
    paths.sync(path)


def in_slots(directory: str) -> List[Optional[Ballot]]:
    """The ballot in each slot; None for one that is empty, or that a power failure has left half written."""
    found: List[Optional[Ballot]] = []
    with suppress(OSError), files.opened(os.path.join(directory, SLOTS)) as opened:
        for offset in (0, SLOT_BYTES):
            text = files.read_at(opened, offset, SLOT_BYTES).partition(b"\0")[0]
            try:
                found.append(checked(Ballot, kinds.parse_json(text)))
            except (ValueError, InvalidValue):
                found.append(None)
    return found


def _write_in_slot(directory: str, ballot: Ballot) -> bool:
    """Whether there is a slot to write: in the run of an older version there is none."""
    held = in_slots(directory)
    text = json.dumps(ballot).encode()
    if not held or len(text) > SLOT_BYTES:
        return False
    slot = min((0, 1), key=lambda number: _age(held[number]))
    with files.opened(os.path.join(directory, SLOTS), os.O_WRONLY) as opened:
        os.pwrite(opened, text.ljust(SLOT_BYTES, b"\0"), slot * SLOT_BYTES)
        os.fsync(opened)
    return True


def _age(ballot: Optional[Ballot]) -> Tuple[int, bool]:
    """Later ballots of a host have greater values: its term never falls, and in a term it learns who coordinates."""
    return (ballot["term"], ballot["coordinator"] is not None) if ballot is not None else (0, False)

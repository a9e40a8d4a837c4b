"""Checkpoints that are on their way to a storage URL: a note beside each, from before its first file to after its last.

DIR/.NAME.part    {file: SHA-256} of checkpoint NAME, as a host has it in its directory of that name

Object storage renames nothing, so that files get their final names one by one. While there is a note, NAME is no
checkpoint, and what the note lists may be replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from dtctl.agent.records.kinds import parse_json
from dtctl.rooms.storage import Place

_NOTE = re.compile(r"\.(.+)\.part\Z", re.DOTALL)


def note_name(name: str) -> str:
    """The name of the note beside a checkpoint."""
    return f".{name}.part"


def arriving_name(name: str) -> str | None:
    """The checkpoint to which this note belongs; None if this is the name of no note."""
    found = _NOTE.match(name)
    return found.group(1) if found else None


def read(place: Place, note: str) -> dict[str, str] | None:
    """What the note lists; None if there is no note. Others can write there: a name may be any text."""
    data = place.whole(note)
    if not data:
        return None
    try:
        noted = parse_json(data)
    except ValueError:
        return {}
    if not isinstance(noted, dict):
        return {}
    return {name: sha for name, sha in noted.items() if isinstance(sha, str)}


def write(place: Place, note: str, files: Mapping[str, str]) -> None:
    place.write(note, json.dumps(files).encode())

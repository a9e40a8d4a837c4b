"""The machine form of what tasks did."""

from __future__ import annotations

from typing import Any

from dtctl.render.machine.document import picked
from dtctl.rooms.profile.operation import Profiled, Profiles


def profiles(found: Profiles) -> dict[str, Any]:
    return {
        **picked(found, "run seconds session"),
        "tasks": [{**picked(one, "task host"), **_answer(one)} for one in found.tasks],
    }


def _answer(one: Profiled) -> dict[str, Any]:
    samples = "way=stacksBy sampled_s samples missing said=pySpySaid?"
    return {
        **picked(one.answer, f"attempt state pid command? {samples}"),
        "places": [{**picked(place, "samples"), **picked(place.frame, "function file line")} for place in one.places],
        **picked(one.answer, "stacks[samples frames omitted=framesOmitted]"),
        **picked(one.answer, "file(path size_bytes) no_file file_said=fileSaid?"),
    }

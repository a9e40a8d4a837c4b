"""`import` reads sources in the shapes in which people publish them: ten of each kind, and what comes of each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dtctl.errors import ConfigError, UsageError
from dtctl.rooms.importing.operation import READERS
from tests.unit.operations.published import Published, published
from tests.unit.operations.test_importing import imported, loaded

EVERY = published()
NAMED = ("deepspeed",)
"""Formats that are not recognised: a slot may be a GPU or not."""


def test_there_are_ten_sources_of_each_kind() -> None:
    counted = Counter(one.kind for one in EVERY)
    assert {kind: counted[kind] for kind in READERS if counted[kind] < 10 and kind != "addresses"} == {}


@pytest.mark.parametrize("source", EVERY, ids=lambda one: f"{one.kind}: {one.title}")
def test_a_published_source_becomes_its_jobs(source: Published, tmp_path: Path) -> None:
    kind = source.kind if source.kind in NAMED else None
    if source.refusal is not None:
        with pytest.raises((ConfigError, UsageError), match=source.refusal):
            imported(source.text, tmp_path, kind=kind)
        return
    made = imported(source.text, tmp_path, kind=kind)
    assert made.format == source.kind
    jobs = loaded(made).jobs.values()
    assert "; ".join(f"{job.name} {len(job.hosts)}: {' '.join(job.hosts)}" for job in jobs) == source.jobs
    assert "Hunter22" not in made.text

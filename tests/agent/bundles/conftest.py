"""A code directory with all that can be sent, and a host's root."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.agent.bundles import store, working


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    for base in [lock.removesuffix(".lock") for lock in store._in_use]:
        store._release(base)
    while working._claimed:
        os.close(working._claimed.popitem()[1])


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code directory with one of everything that can be sent."""
    code = tmp_path / "code"
    (code / "pkg" / "deep").mkdir(parents=True)
    (code / "empty").mkdir()
    (code / "train.py").write_text("print('training')\n" * 1000)
    (code / "run me.sh").write_text("#!/bin/sh\n")
    (code / "run me.sh").chmod(0o755)
    (code / "pkg" / "__init__.py").write_text("")
    (code / "pkg" / "deep" / "__init__.py").write_text("")
    (code / "pkg" / "deep" / "größe\nzwei.txt").write_text("odd name")
    (code / "weights.bin").write_bytes(random.Random(1).randbytes(700_000))
    (code / "zeros.bin").write_bytes(bytes(700_000))
    (code / "latest").symlink_to("pkg/deep")
    (code / "dangling").symlink_to("not-yet")
    return code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "host"

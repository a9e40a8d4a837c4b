"""Files of dtctl's own are replaced all at once, and nothing else is left."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtctl.places import replace_file


def then(work: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """It does its work, and what has come meanwhile is raised as it returns: so does Ctrl-C."""

    def both(*given: Any, **named: Any) -> None:
        work(*given, **named)
        raise error

    return both


@pytest.mark.parametrize("durable", [True, False])
def test_the_new_content_is_for_its_owner_alone_whatever_the_umask_says(tmp_path: Path, durable: bool) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(b"old")
    umask = os.umask(0o277)
    try:
        replace_file(file, b"new", durable=durable)
    finally:
        os.umask(umask)
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("call", ["open", "fchmod", "fsync"])
def test_what_comes_meanwhile_leaves_the_old_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(f"dtctl.places.os.{call}", then(getattr(os, call), error))
        with pytest.raises(type(error)):
            replace_file(file, b"new")
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (b"old", [file])


def test_where_nothing_can_be_made_the_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "nowhere" / "record.json", b"new")

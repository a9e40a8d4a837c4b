"""A report's file: only its owner's, replaced as a whole, and never in place of something else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dtctl.errors import DtctlError, UsageError
from dtctl.operations.report.writing import MARK, write_report

TEXT = f"<!DOCTYPE html>\n{MARK} -->\n<html>\u00e4\ud800</html>\n"


def test_it_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written = write_report(tmp_path / "a.html", TEXT, force=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.html").stat().st_mode) == 0o600
    assert (tmp_path / "a.html").stat().st_size == written
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_a_report_is_replaced_and_anything_else_only_if_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    write_report(path, TEXT, force=False)
    write_report(path, TEXT + "new", force=False)
    assert path.read_text().endswith("new")
    other = tmp_path / "thesis.html"
    other.write_text("a thesis")
    with pytest.raises(UsageError, match="no report"):
        write_report(other, TEXT, force=False)
    assert other.read_text() == "a thesis"
    write_report(other, TEXT, force=True)
    assert MARK in other.read_text()
    empty = tmp_path / "empty"
    empty.touch()
    write_report(empty, TEXT, force=False)


@pytest.mark.parametrize("force", [True, False])
def test_what_is_no_place_for_a_file_is_refused(tmp_path: Path, force: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "none" / "a.html"):
        with pytest.raises(UsageError):
            write_report(path, TEXT, force=force)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError):
        write_report(tmp_path / "file" / "a.html", TEXT, force=force)


@pytest.mark.parametrize("target", ["real.html", "authorized_keys", "not-there"])
@pytest.mark.parametrize("force", [True, False])
def test_a_link_is_refused_whatever_it_leads_to(tmp_path: Path, target: str, force: bool) -> None:
    write_report(tmp_path / "real.html", TEXT, force=False)
    (tmp_path / "authorized_keys").touch()
    (tmp_path / "link.html").symlink_to(target)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.exists()}
    with pytest.raises(UsageError, match="is a link, which is not followed"):
        write_report(tmp_path / "link.html", TEXT + "new", force=force)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.exists()} == before
    assert (tmp_path / "link.html").is_symlink()


def test_a_directory_of_the_project_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "out").symlink_to("..")
    with pytest.raises(UsageError, match=r"out is a link \(to \.\.\), which is not followed"):
        write_report(tmp_path / "project" / "out" / "a.html", TEXT, tmp_path / "project", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["project"]


def test_what_the_system_refuses_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dtctl.operations.report.writing.replace_file", full)
    with pytest.raises(DtctlError, match="No space left"):
        write_report(tmp_path / "a.html", TEXT, force=False)
